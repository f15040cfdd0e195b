# SPDX-License-Identifier: Apache-2.0
"""A result: origin, cells by (variant, load, guests, PLE), ratios, wanted against measured. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from statistics import median
from typing import Any

from bench import bars, stats
from bench.variants import ALONE, BASELINES, GANGS

Document = dict[str, Any]
Key = tuple[str, bool, int]  # load, PLE, guests
SCHEMA = 3


def empty(part: str, origin: Document) -> Document:
    """A result without a measurement. part: which bars of the plan it is judged by.

    origin: what a figure depends on: fingerprints of the sources and of the emulator, the clock, the kernel,
    the settings of the run.
    """
    return {
        "schema": SCHEMA,
        "part": part,
        "origin": origin,
        "plan": bars.plan(),
        "date": None,
        "kernel": None,
        "wall_seconds": 0.0,
        "cells": [],
        "ratios": [],
        "pooled": [],
        "judged": [],
        "lab_failures": [],
    }


def continued(old: Document | None, part: str, origin: Document) -> Document:
    """The old result to go on with, if it was measured as a new one would be; else an empty one."""
    new = empty(part, origin)
    same = old is not None and all(
        old.get(name) == new[name] for name in ("schema", "part", "origin", "plan")
    )
    return old if old is not None and same else new


def cell(variant: str, key: Key, rounds: list[Document], **more: Any) -> Document:
    """Describe a variant in a cell. rounds: each with `rate` and the counters of turns.

    rates: iterations/s of all guests together. whole_share: of the turns in which every runnable member
    ran; skew in ms from a turn's start to the last member on CPU. cpus: that the guests' vCPUs had, on
    average. None: unknown, or no gangs.
    """
    load, ple, guests = key
    rates = [found["rate"] for found in rounds]
    turns = sum(found["turns"] for found in rounds)
    whole = sum(found["whole"] for found in rounds)
    skew = sum(found["skew_ms"] for found in rounds)
    cpus = [found["cpus"] for found in rounds if "cpus" in found]
    return {
        "variant": variant,
        "load": load,
        "ple": ple,
        "guests": guests,
        "rates": rates,
        "median": median(rates) if rates else None,
        "cpus": median(cpus) if cpus else None,
        "spread": (max(rates) - min(rates)) / median(rates) if rates and median(rates) else None,
        "turns": turns or None,
        "whole_share": min(1.0, whole / turns) if turns else None,
        "skew_mean_ms": skew / whole if whole else None,
        "skew_p99_ms": _start_skew(rounds, 0.99),
        **more,
    }


def _start_skew(rounds: list[Document], share: float) -> float | None:
    """Return ms by the rounds' histograms: bucket b counts turns that started within 2^b us (gang_abi.h)."""
    counts = [count for found in rounds for count in enumerate(found.get("start_skew") or [])]
    return quantile([(2**bucket / 1000, number) for bucket, number in counts], share)


def quantile(histogram: list[tuple[float, int]], share: float) -> float | None:
    """The upper bound of the class below which `share` of all entries lie; None without entries."""
    wanted = share * sum(number for _, number in histogram)
    seen = 0
    for bound, number in sorted(histogram):
        seen += number
        if number and seen >= wanted:
            return bound
    return None


def key_of(found: Mapping[str, Any]) -> Key:
    """Return the place of a cell of the document in the matrix."""
    return found["load"], found["ple"], found["guests"]


def merged(old: Iterable[Document], new: Iterable[Document]) -> list[Document]:
    """Return all cells; of two in one place the new one."""
    by_place = {(found["variant"], *key_of(found)): found for found in [*old, *new]}
    return list(by_place.values())


def is_complete(document: Document, key: Key, variants: Iterable[str], rounds: int) -> bool:
    """True if every variant has its rounds in this cell, or a reason why it cannot have them."""
    done = {
        found["variant"]
        for found in document["cells"]
        if key_of(found) == key and (len(found["rates"]) >= rounds or found.get("unavailable"))
    }
    return set(variants) <= done


def finish(document: Document) -> Document:
    """Fill in what follows from what was measured: ratios and judgement."""
    keys = sorted({key_of(found) for found in document["cells"]})
    document["ratios"] = [ratio for key in keys for ratio in _ratios(document, key)]
    document["pooled"] = [row for load in sorted({key[0] for key in keys}) for row in pooled(document, load)]
    document["judged"] = list(bars.judged(document))
    return document


def medians(document: Document, key: Key) -> dict[str, float]:
    """Iterations/s by variant in one cell, `alone` among them."""
    return {
        found["variant"]: found["median"]
        for found in document["cells"]
        if key_of(found) == key and found["median"] is not None
    }


def _ratios(document: Document, key: Key) -> Iterator[Document]:
    """Yield the ratios of every gang variant: to each baseline, to the best, and to one guest alone."""
    found = medians(document, key)
    rates = {c["variant"]: c["rates"] for c in document["cells"] if key_of(c) == key}
    runs = {each.get("run") for each in document["cells"] if key_of(each) == key}
    known = {name: found[name] for name in BASELINES if found.get(name)}
    best = max(known, key=lambda name: known[name], default=None)
    for name in GANGS:
        if name in found:
            yield {
                "variant": name,
                "load": key[0],
                "ple": key[1],
                "guests": key[2],
                "best": best,
                "of_best": _ratio(rates, name, best),
                "of_limit": _ratio(rates, name, ALONE.name),
                **{f"of_{baseline}": _ratio(rates, name, baseline) for baseline in BASELINES},
                "cpus_of_best": _of_most(document, key, name),
                "within_one_run": len(runs) == 1,
            }


def _ratio(rates: Mapping[str, list[float]], gang: str, other: str | None) -> Document | None:
    """The median over histories (stats.middle); None without both."""
    if other is None or not rates.get(other):
        return None
    return stats.middle(zip(rates[gang], rates[other], strict=False))._asdict()


def pooled(document: Document, load: str) -> Iterator[Document]:
    """The gang against each baseline over all rounds of a load with 2 guests and more, by cells (stats)."""
    rates: dict[tuple[Key, str], list[float]] = {
        (key_of(found), found["variant"]): found["rates"]
        for found in document["cells"]
        if found["load"] == load and found["guests"] > 1
    }
    for baseline in BASELINES:
        cells = [
            list(zip(found, rates.get((key, baseline), []), strict=False))
            for (key, variant), found in rates.items()
            if variant == "relaxed"
        ]
        found = stats.pooled(cells)
        if found.ratio is not None:
            yield {"load": load, "baseline": baseline, **found._asdict()}


def _of_most(document: Document, key: Key, name: str) -> float | None:
    """The CPU time a variant's guests had, as a share of what the best baseline gave them."""
    cpus = {c["variant"]: c["cpus"] for c in document["cells"] if key_of(c) == key and c.get("cpus")}
    most = max((cpus[baseline] for baseline in BASELINES if baseline in cpus), default=None)
    return cpus[name] / most if most and name in cpus else None
