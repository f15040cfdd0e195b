# SPDX-License-Identifier: Apache-2.0
"""Runs in the VM, as root: every load with PLE off and on, every number of guests, every variant.

`python3 -m bench.driver --help`. The result is there before, empty or with some cells; it is written
after every cell, and a run goes on where it ends.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol, TypeVar

from bench import result
from bench.backends import Missing
from bench.cells import Cell, Pace, Series, documents
from bench.guest_pool import GuestPool
from bench.records import Key, Result
from bench.settings import add_options
from bench.switch import Switch
from bench.variants import chosen
from lab.guests.domains import GuestDied, Load, connect, refuse_leftovers, start
from lab.observe import kvm

BEGIN = time.monotonic()
WORK = Path("/var/lib/libvirt/images/gangd-bench")
QUIET_AFTER_START_SECONDS = 2.0  # what libvirtd, udev and machined still do
T = TypeVar("T")
DEATHS = 8  # of guests under one load; then the emulator has got it in for this one


def main(arguments: list[str] | None = None) -> int:
    """0 when every cell that was asked for was measured."""
    return whole(Bench(parser().parse_args(arguments)))


def whole(part: Part) -> int:
    """Run a part: 0 when everything was measured, else 1."""
    try:
        return 0 if part.run() else 1
    finally:
        part.close()


def parser() -> argparse.ArgumentParser:
    """Paths, the payload's words, and what is measured."""
    found = argparse.ArgumentParser(prog="bench.driver", description=__doc__)
    add = found.add_argument
    add("--payload", type=Path, required=True, help="loads.elf")
    add("--result", type=Path, required=True, help="the result, read and written")
    add("--window", type=int, default=1, help="PAUSE only every so many turns of a busy wait (emulators)")
    add_options(found)
    return found


