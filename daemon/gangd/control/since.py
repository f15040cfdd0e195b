# SPDX-License-Identifier: Apache-2.0
"""`gangctl stats --since mark` as a document: one guest before its mark, and since. Pure.

The measures are ratios, so that two times of different lengths can be compared. The work done inside a guest
is not seen from outside.
"""

from __future__ import annotations

from typing import NamedTuple

from gangd.control import structs
from gangd.control.schema import finite, ratio
from gangd.errors import GangError, NotMarked, NotRunning
from gangd.model.counters import GangStats
from gangd.model.domain import Domain
from gangd.model.readings import Reading
from gangd.model.snapshot import DomainStats, Snapshot

NO_READING = (
    "gangd has no reading from before its mark: the guest was marked before this gangd or its own process "
    "started, or not by gangctl, or the mark left its policy as it was"
)


class Counted(NamedTuple):
    """Counters of a time. exits_cpu: the CPU time in which exits were counted."""

    run: float | None
    corun: float | None
    costop: float | None
    cpu: float | None
    delay: float | None
    switches: float | None
    exits_cpu: float | None
    pause: float | None
    lhp: float | None
    gang_run: float | None
    gang_apart: float | None


def since(snapshot: Snapshot, domain: Domain, reading: Reading | None) -> structs.Since:
    """Return the measures before the mark and since. Raises NotRunning, NotMarked, GangError."""
    if not domain.running:
        raise NotRunning("domain is not running")
    if domain.mark is None:
        raise NotMarked("domain is not marked (gangctl mark)")
    if reading is None:
        raise GangError(NO_READING)
    now = snapshot.stats.get(domain.uuid) or DomainStats(domain.uuid)
    elapsed = None if snapshot.read_at is None else snapshot.read_at - reading.read_at
    return structs.Since(
        uuid=domain.uuid,
        name=domain.name,
        policy=reading.policy,
        policy_before=reading.before,
        time_seconds=finite(snapshot.time - snapshot.age),
        mark_time_seconds=finite(reading.time),
        before=_measures(_until(reading), reading.life_seconds),
        since=_measures(_from(reading, now), elapsed),
    )


def _until(reading: Reading) -> Counted:
    """Return what was counted until the mark: by the kernel for all of its life, by the probes since they
    watched it."""
    stats, total, watched = reading.stats, reading.stats.total, reading.watched
    return Counted(
        *(stats.run_seconds, stats.corun_seconds, stats.costop_seconds),
        *(total.cpu_seconds, total.run_delay_seconds, total.switches),
        _growth(watched.cpu_seconds, total.cpu_seconds),
        _growth(watched.pause_exits, total.pause_exits),
        _growth(watched.lhp_exits, total.lhp_exits),
        *_gang(None, stats.gang),
    )


def _from(reading: Reading, now: DomainStats) -> Counted:
    then, before, after = reading.began, reading.began.total, now.total
    cpu = _growth(before.cpu_seconds, after.cpu_seconds)
    return Counted(
        _growth(then.run_seconds, now.run_seconds),
        _growth(then.corun_seconds, now.corun_seconds),
        _growth(then.costop_seconds, now.costop_seconds),
        cpu,
        _growth(before.run_delay_seconds, after.run_delay_seconds),
        _growth(before.switches, after.switches),
        cpu,
        _growth(before.pause_exits, after.pause_exits),
        _growth(before.lhp_exits, after.lhp_exits),
        *_gang(then.gang, now.gang),
    )


def _gang(then: GangStats | None, now: GangStats | None) -> tuple[float | None, float | None]:
    """Return the CPU time of a gang's members, and the part of it outside its turns; a guest that was no gang
    then had none."""
    if now is None:
        return None, None
    run, apart = (then.run_seconds, then.apart_seconds) if then else (0.0, 0.0)
    return _growth(run, now.run_seconds), _growth(apart, now.apart_seconds)


def _growth(then: float | None, now: float | None) -> float | None:
    """Return None also for a counter that fell: it was started anew."""
    return None if then is None or now is None or now < then else now - then


def _measures(counted: Counted, elapsed: float | None) -> structs.Measures:
    asked = None if counted.cpu is None or counted.delay is None else counted.cpu + counted.delay
    return structs.Measures(
        seconds=finite(elapsed),
        corun_ratio=ratio(counted.corun, counted.run),
        costop_ratio=ratio(counted.costop, counted.run),
        run_delay_ratio=ratio(counted.delay, asked),
        lhp_per_cpu_second=ratio(counted.lhp, counted.exits_cpu),
        pause_per_cpu_second=ratio(counted.pause, counted.exits_cpu),
        switches_per_cpu_second=ratio(counted.switches, counted.cpu),
        cpus=ratio(counted.cpu, elapsed),
        apart_ratio=ratio(counted.gang_apart, counted.gang_run),
    )
