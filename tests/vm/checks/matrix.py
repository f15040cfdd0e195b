# SPDX-License-Identifier: Apache-2.0
"""Gangs of several widths on four CPUs, without systemd, libvirt or the daemon.

In virtual time: the machine underneath may have fewer CPUs than that, and they would not run side by side.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from gangd import bpf
from gangd.actuate import preflight, sched_ext
from gangd.model.domain import Mode
from vm.checks.inside import host
from vm.checks.inside.check import note, run
from vm.checks.inside.threads import Group, Rig, cpu_shares, plan_of, spinning

CPUS = (0, 1, 2, 3)
SECONDS, WINDOWS = 4.0, 3
WITHIN = 0.05  # of its fair share every thread has what it is due
WHOLE = 0.8  # of a gang's turns
CGROUPS = Path("/sys/fs/cgroup")

rig = Rig(CPUS)


def shares(*groups: Group, seconds: float = SECONDS) -> dict[str, list[float]]:
    """CPUs that each thread has within some seconds, by group."""
    time.sleep(0.5)
    each = iter(cpu_shares([(group.pid, tid) for group in groups for tid in group.tids], seconds))
    found = {group.name: [next(each) for _ in group.tids] for group in groups}
    for name, had in found.items():
        note(f"{name}: {', '.join(f'{share:.3f}' for share in had)} CPUs")
    rig.gangs.look()
    assert rig.gangs.active, rig.reason()
    return found


def fair(*groups: Group, seconds: float = SECONDS) -> None:
    """Fail unless every thread, as gangs, has its fair share of the CPUs, of which there are too few."""
    rig.schedule(*groups)
    found = shares(*groups, seconds=seconds)
    due = len(CPUS) / sum(map(len, found.values()))
    assert all(abs(share / due - 1) <= WITHIN for each in found.values() for share in each)


def check_two_gangs_side_by_side() -> None:
    """Two gangs for which there is a CPU for every member both run all the time, side by side, and four of
    five of their turns are whole."""
    with spinning("left", 0, 1) as left, spinning("right", 2, 3) as right:
        rig.schedule(left, right)
        before = [rig.stats(group) for group in (left, right)]
        found = shares(left, right)
        after = [rig.stats(group) for group in (left, right)]
    assert all(share >= 1 - WITHIN for each in found.values() for share in each)
    for one, two in zip(before, after, strict=True):
        turns, whole = two.turns - one.turns, two.whole - one.whole
        note(f"{whole} of {turns} turns whole")
        assert turns > 20 and whole >= WHOLE * turns


def check_odd_gangs() -> None:
    """Two gangs of three on four CPUs both get on: every thread has its fair share, two thirds of a CPU,
    within a twentieth, and no CPU is left idle beside them."""
    with spinning("low", 0, 1, 2) as low, spinning("high", 1, 2, 3) as high:
        fair(low, high)


def check_one_wide_and_two_narrow_gangs() -> None:
    """Beside two narrow gangs a gang as wide as the host has, as they have, a fair share for every thread,
    within a twentieth."""
    with spinning("wide", *CPUS) as wide, spinning("left", 0, 1) as left, spinning("right", 2, 3) as right:
        fair(wide, left, right)


def check_more_vcpus_than_cpus() -> None:
    """Every thread of a gang with more vCPUs than CPUs has its fair share, within a twentieth: none is left
    behind, and another gang has its own."""
    with spinning("crowd", *CPUS, 0, 1) as crowd, spinning("other", *CPUS) as other:
        fair(crowd, other, seconds=2 * SECONDS)


@contextlib.contextmanager
def apart(*groups: Group, above: Path = CGROUPS) -> Iterator[None]:
    """Each of these processes is in a cgroup of its own below `above` while the body runs."""
    (CGROUPS / "cgroup.subtree_control").write_text("+cpu")
    for group in groups:
        (above / group.name).mkdir(parents=True)
        (above / group.name / "cgroup.procs").write_text(str(group.pid))
    try:
        yield
    finally:
        for group in groups:
            (CGROUPS / "cgroup.procs").write_text(str(group.pid))
            (above / group.name).rmdir()
        if above != CGROUPS:
            above.rmdir()


def beside(group: Group, others: Sequence[Group]) -> host.Beside:
    """Watch a gang for some seconds."""
    tids = [tid for one in (group, *others) for tid in one.tids]
    with host.traced(tids) as trace:
        time.sleep(SECONDS)
    return trace.beside(group.tids, [tid for one in others for tid in one.tids])


def refused(*strict: Group) -> bool:
    """True if this kernel's CPUs cannot be kicked: strict gangs are refused there, all of them."""
    if not preflight.must_push(bpf):
        return False
    report = rig.executor.reconcile(plan_of([replace(group, mode=Mode.STRICT) for group in strict], CPUS))
    note("; ".join(report.failures))
    assert len(report.failures) == len(strict)
    assert all(sched_ext.NO_STRICT in failure for failure in report.failures)
    return True


