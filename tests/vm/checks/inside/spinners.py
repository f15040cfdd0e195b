# SPDX-License-Identifier: Apache-2.0
"""Threads for gang.ko to schedule, what a boost could leave changed in them, and the module itself."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ParamSpec

from gangd.actuate.gang_ko import Module
from gangd.actuate.gang_setting import CacheSetting, GangSetting, Member
from gangd.model.domain import Mode
from lab.observe.machine import Quiet, between
from vm.checks.inside import host
from vm.checks.inside.check import SHARE, machine, note, wait_for
from vm.checks.inside.threads import SLOT_US, busy, cpu_shares

SECONDS = 3.0
CPUS = [0, 1]
DOMAIN = CacheSetting(tuple(CPUS), SLOT_US)
BAD = re.compile(r"WARNING|BUG|Oops|Call Trace|RIP:|rcu.*stall|lockup|hung|leak|self-test failed")
THROTTLED = re.compile("RT throttling activated")
ONCE = Path("/sys/kernel/debug/clear_warn_once")  # or the kernel says it once since it booted
STOLEN = 0.03  # of the time: slots then end late, and boosts with them
REPEATS = 5
REFRESH = Path("/proc/sys/vm/stat_refresh")

P = ParamSpec("P")


@dataclass(frozen=True)
class Spinning:
    """A process with a thread on each CPU that never sleeps."""

    process: subprocess.Popen[bytes]
    tids: list[int]

    @property
    def setting(self) -> GangSetting:
        """The process as a gang, as the actuator writes it."""
        return gang(self.process.pid, self.tids)


def gang(pid: int, tids: Sequence[int]) -> GangSetting:
    """These threads of a process as a gang, each on a CPU of its own."""
    members = (Member(vcpu, tid, cpu) for vcpu, (tid, cpu) in enumerate(zip(tids, CPUS, strict=False)))
    return GangSetting(0, tuple(members), Mode.RELAXED, pid)


@contextlib.contextmanager
def spinning(count: int = 2) -> Iterator[list[Spinning]]:
    """Start `count` processes, and end them at the exit."""
    with contextlib.ExitStack() as started:
        yield [Spinning(*started.enter_context(busy(len(CPUS)))) for _ in range(count)]


class NoVerdict(AssertionError):
    """The kernel throttled real-time tasks while the VM's CPUs were taken from it: the cause is open."""


def repeated(check: Callable[P, None]) -> Callable[P, None]:
    """The check, made again while it gives no verdict; never a verdict is a failure."""

    @functools.wraps(check)
    def until_quiet(*words: P.args, **named: P.kwargs) -> None:
        for _ in range(REPEATS):
            try:
                return check(*words, **named)
            except NoVerdict as disturbed:
                note(f"no verdict, once more: {disturbed}")
        raise AssertionError(
            f"no verdict: real-time tasks were throttled each of {REPEATS} times, and each time the machine "
            f"was too busy to say that gang.ko is the cause"
        )

    return until_quiet


@contextlib.contextmanager
def loaded(debug: bool = False) -> Iterator[None]:
    """The module, loaded; afterwards unloaded, with nothing in the kernel's log that should not be.

    That boosts last until the kernel ends them is a failure, or no verdict where the VM's CPUs were taken
    from it.
    """
    below = machine()
    if not ONCE.exists():
        host.mount_debugfs()
    ONCE.write_text("1")
    before, quiet = kernel_log(), below.sample()
    subprocess.run(["insmod", str(SHARE / ("gang-debug.ko" if debug else "gang.ko"))], check=True)
    try:
        yield
    finally:
        if Path("/sys/module/gang").exists():
            wait_for(lambda: users() == 0, 5, "nobody uses the module")
            subprocess.run(["rmmod", "gang"], check=True)
    news, noise = kernel_log()[len(before) :], between(quiet, below.sample())
    assert not [line for line in news if BAD.search(line)], "\n".join(news)
    judge_throttling(news, noise)


def judge_throttling(news: list[str], noise: Quiet) -> None:
    """Fail if real-time tasks were throttled; without a verdict if the machine was disturbed meanwhile."""
    if [line for line in news if THROTTLED.search(line)]:
        waited = f"the VM waited {noise.wait_share:.0%} of the time for a CPU of the machine"
        if noise.disturbed(STOLEN):
            raise NoVerdict(f"throttled; {waited}")
        raise AssertionError("\n".join([f"throttled, and {waited}", *news]))


def kernel_log() -> list[str]:
    return subprocess.run(["dmesg"], capture_output=True, text=True, check=True).stdout.splitlines()


def users() -> int:
    """References to the module."""
    return int(Path("/sys/module/gang/refcnt").read_text())


