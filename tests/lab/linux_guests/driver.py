# SPDX-License-Identifier: Apache-2.0
"""Runs in the VM, as root: four guests, work beside them, and a look at each every few seconds.

Writes what it knows to --result after every look: a VM that is lost leaves its last one.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import libvirt
from complaints import headlines

from linux_guests import beside, death, guest

HOME = Path("/var/lib/libvirt/images/linux-guests")
LOOK_SECONDS = 5.0
BOOT_SECONDS = 900.0  # on a machine that is busy with something else
STILL_SECONDS = 120.0  # without a beat: eight busy vCPUs and the host's work share two emulated CPUs
IDLE_SECONDS = 240.0  # without a finished round of one kind of work
LINES = 5
BEGIN = time.monotonic()


class Failed(Exception):
    """The run cannot do its work."""


@dataclass
class Watched:
    """One guest. moved: when each of its counters last did."""

    domain: Any
    log: Path
    counts: dict[str, int] = field(default_factory=dict)
    moved: dict[str, float] = field(default_factory=dict)
    death: dict[str, Any] | None = None

    def look(self, booting: bool) -> None:
        """Read its console and its state; its death is recorded once."""
        if self.death:
            return
        found, now = guest.tally(self.log), time.monotonic()
        for name, value in found.counts.items():
            if self.counts.get(name) != value:
                self.moved[name] = now
        self.counts = found.counts
        reason = found.complaint or self._not_running() or (None if booting else self._still(now))
        if reason:
            self.dead(reason)

    def dead(self, reason: str) -> None:
        """Record all that is known."""
        said = death.evidence(self.domain, self.log)
        self.death = {"reason": reason, "after_seconds": round(time.monotonic() - BEGIN), **said}

    def _not_running(self) -> str | None:
        state, why = self.domain.state()
        return None if state == libvirt.VIR_DOMAIN_RUNNING else f"libvirt: state {state}, reason {why}"

    def _still(self, now: float) -> str | None:
        quiet = now - self.moved["beat"]
        return f"no beat for {quiet:.0f} s" if quiet > STILL_SECONDS else None

    def idle(self) -> list[str]:
        """Return the kinds of work that have not moved for too long."""
        now = time.monotonic()
        return [name for name in guest.WORK if now - self.moved[name] > IDLE_SECONDS or not self.counts[name]]

    def document(self) -> dict[str, Any]:
        """Return the guest's part of the result."""
        disk = guest.Tally(self.counts, None).disk_mib if self.counts else 0.0
        last = death.tail(self.log).splitlines()[-LINES:]
        return {"work": {**self.counts, "disk_mib": disk}, "last_lines": last, "death": self.death}


