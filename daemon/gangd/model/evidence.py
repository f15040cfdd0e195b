# SPDX-License-Identifier: Apache-2.0
"""The last measurements of a guest: the input of a policy. Unknown is None, never 0."""

from __future__ import annotations

from dataclasses import dataclass

from gangd.model.domain import Mode
from gangd.model.snapshot import DomainStats


@dataclass(frozen=True)
class Evidence:
    """Rates over the last measuring interval.

    seconds: length of that interval, 0.0 = nothing measured yet.
    pause_per_second, lhp_per_second: PAUSE exits of all vCPUs, and those taken
        while a runnable sibling was off-CPU. corun_ratio: 0 to 1, the share of
        the guest's running time in which no runnable vCPU was off-CPU.
    cpu_per_second: CPU seconds of all vCPUs. time: when the interval ended, seconds on a clock
        that only grows. mode: in which the guest was for all of it, None = it changed, or is no gang.
    """

    seconds: float = 0.0
    pause_per_second: float | None = None
    lhp_per_second: float | None = None
    corun_ratio: float | None = None
    cpu_per_second: float | None = None
    time: float = 0.0
    mode: Mode | None = None


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
    return Evidence(
        seconds=seconds,
        pause_per_second=_rate(before, after, "pause_exits", seconds),
        lhp_per_second=_rate(before, after, "lhp_exits", seconds),
        corun_ratio=_ratio(
            _difference(before.corun_seconds, after.corun_seconds),
            _difference(before.run_seconds, after.run_seconds),
        ),
        cpu_per_second=_rate(before, after, "cpu_seconds", seconds),
        time=time,
        mode=mode,
    )


def _known(stats: DomainStats, field: str) -> dict[tuple[int, int | None], float]:
    found = {(vcpu.vcpu, vcpu.tid): getattr(vcpu, field) for vcpu in stats.vcpus}
    return {thread: value for thread, value in found.items() if value is not None}


def _difference(before: float | None, after: float | None) -> float | None:
    if before is None or after is None or after < before:
        return None
    return after - before


def _rate(before: DomainStats, after: DomainStats, field: str, seconds: float) -> float | None:
    last, now = _known(before, field), _known(after, field)
    grown = [now[thread] - last[thread] for thread in last.keys() & now.keys()]
    return sum(grown) / seconds if grown and min(grown) >= 0 else None


def _ratio(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else min(part / whole, 1.0)
