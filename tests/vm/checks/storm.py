# SPDX-License-Identifier: Apache-2.0
"""Everything at once that a host may do to its tasks, beside gangs that come and go, on four CPUs.

Each actor is a process that makes one kind of change again and again, so that no actor waits for Python's
lock while another one stands behind a real-time task. A few victims must not suffer: tasks that never sleep,
of nice 0 and in no group, and the thread that watches them.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from gangd.measure.proc import read_thread
from gangd.model.domain import Mode
from vm.checks.inside import host
from vm.checks.inside.check import PATIENCE, note, run, wait_for
from vm.checks.inside.threads import Group, Rig, hog, spinning

CPUS = (0, 1, 2, 3)
SECONDS = float(os.environ.get("GANGD_STORM", "60"))
CHUNK = 50.0  # seconds between two times that a CPU goes
WAIT_MAX = 2.0  # of a victim for a CPU
CGROUPS = Path("/sys/fs/cgroup")
GROUPS = tuple(CGROUPS / f"storm{n}" for n in range(3))
ONLINE = Path("/sys/devices/system/cpu/cpu3/online")
FORKS = "while :; do /bin/true; done"
MESSAGES = "while :; do hackbench -g 1 -f 4 -l 200 >/dev/null; done"
POLICIES = (os.SCHED_OTHER, os.SCHED_BATCH, os.SCHED_IDLE, os.SCHED_FIFO)

rig = Rig(CPUS)
chance = random.Random(1)
FORK = multiprocessing.get_context("fork")
over = FORK.Event()


def act(change: Callable[[], None], pause: float) -> int:
    """Make a change, sleep for so many seconds, and again, until it is over; how often it was made."""
    chance.seed(change.__name__)
    made = 0
    while not over.wait(pause):
        change()
        made += 1
    return made


@contextmanager
def actors(
    here: tuple[Callable[[], None], float], *apart: tuple[Callable[[], None], float]
) -> Iterator[None]:
    """A process for each change and pause, but a thread for the one that needs this process; how often each
    was made is noted. Raises what a change raises."""
    over.clear()
    with ProcessPoolExecutor(len(apart), FORK) as processes, ThreadPoolExecutor(1) as thread:
        acting = {change.__name__: processes.submit(act, change, pause) for change, pause in apart}
        acting[here[0].__name__] = thread.submit(act, *here)
        try:
            yield
        finally:
            over.set()
    note(", ".join(f"{actor.result()} x {name}" for name, actor in acting.items()))


@contextmanager
def shell(command: str) -> Iterator[int]:
    """A shell, and what it starts, of a session of its own; its process id."""
    process = subprocess.Popen(["sh", "-c", command], start_new_session=True, stderr=subprocess.DEVNULL)
    try:
        yield process.pid
    finally:
        os.killpg(process.pid, 9)
        process.wait()


@contextmanager
def groups() -> Iterator[None]:
    """Cgroups with a weight each; the last has a cpu.max."""
    (CGROUPS / "cgroup.subtree_control").write_text("+cpu")
    for group in GROUPS:
        group.mkdir(exist_ok=True)
    (GROUPS[-1] / "cpu.max").write_text("150000 100000")
    try:
        yield
    finally:
        for group in GROUPS:
            for pid in (group / "cgroup.procs").read_text().split():
                (CGROUPS / "cgroup.procs").write_text(pid)
            group.rmdir()


class Changes:
    """The changes that actors make to `toys`, threads that no check watches, and to gangs."""

    def __init__(self, gangs: list[Group], toys: Group) -> None:
        self.gangs, self.toys = gangs, toys

    def policy(self) -> None:
        """A thread gets another scheduling class, now and then real time for a moment."""
        tid, policy = chance.choice(self.toys.tids), chance.choice(POLICIES)
        os.sched_setscheduler(tid, policy, os.sched_param(1 if policy == os.SCHED_FIFO else 0))
        if policy == os.SCHED_FIFO:
            time.sleep(0.05)
            os.sched_setscheduler(tid, os.SCHED_OTHER, os.sched_param(0))

    def affinity(self) -> None:
        """A thread, a gang's included, may run on other CPUs."""
        tid = chance.choice([*self.toys.tids, *self.gangs[0].tids])
        os.sched_setaffinity(tid, chance.sample(CPUS[:3], chance.randint(1, 3)))

    def group(self) -> None:
        """The toys go to another cgroup, whose weight is another."""
        group = chance.choice(GROUPS)
        (group / "cpu.weight").write_text(str(chance.choice((1, 20, 100, 1000, 10000))))
        (group / "cgroup.procs").write_text(str(self.toys.pid))

    def limit(self) -> None:
        """The limit of a cgroup changes."""
        quota = chance.choice(("max", "5000", "50000", "150000"))
        (GROUPS[-1] / "cpu.max").write_text(f"{quota} 100000")

    def marks(self) -> None:
        """Gangs come and go, and change their mode."""
        found = chance.sample(self.gangs, chance.randint(1, len(self.gangs)))
        rig.schedule(*(replace(gang, mode=chance.choice((Mode.RELAXED, Mode.STRICT))) for gang in found))

    def real_time(self) -> None:
        """A real-time task that never sleeps has a CPU for a moment."""
        with hog(chance.choice(CPUS[:3])):
            time.sleep(0.3)


