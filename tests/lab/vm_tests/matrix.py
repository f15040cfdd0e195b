# SPDX-License-Identifier: Apache-2.0
"""Slots of several widths on four CPUs, without systemd, libvirt or the daemon.

The machine underneath may have fewer CPUs than that, so nothing here depends on how quick a CPU is, only
on who has it when.
"""

from __future__ import annotations

import time

from check import note, run
from threads import Group, Rig, spinning

CPUS = (0, 1, 2, 3)
SECONDS = 4.0

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
    assert rig.gangs.active, rig.gangs.last_ejection
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


def check_unloads_clean() -> None:
    """With the last of them the scheduler goes."""
    assert rig.executor.undo().failures == ()
    assert not rig.gangs.active


if __name__ == "__main__":
    run(__file__, dict(globals()))
