# SPDX-License-Identifier: Apache-2.0
"""Slots of several widths on four CPUs, without systemd, libvirt or the daemon.

In virtual time: the machine underneath may have fewer CPUs than that, and they would not run side by side.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import host
from check import note, run
from threads import SLOT_US, Group, Rig, plan_of, spinning

from gangd import bpf
from gangd.actuate import preflight, sched_ext
from gangd.actuate.gang import Gangs
from gangd.model.domain import Mode

CPUS = (0, 1, 2, 3)
SECONDS = 4.0
CGROUPS = Path("/sys/fs/cgroup")
HANDOVER = (0.0002, 4)  # seconds a handover of a core takes at most; how many of them a second

rig = Rig(CPUS)


def observed(*groups: Group) -> dict[str, dict[str, float]]:
    """What each did within some seconds; `least` is the CPU time of its slowest thread."""
    rig.schedule(*groups)
    time.sleep(0.5)
    before = {group.name: (rig.stats(group), group.cpu_seconds()) for group in groups}
    time.sleep(SECONDS)
    found = {}
    for group in groups:
        (one, early), two, late = before[group.name], rig.stats(group), group.cpu_seconds()
        used = [b - a for a, b in zip(early, late, strict=True)]
        found[group.name] = {
            "slots": two.slots - one.slots,
            "costarted": (two.costarted - one.costarted) / max(1, two.slots - one.slots),
            "used": sum(used),
            "least": min(used),
            "most": max(used),
            "filler": two.filler_seconds - one.filler_seconds,
        }
        note(f"{group.name}: " + ", ".join(f"{key} {value:.2f}" for key, value in found[group.name].items()))
    rig.gangs.look()
    assert rig.gangs.active, rig.reason()
    return found


def check_two_gangs_in_one_row() -> None:
    """Two gangs on different CPUs share every slot: both run all the time, side by side, and neither has to
    be a filler in the other's slot for that."""
    with spinning("left", 0, 1) as left, spinning("right", 2, 3) as right:
        found = observed(left, right)
    for figures in found.values():
        assert figures["slots"] > 20
        assert figures["costarted"] >= 0.9
        assert figures["least"] >= 0.75 * SECONDS
        assert figures["filler"] <= 0.1 * figures["used"]


def check_odd_gangs() -> None:
    """Gangs of three on four CPUs, which share two of them, take turns: each is co-started, both get on
    alike, and where only one has a member that one may run all the time."""
    with spinning("low", 0, 1, 2) as low, spinning("high", 1, 2, 3) as high:
        found = observed(low, high)
    slots = [figures["slots"] for figures in found.values()]
    assert min(slots) >= 0.4 * sum(slots)
    for figures in found.values():
        assert figures["costarted"] >= 0.9
        assert figures["least"] >= 0.35 * SECONDS
        assert figures["most"] >= 0.75 * SECONDS


def check_one_wide_and_two_narrow_gangs() -> None:
    """A gang over all CPUs takes turns with two narrow ones, which run together in the other slots."""
    with spinning("wide", *CPUS) as wide, spinning("left", 0, 1) as left, spinning("right", 2, 3) as right:
        found = observed(wide, left, right)
    for figures in found.values():
        assert figures["costarted"] >= 0.9
        assert figures["least"] >= 0.35 * SECONDS


def check_more_vcpus_than_cpus() -> None:
    """A gang with more vCPUs than CPUs has the slots of one gang: vCPUs that share a CPU take turns there,
    none is left behind, and another gang still has its half."""
    with spinning("crowd", *CPUS, 0, 1) as crowd, spinning("other", *CPUS) as other:
        rig.schedule(crowd, other)
        time.sleep(0.5)
        early, others = crowd.cpu_seconds(), other.cpu_seconds()
        time.sleep(2 * SECONDS)
        used = [b - a for a, b in zip(early, crowd.cpu_seconds(), strict=True)]
        rest = sum(other.cpu_seconds()) - sum(others)
        note("crowd: " + ", ".join(f"CPU {c} {s:.2f} s" for c, s in zip(crowd.cpus, used, strict=True)))
        note(f"other: {rest:.2f} s")
        for alone, first, second in ((2, 0, 4), (3, 1, 5)):
            assert min(used[first], used[second]) >= 0.35 * (used[first] + used[second])
            assert min(used[first], used[second]) >= 0.2 * used[alone]
        assert 0.4 <= rest / (rest + sum(used)) <= 0.6


