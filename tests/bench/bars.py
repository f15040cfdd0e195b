# SPDX-License-Identifier: Apache-2.0
"""The targets of plan.toml beside the measurements. Pure but for reading the plan."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from bench.variants import BASELINES

Document = dict[str, Any]
PLAN = Path(__file__).with_name("plan.toml")
NOTHING: Document = {"measured": None}


def plan() -> Document:
    """Estimators and bars, as they are copied into a result."""
    return tomllib.loads(PLAN.read_text())


def judged(document: Document) -> Iterator[Document]:
    """A row for every bar of the document's part.

    An estimate is judged by its interval. `met` None: nothing is wanted, or it is not measured, or open:
    the interval has the bar in it, or there is none, or one of the baselines is not there.
    """
    for bar in document["plan"]["bar"]:
        if bar["part"] != document["part"]:
            continue
        figure = FIGURES[bar["figure"]](document, bar.get("at", []))
        row = {"low": None, "high": None, "without": [], **NOTHING, **figure}
        wanted, most = bar.get("wanted"), bar.get("most", False)
        met = None
        if wanted is not None and row["measured"] is not None:
            met = _met(row, wanted, most, estimate="low" in figure)
            # A baseline more can only make a ratio worse: what is missed is, what is not is not known.
            met = None if met and row["without"] else met
        yield {"what": bar["what"], "wanted": wanted, "most": most, "met": met, **row}


def _met(row: Document, wanted: float, most: bool, estimate: bool) -> bool | None:
    if not estimate:
        ends = [row["measured"]]
    elif row["low"] is not None:
        ends = [row["low"], row["high"]]
    else:  # without an interval; a scheduler that failed in a round of few has missed all the same
        return None if row["measured"] else False
    verdicts = {end <= wanted if most else end >= wanted for end in ends}
    return verdicts.pop() if len(verdicts) == 1 else None


def _gang(document: Document, at: Sequence[Any]) -> Document:
    load, ple, guests = at
    key = (load, ple == "on", guests)
    rows = (r for r in document["ratios"] if r["variant"] == "relaxed")
    return next((r for r in rows if (r["load"], r["ple"], r["guests"]) == key), {})


def _of_best(document: Document, at: Sequence[Any]) -> Document:
    load, ple, guests = at
    cells = [
        c for c in document["cells"] if (c["load"], c["ple"], c["guests"]) == (load, ple == "on", guests)
    ]
    known = {c["variant"] for c in cells if c["median"] is not None}
    without = [name for name in BASELINES if known and name not in known]
    return {**_estimate(_gang(document, at).get("of_best")), "without": without, **_counts(document, at)}


def _of_limit(document: Document, at: Sequence[Any]) -> Document:
    return {**_estimate(_gang(document, at).get("of_limit")), **_counts(document, at)}


def _of_load(document: Document, at: Sequence[Any], name: str) -> list[Any]:
    """Return the values of `name` in the cells of a load."""
    rows = [r for r in document["ratios"] if (r["variant"], r["load"]) == ("relaxed", at[0])]
    return [row[name] for row in rows if row[name] is not None]


def _worst_of_best(document: Document, at: Sequence[Any]) -> Document:
    found = [ratio for ratio in _of_load(document, at, "of_best") if ratio["ratio"] is not None]
    worst = min(found, key=lambda ratio: float(ratio["ratio"]), default=None)
    return {**_estimate(worst), **_counts(document, at)}


def _worst_cpus(document: Document, at: Sequence[Any]) -> Document:
    return {"measured": min(_of_load(document, at, "cpus_of_best"), default=None), **_counts(document, at)}


def _pooled(document: Document, at: Sequence[Any]) -> Document:
    rows = [row for row in document["pooled"] if row["load"] == at[0] and row["ratio"] is not None]
    worst = min(rows, key=lambda row: float(row["ratio"]), default=None)
    return {**_estimate(worst), **_counts(document, at)}


def _whole(document: Document, at: Sequence[Any]) -> Document:
    shares = [c["whole_share"] for c in _relaxed(document) if c["whole_share"] is not None]
    pick = median if at == ["median"] else min
    return {"measured": pick(shares) if shares else None, **_counts(document, [])}


def _skew_p99(document: Document, at: Sequence[Any]) -> Document:
    skews = [c["skew_p99_ms"] for c in _relaxed(document) if c["skew_p99_ms"] is not None]
    return {"measured": max(skews, default=None), **_counts(document, [])}


def _relaxed(document: Document) -> list[Document]:
    return [c for c in document["cells"] if c["variant"] == "relaxed"]


def _counts(document: Document, at: Sequence[Any]) -> Document:
    """n: rounds of the gang that the figure rests on; failed: those among them in which the scheduler did."""
    cells = [c for c in _relaxed(document) if not at or c["load"] == at[0]]
    if len(at) == 3:
        cells = [c for c in cells if (c["ple"], c["guests"]) == (at[1] == "on", at[2])]
    return {"n": sum(len(c["rates"]) for c in cells), "failed": sum(c["failed"] for c in cells)}


def _overhead(document: Document, at: Sequence[Any]) -> Document:
    condition, work = at
    found = document.get("overhead", {}).get("ratios", {}).get(work, {}).get(condition)
    return {**_estimate(found), "n": found["rounds"]} if found else NOTHING


def _bytes(document: Document, at: Sequence[Any]) -> Document:
    return {"measured": document.get("overhead", {}).get("memory", {}).get("bytes_per_vcpu")}


def _adaptive(document: Document, at: Sequence[Any]) -> Document:
    rows = [row for row in document.get("adaptive", []) if row["ratio"] is not None]
    worst = min(rows, key=lambda row: float(row["ratio"]), default=None)
    return {**_estimate(worst), "n": worst["rounds"]} if worst else NOTHING


def _decided(document: Document, at: Sequence[Any]) -> Document:
    times = [second for row in document.get("adaptive", []) for second in row["decided_seconds"]]
    return {"measured": max(times, default=None), "n": len(times)}


def _least_share(document: Document, at: Sequence[Any]) -> Document:
    """Return the measurement of the party that lost most."""
    worst = min(document.get("shares", []), key=lambda row: float(row["ratio"]), default=None)
    return {**_estimate(worst), "n": worst["rounds"]} if worst else NOTHING


def _off_quota(document: Document, at: Sequence[Any]) -> Document:
    """Return the largest deviation from a quota, as a share of it, of all parties that want more than it."""
    found = [abs(row["of_quota"] - 1) for row in document.get("shares", []) if row["of_quota"]]
    return {"measured": max(found, default=None), "n": len(found)}


def _difference(document: Document, at: Sequence[Any]) -> Document:
    found = [abs(row["difference"]) for row in document.get("rows", []) if row["difference"] is not None]
    return {"measured": max(found, default=None), "n": len(found)}


def _estimate(row: Mapping[str, Any] | None) -> Document:
    """A figure with an interval, of which `judged` then reads both ends."""
    return {"measured": row["ratio"], "low": row["low"], "high": row["high"]} if row else NOTHING


FIGURES: dict[str, Callable[[Document, Sequence[Any]], Document]] = {
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
