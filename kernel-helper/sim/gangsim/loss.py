# SPDX-License-Identifier: Apache-2.0
"""The causes of the CPU time that guests lack to reach their limit. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Loss:
    """Shares of the limit; they add up to 1 - Figures.efficiency.

    decisions: the scheduler's own instructions; lines: cache lines that it waits for; switches: context
    switches, interrupts and exits; idle: CPUs that idled, though guests could have used them; skew: vCPUs
    that spun between the beginning of a turn and the coming of the last vCPU; apart: vCPUs that spun at other
    times, because a sibling waited for a CPU; ordinary: CPUs that other tasks had.
    """

    decisions: float
    lines: float
    switches: float
    idle: float
    skew: float
    apart: float
    ordinary: float


def divide(
    host: Mapping[str, float], cpus: float, limit: float, reached: float, had: float, skew: float
) -> Loss:
    """Divide what lacks among its causes. All but `host`, which has members of struct sim_result, is in CPUs.

    limit: what guests may have; had: what they had; reached: what their work would take alone;
    skew: those of the vCPUs that waited for the last one of a turn, at most.
    """
    # what an idle CPU decides delays nobody, and is not in switch_ns
    decided = min(host["op_ns"], host["switch_ns"])
    lines = decided * host["line_ns"] / host["op_ns"] if host["op_ns"] else 0.0
    spun = had - reached
    skew = min(skew, max(spun, 0.0))
    return Loss(
        decisions=(decided - lines) / limit,
        lines=lines / limit,
        switches=(host["switch_ns"] - decided) / limit,
        idle=(host["idle_ns"] - (cpus - limit)) / limit,
        skew=skew / limit,
        apart=(spun - skew) / limit,
        ordinary=(host["run_ns"] - had) / limit,
    )