def longest_gap(victims: Group, seconds: float) -> float:
    """Seconds that a victim, all of which want a CPU all the time, went without running, at most."""
    last = {tid: (host.now(), 0.0) for tid in victims.tids}
    end, longest = host.now() + seconds, 0.0
    while host.now() < end:
        before = host.now()
        time.sleep(0.02)
        longest = max(longest, host.now() - before - 0.02)  # of this thread
        for tid, (since, had) in last.items():
            used = read_thread(victims.pid, tid).cpu_seconds or 0.0
            if used > had:
                last[tid] = (host.now(), used)
            longest = max(longest, host.now() - since)
    return longest


def check_nobody_is_lost_in_a_storm() -> None:
    """Beside forks, messages and real-time tasks marks, modes, classes, affinity, cgroups, weights and limits
    change at once, and a CPU goes and comes: no thread that wants a CPU waits for two seconds, and the kernel
    ejects the scheduler only where a CPU goes."""
    with ExitStack() as stack:
        gangs = [stack.enter_context(spinning(name, *CPUS[:width])) for name, width in (("a", 2), ("b", 4))]
        victims = stack.enter_context(spinning("victims", 0, 1))
        toys = stack.enter_context(spinning("toys", *CPUS))
        stack.enter_context(groups())
        for command in (FORKS, MESSAGES):
            stack.enter_context(shell(command))
        changes = Changes(gangs, toys)
        rig.schedule(*gangs)
        end, longest, gone = host.now() + SECONDS, 0.0, 0
        while host.now() < end:
            with actors(
                (changes.marks, 0.5),
                (changes.policy, 0.05),
                (changes.affinity, 0.03),
                (changes.group, 0.1),
                (changes.limit, 0.3),
                (changes.real_time, 2.0),
            ):
                longest = max(longest, longest_gap(victims, min(CHUNK, max(end - host.now(), 1.0))))
            note(f"longest wait {longest:.2f} s")
            rig.gangs.look()
            if rig.gangs.ejections.total() > gone:
                assert rig.gangs.last_ejection
                note("\n".join(rig.gangs.last_ejection.report))
            assert rig.gangs.active, rig.reason()
            assert longest <= WAIT_MAX * PATIENCE
            if host.now() < end:
                ONLINE.write_text("0")
                gone += 1
                ONLINE.write_text("1")
                wait_for(lambda: host.scheduler() == "disabled", 10.0, "the scheduler is ejected")
                rig.gangs.look()
                rig.schedule(*gangs)
    note(f"ejected {rig.gangs.ejections.total()} times; a CPU went {gone} times")
    assert rig.gangs.ejections.total() == gone


def check_unloads_clean() -> None:
    """The scheduler is unloaded with the last gang."""
    assert rig.executor.undo().failures == ()
    assert not rig.gangs.active


if __name__ == "__main__":
    run(__file__, dict(globals()))