def gangs_on(device: Module, spinners: list[Spinning]) -> None:
    """Each of them a gang over all CPUs."""
    device.set_cache(0, DOMAIN)
    for number, spinner in enumerate(spinners, 1):
        device.set_gang(number, spinner.setting, DOMAIN.columns)


def shares(spinners: list[Spinning]) -> list[float]:
    """Share of each one's run time in which no thread of it waited, says the tracer."""
    with host.traced(tid for spinner in spinners for tid in spinner.tids) as trace:
        time.sleep(SECONDS)
    return [trace.account(spinner.tids).share for spinner in spinners]


def attributes(tid: int) -> tuple[object, ...]:
    """Return every attribute of a thread that a boost could leave changed."""
    stat = Path(f"/proc/{tid}/stat").read_text().rpartition(")")[2].split()
    policy, nice, priority = int(stat[38]), int(stat[16]), int(stat[15])
    flags = os.sched_getscheduler(tid)
    slack = Path(f"/proc/{tid}/timerslack_ns").read_text().strip()
    return policy, nice, priority, int(stat[37]), flags, slack, os.sched_getaffinity(tid)


def realtime() -> set[str]:
    """Names of all real-time threads of the machine."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/task/[0-9]*/stat"):
        with contextlib.suppress(OSError):
            head, _, tail = stat.read_text().rpartition(")")
            if tail.split()[38] in ("1", "2", "6"):
                found.add(head)
    return found


def peculiar(spinners: list[Spinning]) -> None:
    """Give the threads what a boost might forget: nice values, classes, flags, slack."""
    first, second = (spinner.tids for spinner in spinners[:2])
    os.setpriority(os.PRIO_PROCESS, first[0], 5)
    os.sched_setscheduler(first[1], os.SCHED_BATCH, os.sched_param(0))
    os.sched_setscheduler(second[0], os.SCHED_OTHER | os.SCHED_RESET_ON_FORK, os.sched_param(0))
    Path(f"/proc/{second[1]}/timerslack_ns").write_text("70000")


def boosted_seen() -> None:
    """Wait until threads have been boosted, so that the next steps prove something. The module tells: a task
    that looks at the threads runs only while none is boosted, if all CPUs are full of gangs."""
    device = Module()
    wait_for(lambda: device.counters()["boosts"] >= 8, 10, "boosts")
    device.close()


@contextlib.contextmanager
def nothing_left() -> Iterator[list[Spinning]]:
    """Boosted gangs with peculiar threads; afterwards every thread that lives is what it was before."""
    before = realtime()
    with loaded(), spinning() as spinners:
        peculiar(spinners)
        were = {tid: attributes(tid) for spinner in spinners for tid in spinner.tids}
        yield spinners
        for tid, was in were.items():
            if Path(f"/proc/{tid}/stat").exists():
                assert attributes(tid) == was, tid
        assert {name for name in realtime() if "gang/" not in name} <= before, realtime() - before


def hog(stack: contextlib.ExitStack, nice: int) -> tuple[int, int]:
    """Return the process and thread of one that spins, on any CPU."""
    process, (tid,) = stack.enter_context(busy(1))
    os.sched_setaffinity(tid, CPUS)
    os.setpriority(os.PRIO_PROCESS, tid, nice)
    return process.pid, tid


def kept(
    gang: list[tuple[int, int]], others: list[tuple[int, int]], of_gang: Callable[[list[float]], float] = min
) -> tuple[float, float]:
    """Return the CPUs that `of_gang` says of the gang's threads (of the slowest), and those of all others."""
    found = cpu_shares([*gang, *others], 2 * SECONDS)
    return of_gang(found[: len(gang)]), sum(found[len(gang) :])


def unreclaimable() -> int:
    """KiB of memory of the kernel's that nothing but its user can free."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("SUnreclaim:"))


@contextlib.contextmanager
def one_cgroup(pid: int) -> Iterator[Path]:
    """A process in a cgroup of its own."""
    cgroup = Path("/sys/fs/cgroup/fuzzed")
    cgroup.mkdir()
    (cgroup / "cgroup.procs").write_text(str(pid))
    try:
        yield cgroup
    finally:
        (cgroup.parent / "cgroup.procs").write_text(str(pid))
        cgroup.rmdir()


def refresh_waits(count: int) -> list[float]:
    """Seconds that each read of vm.stat_refresh took, which has a kworker of every CPU run and waits for all
    (mm/vmstat.c). The reader is real-time, so that it does not wait itself."""
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(60))
    try:
        found = []
        for _ in range(count):
            begin = host.now()
            REFRESH.read_bytes()
            found.append(host.now() - begin)
            time.sleep(0.007)
        return found
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
