# SPDX-License-Identifier: Apache-2.0
"""Checks of running gangs on a hostile host, without systemd, libvirt or the daemon.

The host brings real-time tasks, CPUs that go, a loader that is killed, a thousand changes. Every thread runs
on in all of them, and a scheduler that the kernel ejected is loaded again.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from gangd.actuate import sched_ext
from gangd.actuate.gang import Gangs
from gangd.model.domain import Mode
from vm.checks.inside import host
from vm.checks.inside.check import SHARE, note, run, wait_for
from vm.checks.inside.threads import SLOT_US, Group, Rig, cpu_shares, hog, spinning

CPUS = (0, 1)
WHOLE = 0.8  # of a gang's turns
SHARE_SECONDS = 4.0
HOG_SECONDS = 4.0
PULSE_SECONDS = 0.01
PULSE_WAIT_MAX = 0.5
WATCHDOG_SECONDS = 10.0  # of the scheduler (timeout_ms)
TOGGLES, WARM_UP = 1000, 100
LOADS, LOAD_WAIT_MAX = 4, 1.0
CROWD = """
import os, threading, time
for _ in range(1000):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
for cpu in (0, 1):
    if not os.fork():
        os.sched_setaffinity(0, {cpu})
        while True:
            time.sleep(0.0002)
print("ready", flush=True)
threading.Event().wait()
"""
RSS_GROWTH_MAX = 1 << 20
TOGGLE_SECONDS_MAX = 0.05
ONLINE = Path("/sys/devices/system/cpu/cpu1/online")
EXT_SERVER = Path("/sys/kernel/debug/sched/ext_server")


class Attach(sched_ext.Predecessor):
    """Notes when the scheduler is about to be attached: the verifier is done, no task has moved yet."""

    waited = 0.0  # by us for a CPU, until then

    def end(self) -> None:
        self.waited = host.run_delay(*ourselves())


attach = Attach()
rig = Rig(CPUS, Gangs(SLOT_US, [sched_ext.backend(before=attach)]))
stack = contextlib.ExitStack()
kept: list[Group] = []


def groups() -> list[Group]:
    """The two gangs of all checks, scheduled."""
    if not kept:
        kept.extend(stack.enter_context(spinning(name, *CPUS)) for name in ("a", "b"))
    rig.schedule(*kept)
    return kept


def used(seconds: float, *found: Group) -> list[list[float]]:
    """CPU time of every thread within some seconds."""
    before = [group.cpu_seconds() for group in found]
    time.sleep(seconds)
    after = [group.cpu_seconds() for group in found]
    return [[b - a for a, b in zip(*pair, strict=True)] for pair in zip(before, after, strict=True)]


def run_on(seconds: float, *found: Group) -> float:
    """Return the seconds until every thread has got CPU time."""
    before = [group.cpu_seconds() for group in found]

    def all_ran() -> bool:
        now = [group.cpu_seconds() for group in found]
        return all(b > a for old, new in zip(before, now, strict=True) for a, b in zip(old, new, strict=True))

    return wait_for(all_ran, seconds, "every thread has run")


def whole(group: Group, seconds: float) -> float:
    """Return the share of the gang's turns in which all of its threads were on CPU at once."""
    before = rig.stats(group)
    time.sleep(seconds)
    after = rig.stats(group)
    assert after.turns - before.turns > 10
    return (after.whole - before.whole) / (after.turns - before.turns)


