# SPDX-License-Identifier: Apache-2.0
"""Runs where the guests run, as root: every load, with PLE off and then on, through its three phases.

`python3 -m demo.driver --help`. In the lab it is the VM's command, on a real host demo.py starts it.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from demo import kvm, linux, report
from demo.guests import Load, connect, refuse_leftovers
from demo.machine import Machine, OwnMachine, SharedMachine
from demo.service import Cost, Daemon, cost, journal
from demo.session import GaveUp, Run, Session, Starved
from demo.settings import Settings, add_options

BEGIN = time.monotonic()


def say(sentence: str) -> None:
    """Progress, with the seconds since the start."""
    print(f"[{time.monotonic() - BEGIN:4.0f} s] {sentence}", flush=True)


def main(arguments: list[str] | None = None) -> int:
    """0 when everything was measured and the host got everything back."""
    options = parser().parse_args(arguments)
    demo = Demo(options)
    failure = None
    try:
        demo.run()
    except (OSError, GaveUp, Starved) as error:
        failure = str(error)
    finally:
        demo.clean()
    result = demo.save(failure)
    for line in report.lines(result):
        print(line)
    return int(result["exit_status"])


def parser() -> argparse.ArgumentParser:
    """Paths and lengths; the defaults are those of a real host."""
    found = argparse.ArgumentParser(prog="demo.driver", description=__doc__)
    add = found.add_argument
    add("--payload", type=Path, required=True, help="loads.elf")
    add("--linux-kernel", type=Path, help="kernel of the stock Linux guest; none: it is left out")
    add("--linux-initrd", type=Path, help="its initramfs")
    add("--linux-kvm", nargs="*", default=[], help="parameters of KVM's module while it runs")
    add("--result", type=Path, required=True, help="where result.json goes")
    add("--machine", type=Path, help="what a Sampler writes about the machine underneath")
    add("--work", type=Path, default=Path("/var/lib/libvirt/images/gangd-demo"), help="QEMU reads here")
    add("--start", default="systemctl start gangd", help="the command that starts the daemon")
    add("--metrics", default="127.0.0.1:9752", help="address of its exporter")
    add("--uri", default="qemu:///system", help="libvirt")
    add("--window", type=int, default=1, help="PAUSE only every so many turns of a busy wait (emulators)")
    add("--leave", type=int, default=0, help="leave the guest every so many PAUSEs (emulators)")
    add(
        "--system-weight",
        type=int,
        help="CPU weight of system.slice: libvirtd, gangd, gangctl; guests have 100",
    )
    add("--time-limit", type=float, help="seconds after which nothing more is measured")
    add("--keep-kvm", action="store_true", help="do not reload KVM: measure with PLE as it is")
    add_options(found)
    return found


class Demo:
    """Everything of one demonstration."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._daemon = Daemon(options.start, options.metrics)
        self._machine: Machine = SharedMachine(options.machine) if options.machine else OwnMachine()
        deadline = BEGIN + (options.time_limit or float("inf"))
        self._settings = Settings(options.repeats, options.seconds, deadline=deadline)
        self._connection: Any = None
        self._status: dict[str, Any] = {}
        self._runs: list[Run] = []
        self._linux: linux.LinuxRun | None = None
        self._cost: Cost | None = None

    def run(self) -> None:
        """Both kinds of host, all loads, and the Linux guest."""
        options = self._options
        self._connection = connect(options.uri)
        refuse_leftovers(self._connection)
        options.work.mkdir(parents=True, exist_ok=True)
        if options.system_weight:
            command = f"systemctl set-property --runtime system.slice CPUWeight={options.system_weight}"
            say(command)
            subprocess.run(command.split(), check=True)
        say(options.start)
        self._daemon.start()
        for ple in [kvm.ple()] if options.keep_kvm else [False, True]:
            self._switch(ple)
            for load in options.loads.split(","):
                self._one(load, ple)
                self.save("the driver was still at work")  # in case it does not come back
        if options.linux_kernel:
            self._linux_guest()

    def _switch(self, ple: bool) -> None:
        if not self._options.keep_kvm:
            say(f"reloading {kvm.vendor()} with PLE {'on' if ple else 'off'}")
            kvm.switch(ple)

    def _one(self, load: str, ple: bool) -> None:
        say(f"=== {load}, PLE {'on' if ple else 'off'}")
        run = Run(load, ple)
        self._runs.append(run)
        session = Session(self._connection, self._copy(self._options.payload), self._daemon, self._machine,
                          self._settings, say, quick=len(self._runs) > 1)  # fmt: skip
        hook = self._look if self._cost is None else None
        session.run(
            Load(load, options={"window": self._options.window, "leave": self._options.leave}), run, hook
        )

    def _look(self) -> None:
        """While the guests are gangs: what the daemon says of itself, and what it costs."""
        self._status = self._daemon.status()
        say(f"gangd's cost over {self._options.quiet_seconds:.0f} s in which nothing changes")
        time.sleep(2)  # gangctl has just made it work
        self._cost = cost(self._status["own"]["pid"], self._options.quiet_seconds)
        say(f"  {self._cost.rss_bytes / (1 << 20):.1f} MiB, {self._cost.cpu_share:.2%} of one CPU")

    def _linux_guest(self) -> None:
        say("=== a stock Linux guest, alone")
        if self._options.linux_kvm:
            say(f"reloading {kvm.vendor()} with {' '.join(self._options.linux_kvm)}")
            kvm.switch(kvm.ple(), *self._options.linux_kvm)
        kernel, initrd = (self._copy(p) for p in (self._options.linux_kernel, self._options.linux_initrd))
        log = self._options.work / "console.log"
        self._linux = linux.run(self._connection, kernel, initrd, log, say)

    def _copy(self, source: Path) -> Path:
        """A copy where QEMU may read, and whose path has no spaces in it."""
        target: Path = self._options.work / source.name
        if not target.exists():
            shutil.copy(source, target)
        return target

    def clean(self) -> None:
        """Leave no files behind but gangd's log, beside the result."""
        journal(self._options.result.with_name("gangd.log"))
        shutil.rmtree(self._options.work, ignore_errors=True)

    def save(self, failure: str | None) -> dict[str, Any]:
        """Write result.json, and return what is in it."""
        keys = ("repeats", "seconds", "window", "leave", "system_weight")
        extra: dict[str, Any] = {
            "seconds": round(time.monotonic() - BEGIN, 1),
            "settings": {key: getattr(self._options, key) for key in keys},
        }
        result = report.document(self._status, self._runs, self._linux, self._cost, failure, extra)
        self._options.result.write_text(json.dumps(result, indent=1) + "\n")
        return result


if __name__ == "__main__":
    sys.exit(main())