def beside(group: Group, others: Sequence[Group]) -> host.Beside:
    """Watch a gang for some seconds."""
    tids = [tid for one in (group, *others) for tid in one.tids]
    with host.traced(tids) as trace:
        time.sleep(SECONDS)
    return trace.beside(group.tids, [tid for one in others for tid in one.tids])


def refused(*strict: Group, by: Rig = rig) -> bool:
    """Whether this is a kernel whose CPUs cannot be kicked: strict gangs are refused there, all of them."""
    if not preflight.must_push(bpf):
        return False
    report = by.executor.reconcile(plan_of([replace(group, mode=Mode.STRICT) for group in strict], CPUS))
    note("; ".join(report.failures))
    assert len(report.failures) == len(strict)
    assert all(sched_ext.NO_STRICT in failure for failure in report.failures)
    return True


def check_strict_keeps_a_core_in_one_guest() -> None:
    """While a member of a strict gang runs, no other guest runs on its core for longer than a switch takes,
    also where the gang has but one of the core's CPUs and while slots change, and of a hundred handovers of a
    core at most one was too early; a relaxed gang shares. All of them get on. Where CPUs cannot be kicked
    strict is refused."""
    with (
        spinning("narrow", 2) as narrow,
        spinning("core", 0, 1) as core,
        spinning("wide", *CPUS) as wide,
    ):
        if refused(narrow, core):
            return
        seen = {}
        for mode in (Mode.RELAXED, Mode.STRICT):
            rig.schedule(wide, replace(narrow, mode=mode), replace(core, mode=mode))
            time.sleep(0.5)
            for group, others in ((narrow, [core, wide]), (core, [narrow, wide])):
                seen[mode, group.name] = watched = beside(group, others)
                note(f"{mode.value} {group.name}: {watched}")
                assert watched.ran >= 0.3 * SECONDS * len(group.tids)
        found = observed(wide, replace(narrow, mode=Mode.STRICT), replace(core, mode=Mode.STRICT))
    counters = rig.gangs.counters()
    note(f"{counters['core_waits']} times a CPU waited for its core, {counters['core_shared']} times in vain")
    assert counters["core_shared"] * 100 <= counters["core_waits"] > 0
    assert all(figures["slots"] > 20 and figures["costarted"] >= 0.9 for figures in found.values())
    assert seen[Mode.RELAXED, "narrow"].share > 0.5
    for name in ("narrow", "core"):
        seen[Mode.STRICT, name].no_longer_than_a_switch()


def check_strict_keeps_ordinary_tasks_out() -> None:
    """An ordinary task may be the vCPU of a guest that is not marked: it does not run on a strict gang's core
    while a member does, for longer than a switch takes, and still has its share. Where CPUs cannot be kicked
    strict is refused."""
    with spinning("strict", 0, 1) as strict, spinning("ordinary", *CPUS) as ordinary:
        if refused(strict):
            return
        rig.schedule(replace(strict, mode=Mode.STRICT))
        time.sleep(0.5)
        before = ordinary.cpu_seconds()
        watched = beside(strict, [ordinary])
        used = [b - a for a, b in zip(before, ordinary.cpu_seconds(), strict=True)]
    note(f"{watched}; ordinary tasks: {', '.join(f'{s:.2f} s' for s in used)}")
    watched.no_longer_than_a_switch()
    assert min(used) > 0.2 * SECONDS and watched.ran > 0.4 * SECONDS