@contextlib.contextmanager
def stopped(*found: Group) -> Iterator[None]:
    """Gangs without a runnable member: their CPUs are idle."""
    for group in found:
        os.kill(group.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for group in found:
            os.kill(group.pid, signal.SIGCONT)


def check_ordinary_tasks_have_their_fair_share() -> None:
    """Ordinary tasks beside a gang have what they would have beside ordinary tasks: each thread has half of
    a CPU, within a twentieth, whether the gang has turns or waits for a trial (`balance`)."""
    gang, others = groups()
    for mode in (Mode.RELAXED, Mode.BALANCE):
        rig.schedule(replace(gang, mode=mode))
        fair_shares(f"a gang that is {mode.value}", gang, others)


def check_a_gang_may_be_bound_to_cpus() -> None:
    """A gang whose members are bound to a CPU each, by hand, gets on beside one that is not, and that one
    beside it: no thread has less than half of its fair share."""
    bound, free = groups()
    bound.pin()
    try:
        fair_shares("a gang bound by hand, and another", bound, free, within=0.5)
    finally:
        bound.let_go()


def long_it_loads_beside_tasks_that_never_sleep() -> None:
    """Tasks that keep every CPU busy, and are moved to the scheduler after the one that loads it, cannot keep
    that off its CPU meanwhile: it waits for one for less than a second in all."""
    rig.schedule()
    before = rig.reason()
    with spinning("new", *CPUS) as new, stopped(new):
        note(f"loaded in {loading(new)} while every CPU is idle")
    with crowd(), spinning("new", *CPUS) as new, spinning("newer", *CPUS), urgent():
        for _ in range(LOADS):
            spent = loading(new)
            note(f"loaded in {spent}")
            assert spent.moving < LOAD_WAIT_MAX, f"waited {spent.moving:.2f} s for a CPU"
    assert rig.reason() == before


@dataclass(frozen=True)
class Loading:
    """The seconds that a load and the unload after it took. waited: for a CPU, while the verifier works as
    any ordinary task does; moving: for one while tasks are moved, which is what they can do to us; used:
    mostly by the verifier; asleep: mostly in synchronize_rcu(), before anything changes for any task, which
    takes as long as the kernel has callbacks to do."""

    load: float
    waited: float
    moving: float
    used: float
    unload: float

    @property
    def asleep(self) -> float:
        return self.load - self.used - self.waited

    def __str__(self) -> str:
        return (f"{self.load:.2f} s, {self.used:.2f} on a CPU, {self.waited:.2f} waiting for one "
                f"({self.moving:.3f} while tasks are moved), "
                f"{self.asleep:.2f} asleep; unloaded in {self.unload:.2f} s")  # fmt: skip


def loading(group: Group) -> Loading:
    """Load the scheduler for a gang, and unload it again."""
    we = ourselves()
    begin, used, waited = host.now(), time.thread_time(), host.run_delay(*we)
    rig.schedule(group)
    loaded, used, after = host.now(), time.thread_time() - used, host.run_delay(*we)
    rig.schedule()
    return Loading(loaded - begin, after - waited, after - attach.waited, used, host.now() - loaded)


def ourselves() -> tuple[int, int]:
    """Return the process and thread that loads."""
    return os.getpid(), threading.get_native_id()


@contextlib.contextmanager
def urgent() -> Iterator[None]:
    """We come first among ordinary tasks: the verifier works in our time."""
    os.setpriority(os.PRIO_PROCESS, 0, -20)
    try:
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, 0)


@contextlib.contextmanager
def crowd() -> Iterator[None]:
    """A process with so many threads that to move all takes a while, in which others of it wake."""
    words = [sys.executable, "-W", "ignore", "-c", CROWD]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def fair_shares(what: str, *found: Group, within: float = 0.05) -> None:
    """Every thread gets what it would among ordinary tasks."""
    time.sleep(0.5)
    had = cpu_shares([(group.pid, tid) for group in found for tid in group.tids], SHARE_SECONDS)
    note(f"{what}: {', '.join(f'{share:.3f}' for share in had)} CPUs")
    due = len(CPUS) / len(had)
    assert all(abs(share / due - 1) <= within for share in had)


