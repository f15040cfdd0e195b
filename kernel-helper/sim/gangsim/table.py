# SPDX-License-Identifier: Apache-2.0
"""The tables that `make sim` prints. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from gangsim.figures import Figures, Party
from gangsim.measured import Comparison
from gangsim.scenario import Scenario

HEAD = (
    "scheduler", "rounds/s", "of limit", "co-run", "whole", "skew us", "max us", "co-stop",
    "Jain", "worst", "switches/s", "kicks/s", "decisions/s", "simulated in",
)  # fmt: skip

PARTY_HEAD = (
    "CPUs", "rounds/s", "co-run", "skew us", "woken p50 us", "p99 us", "longest wait ms", "migrations/s",
)  # fmt: skip


def number(value: float | None) -> str:
    """Three significant digits: 12.3k; "-" for unknown."""
    if value is None:
        return "-"
    for limit, scale, unit in ((999.5, 1.0, ""), (999_500, 1e3, "k"), (float("inf"), 1e6, "M")):
        if value < limit:
            return f"{value / scale:.3g}{unit}"
    raise AssertionError


def share(value: float | None) -> str:
    """A percentage; "-" for unknown."""
    return "-" if value is None else f"{value:.1%}"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns of equal width, the first to the left, the others to the right; a rule below the head."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = [
        "  ".join(
            cell.rjust(w) if at else cell.ljust(w)
            for at, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    return [lines[0], "-" * len(lines[0]), *lines[1:]]


def of_scenario(scenario: Scenario, found: Sequence[Figures]) -> list[str]:
    """The table of one scenario, with a line that says what it is."""
    host, rounds = scenario.host, len(found[0].rates)
    loads = ", ".join(sorted({guest.load for guest in scenario.guests}))
    seeds = f", median of {rounds} seeds" if rounds > 1 else ""
    title = (
        f"{scenario.name}: {host.cpus} CPUs, {len(scenario.guests)} guests, {scenario.vcpus} vCPUs, "
        f"{loads}, {scenario.seconds:g} s{seeds}"
    )
    rows = [HEAD, *(_row(one) for one in found)]
    return [title, *aligned(rows), *(_lost(one) for one in found), ""]


def of_parties(scheduler: str, found: Sequence[Party]) -> list[str]:
    """The table of who got what of one scheduler."""
    rows = [
        (
            one.name, f"{one.cpus:.3f}", number(one.rate), share(one.corun), number(one.skew_us),
            number(one.p50_us), number(one.p99_us), number(one.longest_ms), number(one.migrations),
        )
        for one in found
    ]  # fmt: skip
    return [*aligned([(scheduler, *PARTY_HEAD), *rows]), ""]


def _lost(one: Figures) -> str:
    parts = ", ".join(f"{name} {share(value)}" for name, value in asdict(one.loss).items())
    return f"{one.scheduler} lacks {share(1 - one.efficiency)} of the limit: {parts}"


def _row(one: Figures) -> list[str]:
    return [
        one.scheduler,
        number(one.rate),
        share(one.efficiency),
        share(one.corun),
        share(one.whole),
        number(one.skew_us),
        number(one.skew_max_us),
        share(one.costop),
        f"{one.jain:.3f}",
        share(one.worst),
        number(one.switches),
        number(one.kicks),
        number(one.decisions),
        f"{one.wall:.1f} s",
    ]


def of_lab(found: Sequence[Comparison] | None) -> list[str]:
    """Simulator beside lab: throughput against one guest alone."""
    if found is None:
        return ["lab: no figures to compare with (--bench)"]
    if not found:
        return ["lab: it measured none of the scenarios simulated here"]
    head = ("lab variant", "guests", "load", "simulator", "lab", "difference")
    rows = [
        (c.variant, str(c.guests), c.load, share(c.simulated), share(c.measured), f"{c.difference:+.1%}")
        for c in found
    ]
    return [
        "all guests against one that is alone, simulator and lab (difference in points):",
        *aligned([head, *rows]),
    ]
