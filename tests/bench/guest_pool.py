# SPDX-License-Identifier: Apache-2.0
"""All guests of one load. They are started once; to measure fewer of them the others are frozen.

Freezing is the cgroup's (cgroup.freeze): a frozen guest uses no CPU and loses nothing. Starting guests
under the emulator takes longer than measuring them.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from bench.memory import GuestMemory
from gangd.measure.proc import read_thread
from lab.guests.counters import Counters
from lab.guests.domains import Guest, GuestDied
from lab.observe.symptoms import symptoms

FREEZE_SECONDS = 5.0
APART_SECONDS = 0.03  # at most, from one guest's start to the next one's: a slot of gang.ko
ALIVE_SECONDS = 6.0


class Starved(Exception):
    """A guest wants a CPU and gets none: whatever schedules it is to blame."""


class GuestPool:
    """Running guests with one load: they are destroyed with it."""

    def __init__(self, guests: list[Guest]) -> None:
        self.guests = guests
        self._memories: dict[str, GuestMemory] = {}
        try:
            self._memories = {guest.name: GuestMemory(guest.name, guest.pid) for guest in self.guests}
            self._scopes = {guest.name: scope_of(guest) for guest in self.guests}
        except BaseException:
            self.close()
            raise

    def only(self, awake: Iterable[Guest]) -> None:
        """Let these run and freeze the others."""
        names = {guest.name for guest in awake}
        for guest in self.guests:
            (self._scopes[guest.name] / "cgroup.freeze").write_text("0" if guest.name in names else "1")
        deadline = time.monotonic() + FREEZE_SECONDS
        for guest in self.guests:
            while _frozen(self._scopes[guest.name]) != (guest.name not in names):
                if time.monotonic() > deadline:
                    raise GuestDied(f"{guest.name} does not freeze or thaw within {FREEZE_SECONDS:g} s")
                time.sleep(0.01)

    def scatter(self, awake: Sequence[Guest], draw: random.Random, free: bool = True) -> None:
        """Freeze all, and let `awake` begin anew: in another order, at other moments, each vCPU on one CPU.

        `draw` chooses these. Otherwise a round would begin where the one before it ended, and all rounds
        would be one history (docs/decisions/0038). free: False leaves the vCPUs the CPUs that they have.
        """
        self.only([])
        cpus = range(os.cpu_count() or 1)
        for guest in draw.sample(awake, len(awake)):
            for tid in guest.threads().values() if free else ():
                os.sched_setaffinity(tid, {draw.choice(cpus)})
            (self._scopes[guest.name] / "cgroup.freeze").write_text("0")
            time.sleep(draw.uniform(0, APART_SECONDS))
        self.only(awake)

    def progress(self, guests: Iterable[Guest]) -> dict[str, tuple[float, int]]:
        """Return by guest the time of the reading (monotonic seconds) and its iterations."""
        return {guest.name: self._memories[guest.name].read() for guest in guests}

    def counters(self, guest: Guest) -> Counters:
        """Return all counters of one guest."""
        return self._memories[guest.name].counters()

    def cpu_seconds(self, guests: Iterable[Guest]) -> float:
        """Return the CPU seconds of all vCPUs of `guests` so far."""
        return sum(_cpu_seconds(guest.pid, tid) for guest in guests for tid in guest.threads().values())

    def check(self, guests: Iterable[Guest], begin: dict[str, tuple[float, int]]) -> None:
        """Raise GuestDied or Starved unless all have got on since `begin`.

        One that stood still may have been unlucky under a scheduler that keeps its vCPUs apart, so it
        is given some time: what is dead stays where it is. libvirt is asked only about that one.
        """
        for guest in guests:
            deadline = time.monotonic() + ALIVE_SECONDS
            while self._memories[guest.name].read()[1] == begin[guest.name][1]:
                if time.monotonic() > deadline:
                    guest.check()
                    _raise_symptoms(guest)
                time.sleep(0.05)

    def close(self) -> None:
        """Destroy them all."""
        for memory in self._memories.values():
            memory.close()
        self._memories = {}
        for guest in self.guests:
            with contextlib.suppress(OSError):
                (scope_of(guest) / "cgroup.freeze").write_text("0")
            guest.destroy()
        self.guests = []


def scope_of(guest: Guest) -> Path:
    """The cgroup libvirt made for the guest (cgroup v2): its machine's scope."""
    for line in Path(f"/proc/{guest.pid}/cgroup").read_text().splitlines():
        if line.startswith("0::"):
            parts = Path(line[3:].lstrip("/")).parts
            last = max((i for i, part in enumerate(parts) if part.endswith(".scope")), default=None)
            if last is not None:
                return Path("/sys/fs/cgroup", *parts[: last + 1])
    raise GuestDied(f"{guest.name} has no cgroup of its own")


def _raise_symptoms(guest: Guest) -> None:
    """Starved if a vCPU thread waits without getting CPU time: no accident of the lab. Else GuestDied."""
    found = symptoms(guest.pid, guest.threads())
    if found.starved:
        raise Starved(f"{guest.name} was starved: {found}")
    raise GuestDied(f"{guest.name} runs but counts no more: {found}")


def _cpu_seconds(pid: int, tid: int) -> float:
    """0 for a thread that is gone: its guest is found dead soon."""
    return read_thread(pid, tid).cpu_seconds or 0.0


def _frozen(scope: Path) -> bool:
    return "frozen 1" in (scope / "cgroup.events").read_text()
