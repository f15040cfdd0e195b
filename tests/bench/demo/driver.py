# SPDX-License-Identifier: Apache-2.0
"""Runs where the guests run, as root: mixed guests through four phases, with PLE on and then off.

`python3 -m bench.demo.driver --help`. In the lab it is the VM's command, on a real host __main__.py
starts it. What it measured is in result.json; outcome.py says what that means.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import libvirt

from bench.demo import mixed_guests, report
from bench.demo.mixed_guests import Files
from bench.demo.phases import Lost, Run, Session
from bench.demo.settings import Settings, add_options, planned
from lab.guests import linux
from lab.guests.domains import Guest, GuestDied, connect, refuse_leftovers
from lab.observe import kvm
from lab.observe.machine import Machine, OwnMachine, SharedMachine
from lab.observe.service import Daemon, journal

BEGIN = time.monotonic()


class Trouble(Exception):
    """Something failed that is not gangd's: there is no verdict."""


def say(sentence: str) -> None:
    """Progress, with the seconds since the start."""
    print(f"[{time.monotonic() - BEGIN:4.0f} s] {sentence}", flush=True)


def main(arguments: list[str] | None = None) -> int:
    """The exit status of the demonstration; all else is in result.json."""
    options = parser().parse_args(arguments)
    demo = Demo(options)
    failures: list[str] = []
    troubles: list[str] = []
    try:
        _tried(demo.run, failures, troubles)
    finally:
        _tried(demo.clean, failures, troubles)
    return int(demo.save("; ".join(failures) or None, "; ".join(troubles) or None)["exit_status"])


def _tried(step: Callable[[], None], failures: list[str], troubles: list[str]) -> None:
    """Run `step`: an OSError is gangd's failure, a Trouble or libvirt error is trouble, not gangd's."""
    try:
        step()
    except OSError as error:
        failures.append(str(error))
    except (Trouble, libvirt.libvirtError) as error:
        troubles.append(str(error))


def parser() -> argparse.ArgumentParser:
    """Paths and lengths; the defaults are those of a real host."""
    found = argparse.ArgumentParser(prog="bench.demo.driver", description=__doc__)
    add = found.add_argument
    add("--payload", type=Path, required=True, help="loads.elf")
    add("--linux-kernel", type=Path, help="kernel of the stock Linux guests; none: they are not measured")
    add("--linux-initrd", type=Path, help="their initramfs")
    add("--result", type=Path, required=True, help="where result.json goes")
    add("--machine", type=Path, help="what a Sampler writes about the machine underneath")
    add(
        "--virtual",
        action="store_true",
        help="time is virtual: no neighbour disturbs, nothing is thrown away",
    )
    add("--work", type=Path, default=Path("/var/lib/libvirt/images/gangd-demo"), help="QEMU reads here")
    add("--metrics", default="127.0.0.1:9752", help="address of gangd's exporter")
    add("--uri", default="qemu:///system", help="libvirt")
    add("--window", type=int, default=1, help="PAUSE only every so many turns of a busy wait (emulators)")
    add("--help-lab", action="append", default=[], metavar="COMMAND", help="run first, and say so in the end")
    add("--keep-kvm", action="store_true", help="do not reload KVM: measure with PLE as it is")
    add_options(found)
    return found


class Demo:
    """Everything of one demonstration."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._daemon = Daemon(options.metrics)
        self._machine = machine(options)
        self._settings = Settings(options.repeats, options.seconds)
        self._connection: Any = None
        self._runs = [Run(*run) for run in planned(options.runs)]
        self._ple: bool | None = None

    def run(self) -> None:
        """All that was planned."""
        options = self._options
        self._connection = connect(options.uri)
        refuse_leftovers(self._connection)
        options.work.mkdir(parents=True, exist_ok=True)
        for command in options.help_lab:
            say(command)
            subprocess.run(command.split(), check=True)
        self._ple = kvm.ple()
        say("systemctl start gangd")
        self._daemon.start()
        for run in self._runs:
            if options.keep_kvm and run.ple != self._ple:
                continue  # it stays in the table, as not measured
            self._switch(run.ple)
            self._one(run)
            self.save(None, "the driver was still at work")  # in case it does not come back

    def _switch(self, ple: bool) -> None:
        if kvm.ple() == ple:
            return
        say(f"reloading {kvm.vendor()} with PLE {'on' if ple else 'off'}")
        try:
            kvm.switch(ple)
        except OSError as error:
            raise Trouble(str(error))

    def _one(self, run: Run) -> None:
        options = self._options
        loads = {
            load: number for load, number in run.planned.items() if load != linux.LOAD or options.linux_kernel
        }
        say(f"=== PLE {'on' if run.ple else 'off'}: {loads}")
        files = Files(self._copy(options.payload), None, None, options.work, options.window)
        if options.linux_kernel:
            pair = [self._copy(path) for path in (options.linux_kernel, options.linux_initrd)]
            files = replace(files, kernel=pair[0], initrd=pair[1])
        guests: dict[Guest, str] = {}
        try:
            guests |= mixed_guests.start(self._connection, loads, files)
            say(f"{len(guests)} guests run")
            first = run is self._runs[0]
            Session(guests, run, self._daemon, self._machine, self._settings, say, not first).run()
        except GuestDied as death:
            run.lost = Lost("start", str(death))
            say(str(death))
        finally:
            for guest in guests:
                guest.destroy()

    def _copy(self, source: Path) -> Path:
        """A copy where QEMU may read, and whose path has no spaces in it."""
        target: Path = self._options.work / source.name
        if not target.exists():
            shutil.copy(source, target)
        return target

    def clean(self) -> None:
        """The host as it was: PLE, gangd stopped if we started it, no files but gangd's log."""
        self._daemon.stop()
        journal(self._options.result.with_name("gangd.log"))
        shutil.rmtree(self._options.work, ignore_errors=True)
        if self._ple is not None:
            self._switch(self._ple)

    def save(self, failure: str | None, trouble: str | None) -> dict[str, Any]:
        """Write result.json, and return what is in it."""
        keys = ("repeats", "seconds", "window", "virtual", "help_lab")
        extra: dict[str, Any] = {
            "duration_seconds": round(time.monotonic() - BEGIN, 1),
            "settings": {key: getattr(self._options, key) for key in keys},
        }
        result = report.document(
            self._runs, self._daemon.cost(), self._daemon.ejections, failure, trouble, extra
        )
        self._options.result.write_text(json.dumps(result, indent=1) + "\n")
        return result


def machine(options: argparse.Namespace) -> Machine | None:
    """Return the machine that tells whether a neighbour disturbed; None in virtual time, where none can."""
    if options.virtual:
        return None
    return SharedMachine(options.machine) if options.machine else OwnMachine()


if __name__ == "__main__":
    sys.exit(main())
