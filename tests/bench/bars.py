# SPDX-License-Identifier: Apache-2.0
"""The targets of plan.toml beside the measurements. Pure but for reading the plan."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from msgspec.structs import asdict

from bench.records import Cell, Figure, Gain, Overhead, Result, Verdict
from bench.stats import Ratio
from bench.variants import BASELINES

PLAN = Path(__file__).with_name("plan.toml")


class Estimate(Figure):
    """A figure that has an interval, where there were rounds enough."""


def plan() -> dict[str, Any]:
    """Estimators and bars, as they are copied into a result."""
    return tomllib.loads(PLAN.read_text())


def judged(document: Result) -> Iterator[Verdict]:
    """A row for every bar of the document's part.

    An estimate is judged by its interval. `met` None: nothing is wanted, or it is not measured, or open:
    the interval has the bar in it, or there is none, or one of the baselines is not there.
    """
    for bar in document.plan["bar"]:
        if bar["part"] != document.part:
            continue
        figure = FIGURES[bar["figure"]](document, bar.get("at", []))
        wanted, most = bar.get("wanted"), bar.get("most", False)
        met = None
        if wanted is not None and figure.measured is not None:
            met = _met(figure, figure.measured, wanted, most)
            # A baseline more can only make a ratio worse: what is missed is, what is not is not known.
            met = None if met and figure.without else met
        yield Verdict(what=bar["what"], wanted=wanted, most=most, met=met, **asdict(figure))


def _met(row: Figure, measured: float, wanted: float, most: bool) -> bool | None:
    if row.low is not None and row.high is not None:
        ends = [row.low, row.high]
    elif isinstance(row, Estimate):
        # Without an interval; a scheduler that failed in a round of few has missed all the same.
        return None if measured else False
    else:
        ends = [measured]
    verdicts = {end <= wanted if most else end >= wanted for end in ends}
    return verdicts.pop() if len(verdicts) == 1 else None


def _gang(document: Result, at: Sequence[Any]) -> Gain | None:
    load, ple, guests = at
    key = (load, ple == "on", guests)
    rows = (r for r in document.ratios if r.variant == "relaxed")
    return next((r for r in rows if (r.load, r.ple, r.guests) == key), None)


def _of_best(document: Result, at: Sequence[Any]) -> Figure:
    load, ple, guests = at
    cells = [c for c in document.cells if (c.load, c.ple, c.guests) == (load, ple == "on", guests)]
    known = {c.variant for c in cells if c.median is not None}
    without = [name for name in BASELINES if known and name not in known]
    gang = _gang(document, at)
    return _estimate(gang.of_best if gang else None, without=without, **_counts(document, at))


def _of_limit(document: Result, at: Sequence[Any]) -> Figure:
    gang = _gang(document, at)
    return _estimate(gang.of_limit if gang else None, **_counts(document, at))


def _of_load(document: Result, at: Sequence[Any], name: str) -> list[Any]:
    """Return the values of `name` in the cells of a load."""
    rows = [r for r in document.ratios if (r.variant, r.load) == ("relaxed", at[0])]
    return [value for row in rows if (value := getattr(row, name)) is not None]


def _worst_of_best(document: Result, at: Sequence[Any]) -> Figure:
    worst = _worst(_of_load(document, at, "of_best"))
    return _estimate(worst, **_counts(document, at))


def _worst_cpus(document: Result, at: Sequence[Any]) -> Figure:
    return Figure(measured=min(_of_load(document, at, "cpus_of_best"), default=None), **_counts(document, at))


def _pooled(document: Result, at: Sequence[Any]) -> Figure:
    worst = _worst(row for row in document.pooled if row.load == at[0])
    return _estimate(worst, **_counts(document, at))


def _whole(document: Result, at: Sequence[Any]) -> Figure:
    shares = [c.whole_share for c in _relaxed(document) if c.whole_share is not None]
    pick = median if at == ["median"] else min
    return Figure(measured=pick(shares) if shares else None, **_counts(document, []))


def _skew_p99(document: Result, at: Sequence[Any]) -> Figure:
    skews = [c.skew_p99_ms for c in _relaxed(document) if c.skew_p99_ms is not None]
    return Figure(measured=max(skews, default=None), **_counts(document, []))


def _relaxed(document: Result) -> list[Cell]:
    return [c for c in document.cells if c.variant == "relaxed"]


def _counts(document: Result, at: Sequence[Any]) -> dict[str, Any]:
    """n: rounds of the gang that the figure rests on; failed: those among them in which the scheduler did."""
    cells = [c for c in _relaxed(document) if not at or c.load == at[0]]
    if len(at) == 3:
        cells = [c for c in cells if (c.ple, c.guests) == (at[1] == "on", at[2])]
    return {"n": sum(len(c.rates) for c in cells), "failed": sum(c.failed for c in cells)}


def _overhead(document: Result, at: Sequence[Any]) -> Figure:
    condition, work = at
    return _rounds((document.overhead or Overhead()).ratios.get(work, {}).get(condition))


def _bytes(document: Result, at: Sequence[Any]) -> Figure:
    return Figure(measured=(document.overhead or Overhead()).memory.bytes_per_vcpu)


def _adaptive(document: Result, at: Sequence[Any]) -> Figure:
    return _rounds(_worst(document.adaptive))


def _decided(document: Result, at: Sequence[Any]) -> Figure:
    times = [second for row in document.adaptive for second in row.decided_seconds]
    return Figure(measured=max(times, default=None), n=len(times))


def _least_share(document: Result, at: Sequence[Any]) -> Figure:
    """Return the measurement of the party that lost most."""
    return _rounds(_worst(document.shares))


def _off_quota(document: Result, at: Sequence[Any]) -> Figure:
    """Return the largest deviation from a quota, as a share of it, of all parties that want more than it."""
    found = [abs(row.of_quota - 1) for row in document.shares if row.of_quota]
    return Figure(measured=max(found, default=None), n=len(found))


def _difference(document: Result, at: Sequence[Any]) -> Figure:
    found = [abs(row.difference) for row in document.rows if row.difference is not None]
    return Figure(measured=max(found, default=None), n=len(found))


def _estimate(row: Ratio | None, **more: Any) -> Figure:
    """A figure with an interval, of which `judged` then reads both ends."""
    return Estimate(measured=row.ratio, low=row.low, high=row.high, **more) if row else Figure(**more)


def _rounds(row: Ratio | None) -> Figure:
    return _estimate(row, n=row.rounds) if row else Figure()


def _worst(rows: Iterable[Ratio]) -> Ratio | None:
    known = [(row.ratio, number, row) for number, row in enumerate(rows) if row.ratio is not None]
    return min(known)[2] if known else None


FIGURES: dict[str, Callable[[Result, Sequence[Any]], Figure]] = {
    "of_best": _of_best,
    "of_limit": _of_limit,
    "worst_of_best": _worst_of_best,
    "cpus_of_best": _worst_cpus,
    "pooled": _pooled,
    "whole": _whole,
    "skew_p99": _skew_p99,
    "overhead": _overhead,
    "bytes_per_vcpu": _bytes,
    "adaptive": _adaptive,
    "decided": _decided,
    "difference": _difference,
    "least_share": _least_share,
    "off_quota": _off_quota,
}
