# SPDX-License-Identifier: Apache-2.0
"""The figures that describe a phase, computed from two readings of counters. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from statistics import median


@dataclass(frozen=True)
class Counts:
    """Counters of one guest, summed over its vCPUs, at the time (monotonic seconds) they were read."""

    time: float
    pause_exits: float | None = None
    lhp_exits: float | None = None
    run_seconds: float | None = None
    corun_seconds: float | None = None
    cpu_seconds: float | None = None
    run_delay_seconds: float | None = None
    switches: float | None = None


@dataclass(frozen=True)
class Reading:
    """A guest at a moment: its own progress, and what the daemon counted."""

    counted_at: float
    iterations: int
    counts: Counts


@dataclass(frozen=True)
class Figures:
    """A guest in a phase. Per second, except the co-run share; None is unknown."""

    throughput: float | None = None
    pause_exits: float | None = None
    lhp_exits: float | None = None
    corun: float | None = None
    run_delay: float | None = None
    switches: float | None = None


def rates(begin: Reading, end: Reading) -> Figures:
    """The figures between two readings of one guest."""
    seconds = end.counts.time - begin.counts.time

    def rate(name: str) -> float | None:
        return _divided(_growth(begin, end, name), seconds)

    return Figures(
        throughput=_divided(end.iterations - begin.iterations, end.counted_at - begin.counted_at),
        pause_exits=rate("pause_exits"),
        lhp_exits=rate("lhp_exits"),
        corun=_divided(_growth(begin, end, "corun_seconds"), _growth(begin, end, "run_seconds")),
        run_delay=rate("run_delay_seconds"),
        switches=rate("switches"),
    )


def total(each: Sequence[Figures], pairs: Iterable[tuple[Reading, Reading]]) -> Figures:
    """Guests together: rates added up, the co-run share that of their run time together."""
    growths = [(_growth(a, b, "corun_seconds"), _growth(a, b, "run_seconds")) for a, b in pairs]
    return Figures(
        throughput=_sum(f.throughput for f in each),
        pause_exits=_sum(f.pause_exits for f in each),
        lhp_exits=_sum(f.lhp_exits for f in each),
        corun=_divided(_sum(c for c, _ in growths), _sum(r for _, r in growths)),
        run_delay=_sum(f.run_delay for f in each),
        switches=_sum(f.switches for f in each),
    )


def repeat_figures(
    begin: Mapping[str, Reading], end: Mapping[str, Reading], loads: Mapping[str, str]
) -> dict[str, Figures]:
    """Every guest's figures and, under the load's name, those of all guests that have the same load."""
    guests = {name: rates(begin[name], end[name]) for name in begin}
    totals = {}
    for load in dict.fromkeys(loads.values()):
        names = [name for name in begin if loads[name] == load]
        totals[load] = total([guests[name] for name in names], [(begin[name], end[name]) for name in names])
    return {**guests, **totals}


def medians(repeats: Sequence[Mapping[str, Figures]]) -> dict[str, Figures]:
    """Guest by guest and figure by figure; of known values only."""
    if not repeats:
        return {}
    return {name: _median([repeat[name] for repeat in repeats]) for name in repeats[0]}


def without_pause(figures: Mapping[str, Figures]) -> dict[str, Figures]:
    """Return the figures of a host that arms no PAUSE intercept: PAUSE exits are unknown unless one came."""
    if any(f.pause_exits for f in figures.values()):
        return dict(figures)
    return {
        n: Figures(f.throughput, None, None, f.corun, f.run_delay, f.switches) for n, f in figures.items()
    }


def _median(every: Sequence[Figures]) -> Figures:
    found: dict[str, float | None] = {}
    for field in fields(Figures):
        values = [getattr(figures, field.name) for figures in every]
        known = [value for value in values if value is not None]
        found[field.name] = median(known) if known else None
    return Figures(**found)


def _growth(begin: Reading, end: Reading, name: str) -> float | None:
    before, after = getattr(begin.counts, name), getattr(end.counts, name)
    return None if before is None or after is None else float(after - before)


def _sum(values: Iterable[float | None]) -> float | None:
    every = list(values)
    known = [value for value in every if value is not None]
    return sum(known) if known and len(known) == len(every) else None


def _divided(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole and whole > 0 else None


def number(value: float | None) -> str:
    """Three significant digits, at most five characters: 123k, 1.23M, 0.05; "-" for unknown."""
    if value is None:
        return "-"
    for limit, scale, unit in ((999.5, 1, ""), (999_500, 1e3, "k"), (999.5e6, 1e6, "M")):
        if abs(value) < limit or unit == "M":
            return _digits(value / scale) + unit
    raise AssertionError


def _digits(value: float) -> str:
    size = abs(value)
    if size == 0:
        return "0"
    return f"{value:.0f}" if size >= 99.95 else f"{value:.1f}" if size >= 9.995 else f"{value:.2f}"