def check_strict_keeps_a_core_in_one_guest() -> None:
    """Beside a strict gang's member no other task is on its core for longer than a switch takes, no gang's
    member and no ordinary task, which may be the vCPU of a guest that is not marked; all threads get on, and
    of a thousand handovers of a core at most one was too early; a relaxed gang shares. Where CPUs cannot be
    kicked strict is refused."""
    with (
        spinning("narrow", 2) as narrow,
        spinning("core", 0, 1) as core,
        spinning("wide", *CPUS) as wide,
        spinning("ordinary", 0) as ordinary,
    ):
        if refused(narrow, core):
            return
        everybody = (narrow, core, wide, ordinary)
        rig.schedule(wide, narrow, core)
        time.sleep(0.5)
        relaxed = beside(narrow, [core, wide, ordinary])
        note(f"relaxed narrow: {relaxed}")
        assert relaxed.share > 0.5
        rig.schedule(wide, replace(narrow, mode=Mode.STRICT), replace(core, mode=Mode.STRICT))
        time.sleep(0.5)
        for group in (narrow, core):
            watched = beside(group, [other for other in everybody if other is not group])
            note(f"strict {group.name}: {watched}")
            watched.no_longer_than_a_switch()
            assert watched.ran >= 0.2 * SECONDS * len(group.tids)
        found = shares(*everybody)
    counters = rig.gangs.counters()
    note(f"{counters['core_waits']} times a CPU waited for its core, {counters['core_shared']} times in vain")
    assert counters["core_shared"] * 1000 <= counters["core_waits"] > 0
    assert min(share for each in found.values() for share in each) >= 0.2


def check_strict_gangs_bound_by_hand() -> None:
    """Threads of strict gangs that are bound to a CPU each have about half of it beside a wide gang that is
    bound, too, as that has: a CPU that waits for its core runs another task that is bound there meanwhile."""
    with (
        spinning("narrow", 2, pinned=True) as narrow,
        spinning("core", 0, 1, pinned=True) as core,
        spinning("wide", *CPUS, pinned=True) as wide,
    ):
        if refused(narrow, core):
            return
        rig.schedule(wide, replace(narrow, mode=Mode.STRICT), replace(core, mode=Mode.STRICT))
        found = shares(narrow, core, wide)
    assert min(share for each in found.values() for share in each) >= 0.4


def check_weights_hold_where_all_cpus_choose_at_once() -> None:
    """Ticks come to all CPUs at once, and each looks for its next task; a group of weight 100 beside one of
    10000 and a gang, each as wide as the host, has its twenty-seventh of a CPU, not half as much again."""
    with (
        spinning("gang", *CPUS) as gang,
        spinning("light", *CPUS) as light,
        spinning("heavy", *CPUS) as heavy,
        apart(light, heavy),
    ):
        (CGROUPS / "heavy/cpu.weight").write_text("10000")
        rig.schedule(gang)
        found = shares(gang, light, heavy, seconds=WINDOWS * SECONDS)
    assert sum(found["light"]) <= 0.06 and sum(found["heavy"]) >= 3.75


def check_a_gang_borrows_no_more_than_its_budget() -> None:
    """A gang as wide as the host is whole only while it borrows the CPU of a busy task that is owed one all
    the time, within its budget: the task keeps 0.95 of it."""
    with (
        spinning("gang", *CPUS) as gang,
        spinning("owed", 0) as owed,
        apart(gang, owed),
    ):
        rig.schedule(gang)
        found = shares(gang, owed, seconds=WINDOWS * SECONDS)
    assert sum(found["owed"]) >= 0.95


def check_turns_follow_a_task_into_a_group_that_gets_weights() -> None:
    """`cpu` in the subtree_control of a group moves the tasks of its children into groups with weights of
    their own, of which the kernel tells no scheduler: 3:1 is met within 5 % from then on, 1:1 before."""
    above = CGROUPS / "weighed"
    with (
        spinning("gang", 2, 3, pinned=True) as gang,
        spinning("heavy", 0, pinned=True) as heavy,
        spinning("light", 0, pinned=True) as light,
        apart(heavy, light, above=above),
    ):
        rig.schedule(gang)
        alike = ratio(heavy, light)
        (above / "cgroup.subtree_control").write_text("+cpu")
        (above / "heavy/cpu.weight").write_text("300")
        uneven = ratio(heavy, light)
    note(f"{alike:.3f} without weights, {uneven:.3f} with 300 and 100")
    assert abs(alike - 1) <= 0.05 and abs(uneven / 3 - 1) <= 0.05


def ratio(one: Group, two: Group) -> float:
    """CPU time of one over that of the other: the median of three windows of some seconds."""
    time.sleep(0.5)
    found = []
    for _ in range(WINDOWS):
        before = sum(one.cpu_seconds()), sum(two.cpu_seconds())
        time.sleep(SECONDS)
        found.append((sum(one.cpu_seconds()) - before[0]) / (sum(two.cpu_seconds()) - before[1]))
    note(", ".join(f"{value:.3f}" for value in found))
    return statistics.median(found)


def check_unloads_clean() -> None:
    """The scheduler goes with the last gang."""
    assert rig.executor.undo().failures == ()
    assert not rig.gangs.active


if __name__ == "__main__":
    run(__file__, dict(globals()))