def check_unloads_clean() -> None:
    """With the last of them the scheduler goes."""
    assert rig.executor.undo().failures == ()
    assert not rig.gangs.active


def check_strict_turns_keep_a_core_in_one_guest() -> None:
    """The same promise by the scheduler of turns, on which no member has a CPU of its own: beside a strict
    gang's member nobody is on its core for longer than a switch takes, no gang's member and no ordinary
    task, and everybody gets on. Two that come to a core at once both begin, and one is sent away: that is
    an interrupt and a switch, up to 108 us with the tracer on, up to twice a second."""
    turns = Rig(CPUS, Gangs(SLOT_US, [sched_ext.backend(program="turns")]))
    with (
        spinning("narrow", 2, pinned=False) as narrow,
        spinning("core", 0, 1, pinned=False) as core,
        spinning("wide", *CPUS, pinned=False) as wide,
        spinning("ordinary", 0, pinned=False) as ordinary,
    ):
        if refused(narrow, core, by=turns):
            return
        turns.schedule(wide, replace(narrow, mode=Mode.STRICT), replace(core, mode=Mode.STRICT))
        time.sleep(0.5)
        everybody = (narrow, core, wide, ordinary)
        for group in (narrow, core):
            watched = beside(group, [other for other in everybody if other is not group])
            note(f"strict {group.name}: {watched}")
            watched.no_longer_than_a_switch(*HANDOVER)
            assert watched.ran >= 0.2 * SECONDS * len(group.tids)
        before = [group.cpu_seconds() for group in everybody]
        time.sleep(SECONDS)
        least = SECONDS
        for group, early in zip(everybody, before, strict=True):
            used = [late - was for was, late in zip(early, group.cpu_seconds(), strict=True)]
            note(f"{group.name}: {', '.join(f'{seconds:.2f}' for seconds in used)} s of {SECONDS:.0f}")
            least = min(least, *used)
    counters = turns.gangs.counters()
    note(f"{counters['core_waits']} times a CPU waited for its core, {counters['core_shared']} times in vain")
    assert counters["core_shared"] * 100 <= counters["core_waits"] > 0
    assert least >= 0.2 * SECONDS
    assert turns.executor.undo().failures == ()


def check_turns_follow_a_task_into_a_group_that_gets_weights() -> None:
    """`cpu` in the subtree_control of a group moves the tasks of its children into groups with weights of
    their own, of which the kernel tells no scheduler: 3:1 is met within 5 % from then on, 1:1 before."""
    turns = Rig(CPUS, Gangs(SLOT_US, [sched_ext.backend(program="turns")]))
    above = CGROUPS / "weighed"
    with spinning("gang", 2, 3) as gang, spinning("heavy", 0) as heavy, spinning("light", 0) as light:
        (CGROUPS / "cgroup.subtree_control").write_text("+cpu")
        for group in (heavy, light):
            (above / group.name).mkdir(parents=True)
            (above / group.name / "cgroup.procs").write_text(str(group.pid))
        turns.schedule(gang)
        alike = ratio(heavy, light)
        (above / "cgroup.subtree_control").write_text("+cpu")
        (above / "heavy/cpu.weight").write_text("300")
        apart = ratio(heavy, light)
        for group in (heavy, light):
            (CGROUPS / "cgroup.procs").write_text(str(group.pid))
            (above / group.name).rmdir()
        above.rmdir()
    note(f"{alike:.3f} without weights, {apart:.3f} with 300 and 100")
    assert turns.executor.undo().failures == ()
    assert abs(alike - 1) <= 0.05 and abs(apart / 3 - 1) <= 0.05


def ratio(one: Group, two: Group) -> float:
    """CPU time of one over that of the other, within some seconds."""
    time.sleep(0.5)
    before = sum(one.cpu_seconds()), sum(two.cpu_seconds())
    time.sleep(SECONDS)
    return (sum(one.cpu_seconds()) - before[0]) / (sum(two.cpu_seconds()) - before[1])


if __name__ == "__main__":
    run(__file__, dict(globals()))
