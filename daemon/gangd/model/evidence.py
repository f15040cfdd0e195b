# SPDX-License-Identifier: Apache-2.0
"""The last measurements of a guest: the input of a policy. Unknown is None, never 0."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter

from gangd.model.domain import Mode
from gangd.model.snapshot import DomainStats, VcpuStats

BUSY = 0.1  # seconds a second


@dataclass(frozen=True)
class Conditions:
    """The host's part of the evidence: the same for all guests.

    fair: whether the scheduler that a gang would get charges it for what it runs and takes nothing from its
    neighbours; None = there is no scheduler. crowded_percent, calm_percent: `[scheduler]` of gangd.toml.
    """

    fair: bool | None = None
    crowded_percent: float = 5.0
    calm_percent: float = 2.0


@dataclass(frozen=True)
class Evidence:
    """Rates over the last measuring interval.

    seconds: length of that interval, 0.0 = nothing measured yet.
    pause_per_second, lhp_per_second: PAUSE exits of all vCPUs, and those taken
        while a runnable sibling was off-CPU. corun_ratio: 0 to 1, the share of
        the guest's running time in which no runnable vCPU was off-CPU.
    cpu_per_second, delay_per_second, held_per_second: CPU seconds of all vCPUs, those for which they were
        runnable and waited (run delay), and those for which their own cpu.max held them off, which are not
        in the run delay. run_per_second: seconds in which one of them ran at least. conditions: the same for
        all guests. time: when the interval ended, seconds on a clock that only grows. mode: in which the
        guest was for all of it, None = it changed, or is no gang.
    """

    seconds: float = 0.0
    pause_per_second: float | None = None
    lhp_per_second: float | None = None
    corun_ratio: float | None = None
    cpu_per_second: float | None = None
    time: float = 0.0
    mode: Mode | None = None
    delay_per_second: float | None = None
    held_per_second: float = 0.0
    run_per_second: float | None = None
    conditions: Conditions = Conditions()

    @property
    def apart_ratio(self) -> float | None:
        """Share of the guest's running time in which a runnable vCPU was off CPU (co-stop), 0 to 1; of BUSY
        seconds a second at least: what hardly runs is hardly apart, though two timers of it collide. Unknown
        of a guest that its cpu.max held off: its vCPUs were apart then, too."""
        if self.corun_ratio is None or self.run_per_second is None or self.held_per_second:
            return None
        return (1.0 - self.corun_ratio) * self.run_per_second / max(self.run_per_second, BUSY)

    @property
    def waited_ratio(self) -> float | None:
        """Share of the time in which its vCPUs could run that they waited, 0 to 1; in the same way."""
        if self.delay_per_second is None or self.cpu_per_second is None:
            return None
        return self.delay_per_second / max(self.delay_per_second + self.cpu_per_second, BUSY)


def compare(
    before: DomainStats | None,
    after: DomainStats,
    seconds: float,
    time: float = 0.0,
    mode: Mode | None = None,
) -> Evidence:
    """Evidence from two readings of one guest, `seconds` apart, the second at `time`, both in `mode`.

    Rates are of the vCPUs whose threads are in both readings: one may come or go between them. A counter
    that is unknown in either, or that went backwards (the probes were reloaded), gives None. The estimator:
    LHP = PAUSE exits at whose moment a sibling waited (kernel-helper/bpf/lhp.bpf.c).
    """
    if before is None or seconds <= 0:
        return Evidence()
    ran = _difference(before.run_seconds, after.run_seconds)
    vcpus, held = _both(before, after), _throttled(before, after) / seconds
    delay = _rate(vcpus, "run_delay_seconds", seconds)
    return Evidence(
        seconds=seconds,
        pause_per_second=_rate(vcpus, "pause_exits", seconds),
        lhp_per_second=_rate(vcpus, "lhp_exits", seconds),
        corun_ratio=_ratio(
            _difference(before.corun_seconds, after.corun_seconds),
            ran,
        ),
        cpu_per_second=_rate(vcpus, "cpu_seconds", seconds),
        delay_per_second=None if delay is None else max(0.0, delay - held),
        held_per_second=held,
        run_per_second=None if ran is None else ran / seconds,
        time=time,
        mode=mode,
    )


def _difference(before: float | None, after: float | None) -> float | None:
    if before is None or after is None or after < before:
        return None
    return after - before


def _both(before: DomainStats, after: DomainStats) -> list[tuple[VcpuStats, VcpuStats]]:
    """The two readings of each vCPU whose thread is in both."""
    last = {(vcpu.vcpu, vcpu.tid): vcpu for vcpu in before.vcpus}
    return [(last[key], vcpu) for vcpu in after.vcpus if (key := (vcpu.vcpu, vcpu.tid)) in last]


def _rate(vcpus: list[tuple[VcpuStats, VcpuStats]], field: str, seconds: float) -> float | None:
    value = attrgetter(field)
    pairs = ((value(then), value(now)) for then, now in vcpus)
    grown = [now - then for then, now in pairs if then is not None and now is not None]
    return sum(grown) / seconds if grown and min(grown) >= 0 else None


def _throttled(before: DomainStats, after: DomainStats) -> float:
    """Seconds for which cpu.max held vCPUs off: each group's, and what the scheduler of gangs held."""
    last, now = _held(before), _held(after)
    return sum(max(0.0, now[group] - last[group]) for group in last.keys() & now.keys())


def _held(stats: DomainStats) -> dict[str, float]:
    return {**stats.throttled, **({"": stats.gang.throttled_seconds} if stats.gang else {})}


def _ratio(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else min(part / whole, 1.0)