@contextlib.contextmanager
def pulse(cpu: int) -> Iterator[tuple[int, Callable[[], float]]]:
    """A task that wakes every 10 ms, on one CPU until the body lets it go; tells the longest it waited."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        longest, last = 0.0, time.monotonic()
        while True:
            time.sleep(PULSE_SECONDS)
            now = time.monotonic()
            if now - last > longest:
                longest = now - last
                os.write(writer, f"{longest}\n".encode())
            last = now
    os.sched_setaffinity(pid, {cpu})
    try:
        yield pid, lambda: float(os.read(reader, 1 << 16).split()[-1])
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(reader)
        os.close(writer)


def beside_hog(body: Callable[[], None]) -> float:
    """Run `body` while CPU 1 is taken; return the longest wait of a task that slept there."""
    with pulse(1) as (pid, waited):
        os.sched_setaffinity(0, {0})  # this process ends the hog: it must not wait behind it
        try:
            with hog(1):
                time.sleep(0.1)  # it waits there when it may go elsewhere
                os.sched_setaffinity(pid, CPUS)
                time.sleep(0.5)
                body()
        finally:
            os.sched_setaffinity(0, CPUS)
        time.sleep(0.1)
        return waited()


def check_real_time_hog_on_one_cpu() -> None:
    """A real-time task takes one CPU for some seconds: the members share the other CPU meanwhile, each with
    at least half of a fair share, an ordinary task that waits behind it is run there too, be that CPU busy
    with gangs or idle, and with the task gone their turns are whole as before. The scheduler stays in."""
    found = groups()
    ejections = rig.gangs.ejections.total()
    ran: list[list[float]] = []
    waits = [beside_hog(lambda: ran.extend(used(HOG_SECONDS, *found)))]
    with stopped(*found):
        waits += [beside_hog(lambda: time.sleep(1.0)) for _ in range(2)]
    note(
        "an ordinary task that asks every 10 ms waited at most "
        + ", ".join(f"{w * 1e3:.0f} ms" for w in waits)
    )
    assert max(waits) <= PULSE_WAIT_MAX
    for group, each in zip(found, ran, strict=True):
        note(f"{group.name}, beside the task: {', '.join(f'{seconds:.2f} s' for seconds in each)}")
    least = HOG_SECONDS / sum(map(len, ran)) / 2
    assert all(seconds >= least for each in ran for seconds in each)
    run_on(5.0, *found)
    rig.gangs.look()
    assert rig.gangs.ejections.total() == ejections, rig.reason()
    shares = [whole(group, 1.5) for group in found]
    note("turns whole afterwards: " + ", ".join(f"{share:.1%}" for share in shares))
    assert min(shares) >= WHOLE


def check_stalled_task_ejects() -> None:
    """A member that is bound to a CPU, and cannot run there for as long as the kernel's watchdog waits, gets
    the scheduler ejected: every thread is back on the default class and gets CPU although the cause is still
    there, the reason is kept, and with the cause gone the next pass loads the scheduler again.

    Where sched_ext has a deadline server (Linux 7.0) no real-time task keeps a member off its CPU for that
    long: the scheduler stays, and every thread gets on, again and again."""
    found = groups()
    found[0].pin()
    try:
        stalled(found)
    finally:
        found[0].let_go()
    groups()
    assert host.scheduler() == "enabled"
    assert whole(found[0], 1.5) >= WHOLE


def stalled(found: list[Group]) -> None:
    """Every thread runs beside a real-time task on CPU 1: by the ext server, or as the kernel ejects us."""
    patience = 2.5 * WATCHDOG_SECONDS
    if EXT_SERVER.exists():
        with hog(1):
            waits = [run_on(WATCHDOG_SECONDS / 2, *found) for _ in range(5)]
            time.sleep(patience)
            waits += [run_on(WATCHDOG_SECONDS / 2, *found) for _ in range(5)]
            assert host.scheduler() == "enabled"
        note(f"never ejected; every thread has run within {max(waits):.1f} s, ten times")
        return
    with hog(1):
        seconds = wait_for(lambda: host.scheduler() == "disabled", patience, "the scheduler is ejected")
        note(f"ejected after {seconds:.1f} s; threads have run {run_on(10.0, *found):.1f} s later")
    rig.gangs.look()
    note(rig.reason())
    # whichever the kernel finds first: a member in the queue, or its own watchdog behind the task
    assert re.search(r"failed to (run|check in) for", rig.reason())


def check_cpu_goes_and_comes() -> None:
    """A CPU is taken offline under running gangs: the kernel ejects the scheduler, every thread runs on, and
    with the CPU back the next pass loads it and the gangs' turns are whole."""
    found = groups()
    before = rig.gangs.ejections.total()
    ONLINE.write_text("0")
    try:
        wait_for(lambda: host.scheduler() == "disabled", 10, "the scheduler is ejected")
        run_on(5.0, *found)
    finally:
        ONLINE.write_text("1")
    rig.gangs.look()
    note(rig.reason())
    assert rig.gangs.ejections.total() == before + 1
    groups()
    assert host.scheduler() == "enabled"
    assert whole(found[0], 1.5) >= WHOLE


def check_a_thousand_toggles() -> None:
    """A gang is dissolved and made again a thousand times beside another that runs on: the kernel ejects no
    scheduler, no thread is stranded, a change takes milliseconds, and this process does not grow."""
    found = groups()
    turns, ejections = rig.stats(found[1]).turns, rig.gangs.ejections.total()
    # An ordinary task waits for its share of the CPUs; how long a change takes should be its own time.
    os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    times, rss = [], 0
    try:
        for number in range(TOGGLES):
            if number == WARM_UP:
                rss = resident()
            begin = time.monotonic()
            rig.schedule(*(found[1:] if number % 2 == 0 else found))
            times.append(time.monotonic() - begin)
            time.sleep(0.005)
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    grown = resident() - rss
    note(f"a change took {statistics.median(times) * 1e3:.1f} ms, the longest {max(times) * 1e3:.0f} ms; "
         f"the process grew by {grown / 1024:.0f} KiB")  # fmt: skip
    rig.gangs.look()
    assert rig.gangs.ejections.total() == ejections, rig.reason()
    assert rig.stats(found[1]).turns > turns
    assert grown <= RSS_GROWTH_MAX
    assert statistics.median(times) <= TOGGLE_SECONDS_MAX
    run_on(5.0, *found)
    assert whole(found[0], 1.5) >= WHOLE


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def check_loader_is_killed() -> None:
    """After kill -9 of the process that loaded the scheduler the kernel removes it within a second, with all
    that belongs to it, and every thread runs on."""
    found = groups()
    assert rig.executor.undo().failures == ()
    assert host.scheduler() == "disabled"
    orphan = found[0]
    words = ",".join(map(str, (orphan.pid, *orphan.tids)))
    loader = subprocess.Popen([sys.executable, "-m", "vm.checks.inside.loader", words],
                              stdout=subprocess.PIPE, text=True)  # fmt: skip
    assert loader.stdout is not None
    assert loader.stdout.readline() == "ready\n"
    assert host.scheduler() == "enabled"
    loader.kill()
    loader.wait()
    seconds = wait_for(lambda: host.scheduler() == "disabled", 1, "the scheduler is out")
    note(f"out within {seconds:.1f} s, threads have run after {run_on(5.0, *found):.1f} s")
    wait_for(lambda: not host.our_programs(), 10, "nothing of ours is in the kernel")
    stack.close()


if __name__ == "__main__":
    assert (SHARE / "spin").exists()
    run(__file__, dict(globals()))