class Harness:
    """Loads on guests that may die: new guests go on where those were. The result is a file all the time."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._document = Result.read(options.result)
        self._document.kernel = os.uname().release
        self._pacer = Pacer()
        self._connection: Any = None

    def close(self) -> None:
        """Leave no files behind."""
        shutil.rmtree(WORK, ignore_errors=True)

    def _leave(self) -> None:
        """Take the guests away from the scheduler, before they are destroyed."""

    def _connect(self) -> None:
        """Connect to libvirt, and never wait for a turn again.

        Beside sixteen busy vCPU threads an ordinary task waits half a second for its turn. What is started
        from here stays ordinary.
        """
        self._connection = connect("qemu:///system")
        refuse_leftovers(self._connection)
        WORK.mkdir(parents=True, exist_ok=True)
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))

    def _outlive(
        self,
        load: str,
        left: list[T],
        begin: Callable[[], GuestPool],
        measure: Callable[[GuestPool, T], None],
        tell: Callable[[GuestDied], str] = str,
    ) -> bool:
        """Measure all that is left of a load, with new guests whenever one died; False if that was too often.

        begin: starts guests. tell: says of a death what the result keeps of it.
        """
        for _ in range(DEATHS):
            pool = None
            try:
                pool = begin()
                while left:
                    measure(pool, left[0])
                    left.pop(0)
                return True
            except GuestDied as death:
                self._document.lab_failures.append(tell(death))
                say(f"guests are started anew: {self._document.lab_failures[-1]}")
            finally:
                self._leave()
                if pool:
                    pool.close()
                self._save()
        say(f"that happened {DEATHS} times: what is left of {load} is left out")
        return False

    def _save(self) -> None:
        """Save the result as far as it is."""
        save(self._document, self._options.result)


class Bench(Harness):
    """The whole matrix, or what is missing of it."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__(options)
        self._variants = chosen(options.variants.split(","))
        slot_us = round(options.slot_ms * 1000)
        self._pace = Pace(options.rounds, options.seconds, options.settle, slot_us)
        self._switch = Switch(slot_us, options.smp)
        self._run = time.strftime("%Y-%m-%d %H:%M:%S")

    def run(self) -> bool:
        """Measure; False when some cell could not be."""
        self._connect()
        shutil.copy(self._options.payload, WORK)
        groups = list(self._missing())
        self._pacer.total = sum(len(keys) for *_, keys in groups)
        say(f"{self._pacer.total} cells of {len(self._variants)} variants to measure")
        complete = True
        for ple, load, keys in groups:
            if kvm.ple() != ple:
                say(f"reloading {kvm.vendor()} with PLE {'on' if ple else 'off'}")
                kvm.switch(ple)
            complete &= self._load(Load(load, self._options.vcpus, self._words()), keys)
        return complete

    def close(self) -> None:
        """Leave neither a scheduler nor files behind."""
        self._leave()
        super().close()

    def _leave(self) -> None:
        self._switch.close()

    def _words(self) -> dict[str, int]:
        return {"window": self._options.window}

    def _missing(self) -> Iterator[tuple[bool, str, list[Key]]]:
        """Yield, by PLE and load, the cells that the result lacks, most guests first."""
        names = [variant.name for variant in self._variants]
        guests = sorted(map(int, self._options.guests.split(",")), reverse=True)
        for ple in [word == "on" for word in self._options.ple.split(",")]:
            for load in self._options.loads.split(","):
                keys = [(load, ple, number) for number in guests]
                keys = [key for key in keys if not self._has(key, names)]
                if keys:
                    yield ple, load, keys

    def _has(self, key: Key, names: list[str]) -> bool:
        return result.is_complete(self._document, key, names, self._options.rounds)

    def _load(self, load: Load, keys: list[Key]) -> bool:
        """Measure the cells of one load. False if a cell had to be left."""
        series: dict[Key, dict[str, Series]] = {key: {} for key in keys}
        return self._outlive(
            load.name,
            list(keys),
            lambda: self._start(load, keys[0]),
            lambda pool, key: self._cell(pool, key, series[key]),
        )

    def _start(self, load: Load, key: Key) -> GuestPool:
        say(f"starting {key[2]} guests: {load.name}, PLE {'on' if key[1] else 'off'}")
        pool = GuestPool(start(self._connection, WORK / self._options.payload.name, load, key[2]))
        time.sleep(QUIET_AFTER_START_SECONDS)
        return pool

    def _cell(self, pool: GuestPool, key: Key, series: dict[str, Series]) -> None:
        begin = time.monotonic()
        try:
            Cell(pool, key[2], self._switch, self._pace, say).run(self._variants, series)
        finally:
            new = documents(key, series, self._run)
            self._document.cells = result.merged(self._document.cells, new)
            self._save()
        found = result.medians(self._document, key)
        figures = ", ".join(f"{name} {rate:,.0f}" for name, rate in found.items())
        say(f"{key[0]}, PLE {'on' if key[1] else 'off'}, {key[2]} guests: {figures}; "
                  f"{self._pacer.done(time.monotonic() - begin)}")  # fmt: skip


class Pacer:
    """The estimate of the time that is left."""

    def __init__(self) -> None:
        self.total = 0
        self._times: list[float] = []

    def done(self, seconds: float) -> str:
        """Count a cell that took `seconds`; return that with the cells done and the minutes left."""
        self._times.append(seconds)
        left = self.total - len(self._times)
        minutes = left * sum(self._times) / len(self._times) / 60
        return f"{seconds:.0f} s; {len(self._times)} of {self.total} cells, {minutes:.0f} minutes left"


def say(sentence: str) -> None:
    """Print `sentence` to the lab's console, with the VM's own time."""
    print(f"[{time.monotonic() - BEGIN:5.0f} s] {sentence}", flush=True)


class Part(Protocol):
    """A part of the benchmark, measured in a VM of its own."""

    def run(self) -> Any:
        """Return its part of the result. Raises Missing where our scheduler is not available."""

    def close(self) -> None:
        """Leave the host as it was."""


def measure(name: str, part: Part, place: Path) -> int:
    """Put the part under its name into the result at `place`: 0 when everything was measured, else 1."""
    document = Result.read(place)
    try:
        setattr(document, name, part.run())
    except Missing as missing:
        say(f"not available: {missing}")
        return 1
    finally:
        part.close()
    document.kernel = os.uname().release
    save(document, place)
    return 0


def save(document: Result, place: Path) -> None:
    """Write the result with its conclusions, and let the lab keep it."""
    result.finish(document).write(place)
    subprocess.run(["/lab/save"], check=True)


if __name__ == "__main__":
    sys.exit(main())