class Run:
    """The guests and findings of one run."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._connection: Any = None
        self._guests: dict[str, Watched] = {}
        self._turns: dict[str, int] = {}
        self.failures: list[str] = []
        self._lived = 0.0
        self._switches: float | None = None

    def run(self) -> None:
        """Run the guests until the minutes are over; with --until-death until the first dies."""
        libvirt.registerErrorHandler(lambda *_: None, None)
        self._connection = libvirt.open("qemu:///system")
        self._start()
        self._wait(BOOT_SECONDS, lambda: not self._silent(), booting=True)
        for watched in self._silent():
            watched.dead(f"said nothing within {BOOT_SECONDS:.0f} s")
        if self.deaths():
            return
        beside.start(1 if self._options.guests_on else None)
        if self._options.gangs:
            self._mark()
        before, begin = self._gang_turns(), time.monotonic()
        switches = beside.context_switches()
        self._wait(self._options.minutes * 60, lambda: False, booting=False)
        self._lived = time.monotonic() - begin
        self._switches = (beside.context_switches() - switches) / self._lived
        self._judge(before)

    def _start(self) -> None:
        HOME.mkdir(parents=True)
        kernel, image = HOME / "vmlinuz", HOME / "initrd"
        shutil.copy(self._options.kernel, kernel)
        shutil.copy(self._options.initrd, image)
        _command("modprobe", "-a", "kvm_amd", "bridge", "tun", "vhost_net")
        _command("ip", "link", "add", guest.BRIDGE, "type", "bridge")
        _command("ip", "link", "set", guest.BRIDGE, "up")
        for number, name in enumerate(guest.NAMES):
            disk, log = HOME / f"{name}.disk", HOME / f"{name}.console"
            with disk.open("wb") as file:
                file.truncate(guest.DISK_BYTES)
            text = guest.xml(number, kernel, image, disk, log, self._options.guests_on)
            self._guests[name] = Watched(self._connection.defineXML(text), log)
        # Paused first, so that no guest is in the way of the next one's start.
        for watched in self._guests.values():
            watched.domain.createWithFlags(libvirt.VIR_DOMAIN_START_PAUSED)
        for watched in self._guests.values():
            watched.domain.resume()

    def _wait(self, seconds: float, done: Callable[[], bool], booting: bool) -> None:
        end = time.monotonic() + seconds
        for watched in self._guests.values():
            watched.moved["beat"] = time.monotonic()
        while time.monotonic() < end and not done():
            time.sleep(LOOK_SECONDS)
            for watched in self._guests.values():
                watched.look(booting)
            self.save("at work")
            self._say()
            if self.deaths() and (self._options.until_death or booting):
                return

    def _silent(self) -> list[Watched]:
        return [w for w in self._guests.values() if not w.death and not w.counts.get("beat")]

    def deaths(self) -> dict[str, str]:
        """Return, by name, the reason of each guest that died."""
        return {name: w.death["reason"] for name, w in self._guests.items() if w.death}

    def _mark(self) -> None:
        _command("systemctl", "start", "gangd")
        for name in self._guests:
            print(_command("gangctl", "mark", name, "--policy", "relaxed").strip(), flush=True)

    def _gang_turns(self) -> dict[str, int]:
        if not self._options.gangs or self.deaths():
            return {}
        document = json.loads(_command("gangctl", "--json", "stats"))
        return {found["name"]: (found["gang"] or {}).get("turns") or 0 for found in document["domains"]}

    def _judge(self, before: dict[str, int]) -> None:
        """Alive is not enough: they must have worked, and as gangs if that was the run."""
        lost = self.deaths()
        for name, watched in self._guests.items():
            # A guest that lost its neighbour has none to echo with.
            idle = [work for work in watched.idle() if not (work == "echo" and lost)]
            if not watched.death and idle:
                self.failures.append(f"{name} lives, but this stands still: {', '.join(idle)}")
            if watched.counts["wrong"]:
                self.failures.append(f"{name} got wrong data")
        after = self._gang_turns()
        self._turns = {name: after[name] - before.get(name, 0) for name in after}
        if self._options.gangs and not lost:
            self.failures += [f"{name} had no turn as a gang" for name in self._guests
                               if not self._turns.get(name)]  # fmt: skip
            for name in self._guests:
                _command("gangctl", "unmark", name)
        self.failures += [f"the host's kernel: {line}" for line in headlines(death.said("dmesg"))]
        if not all(beside.rounds().values()):
            self.failures.append(f"hackbench on the host did not come to an end: {beside.rounds()}")

    def save(self, state: str) -> None:
        """Write the result, in one step."""
        document = {
            "state": state,
            "seconds": round(time.monotonic() - BEGIN),
            "lived_seconds": round(self._lived),
            "guests": {name: watched.document() for name, watched in self._guests.items()},
            "turns": self._turns,
            "host": {
                "hackbench_rounds": beside.rounds() if beside.COUNTS.exists() else {},
                "context_switches_per_second": self._switches and round(self._switches),
                "complaints": headlines(death.said("dmesg")),
            },
            "failures": self.failures,
        }
        work = self._options.result.with_suffix(".new")
        work.write_text(json.dumps(document, indent=1) + "\n")
        work.replace(self._options.result)

    def _say(self) -> None:
        words = []
        for watched in self._guests.values():
            counts = watched.counts
            work = "/".join(str(counts.get(name, 0)) for name in ("beat", *guest.WORK))
            words.append("dead" if watched.death else work)
        host = beside.rounds() if beside.COUNTS.exists() else {}
        print(f"{time.monotonic() - BEGIN:4.0f} s  {'  '.join(words)}  host {host}", flush=True)


def _command(*words: str) -> str:
    """Run it; Failed with what it said if it fails."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"{' '.join(words)}: {(done.stdout + done.stderr).strip()}")
    return done.stdout


def main() -> int:
    """0 when all live and have worked."""
    parser = argparse.ArgumentParser(prog="linux_guests.driver", description=__doc__)
    parser.add_argument("--kernel", type=Path, required=True, help="vmlinuz of the guests")
    parser.add_argument("--initrd", type=Path, required=True, help="what they boot from")
    parser.add_argument("--result", type=Path, required=True)
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--gangs", action="store_true", help="gangd runs and marks all of them")
    parser.add_argument("--guests-on", help="CPU of all vCPUs; hackbench is on CPU 1 alone then")
    parser.add_argument("--until-death", action="store_true", help="stop when the first dies")
    options = parser.parse_args()
    run = Run(options)
    try:
        run.run()
    except (Failed, libvirt.libvirtError) as error:
        run.failures.append(str(error))
    run.save("done")
    journal = _command("journalctl", "--unit", "gangd.service", "--output", "short-monotonic")
    options.result.with_name("journal").write_text(journal)
    return 1 if run.deaths() or run.failures else 0


if __name__ == "__main__":
    sys.exit(main())
