# SPDX-License-Identifier: Apache-2.0
"""Processes that never sleep, as if they were guests, and the scheduler as the actuator drives it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gangd.actuate import sched_ext
from gangd.actuate.base import Report
from gangd.actuate.executor import Executor
from gangd.actuate.gang import Gangs
from gangd.actuate.journal import Journal
from gangd.measure.proc import read_thread
from gangd.model.counters import GangStats
from gangd.model.domain import Mode
from gangd.model.plan import Cache, GangPlan, Placement, Plan
from vm.checks.inside.check import SHARE

SLOT_US = 20_000


@dataclass(frozen=True)
class Group:
    """A process with one busy thread for each of `cpus`, which says nothing of where it runs: it may run on
    any CPU unless it is pinned."""

    name: str
    pid: int
    tids: tuple[int, ...]
    cpus: tuple[int, ...]
    mode: Mode = Mode.RELAXED

    def cpu_seconds(self) -> list[float]:
        """CPU time of each thread so far."""
        return [read_thread(self.pid, tid).cpu_seconds or 0.0 for tid in self.tids]

    def pin(self) -> None:
        """Each thread to its CPU."""
        for tid, cpu in zip(self.tids, self.cpus, strict=True):
            os.sched_setaffinity(tid, {cpu})

    def let_go(self) -> None:
        """Each thread to any CPU."""
        for tid in self.tids:
            os.sched_setaffinity(tid, range(os.cpu_count() or 1))


def cpu_shares(threads: Sequence[tuple[int, int]], seconds: float) -> list[float]:
    """CPUs that each thread (process, thread) has within some seconds."""

    def read() -> list[tuple[float, float]]:
        """CPU time of each thread and when it was read: this task may have to wait between two."""
        return [(read_thread(pid, tid).cpu_seconds or 0.0, time.monotonic()) for pid, tid in threads]

    before = read()
    time.sleep(seconds)
    return [(used - had) / (now - was) for (had, was), (used, now) in zip(before, read(), strict=True)]


@contextlib.contextmanager
def busy(threads: int, first: int = 0, *how: str) -> Iterator[tuple[subprocess.Popen[bytes], list[int]]]:
    """A process with that many threads that never sleep, thread i on CPU `first` + i, while the body runs.
    `how`: words in front of its command."""
    command = [*how, str(SHARE / "spin"), str(threads), str(first)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield process, [int(process.stdout.readline()) for _ in range(threads)]
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def spinning(name: str, *cpus: int, pinned: bool = False) -> Iterator[Group]:
    """Such a process, with a thread for each of these CPUs; pinned: on it, else wherever it likes."""
    with busy(len(cpus)) as (process, tids):
        group = Group(name, process.pid, tuple(tids), cpus)
        if pinned:
            group.pin()
        else:
            group.let_go()
        yield group


@contextlib.contextmanager
def hog(cpu: int) -> Iterator[None]:
    """A real-time task that never sleeps, on one CPU."""
    with busy(1, cpu, "chrt", "--fifo", "50"):
        yield


def plan_of(groups: Sequence[Group], cpus: Sequence[int]) -> Plan:
    """Each of them a gang, in one cache over `cpus`."""
    plans = []
    for group in groups:
        seats = enumerate(zip(group.tids, group.cpus, strict=True))
        places = tuple(Placement(number, tid, cpu, "a test") for number, (tid, cpu) in seats)
        again = None if group.mode.has_slots else 1.0  # else the scheduler would not hear of it
        name, pid = group.name, group.pid
        plans.append(GangPlan(name, name, pid, group.mode, 0, places, "a test", again=again))
    cores = tuple(cpu - cpu % 2 for cpu in cpus)  # as lab/qemu.py makes them
    return Plan((Cache(0, tuple(cpus), "a test", cores),) if groups else (), tuple(plans))


@dataclass
class Rig:
    """Actuator and executor over `cpus`, without a daemon."""

    cpus: tuple[int, ...]
    gangs: Gangs = field(default_factory=lambda: Gangs(SLOT_US, [sched_ext.backend()]))

    def __post_init__(self) -> None:
        self.loaded = False
        self.executor = Executor([self.gangs], Journal(Path("/run/lab-journal")))

    def schedule(self, *groups: Group) -> Report:
        """Make these groups the only gangs; nothing may fail.

        The first time they stand still meanwhile: the verifier is slow enough in an emulator that executes
        nothing else. (That the scheduler loads beside busy tasks is a check of hostile.py.)
        """
        still = () if self.loaded else groups
        for group in still:
            os.kill(group.pid, signal.SIGSTOP)
        try:
            report = self.executor.reconcile(plan_of(groups, self.cpus))
        finally:
            for group in still:
                os.kill(group.pid, signal.SIGCONT)
        self.loaded = True
        assert report.failures == () and report.missing == (), f"{report}\n{self.gangs.log[-3000:]}"
        return report

    def reason(self) -> str:
        """Return why the kernel ejected the scheduler last, "" when it never did."""
        return self.gangs.last_ejection.sentence if self.gangs.last_ejection else ""

    def stats(self, group: Group) -> GangStats:
        """Return the group's counters since it became a gang."""
        found = self.gangs.stats(group.name)
        assert found is not None, f"{group.name} is no gang"
        return found
