# SPDX-License-Identifier: Apache-2.0
"""build/bench/kernel.json: cells by (variant, load, guests, PLE), ratios, wanted against measured. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from statistics import fmean, median, stdev
from typing import Any

from bench.variants import BASELINES, GANGS

Document = dict[str, Any]
Key = tuple[str, bool, int]  # load, PLE, guests
SCHEMA = 1


def empty() -> Document:
    """A result without a measurement."""
    return {"schema": SCHEMA, "cells": [], "ratios": [], "judged": [], "lab_failures": []}


def cell(variant: str, key: Key, rounds: list[Document], **more: Any) -> Document:
    """One variant in one cell. rounds: the undisturbed ones, each with `rate` and the slots' counters.

    rates: iterations/s of all guests together. costarted_share: of the slots in which every runnable member
    ran; skew in ms from the slot's start to the last member on CPU. cpus: that the guests' vCPUs had, on
    average. None: unknown, or not scheduled in slots.
    """
    load, ple, guests = key
    rates = [found["rate"] for found in rounds]
    slots = sum(found["slots"] for found in rounds)
    started = sum(found["costarted"] for found in rounds)
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
        "slots": slots or None,
        "costarted_share": min(1.0, started / slots) if slots else None,
        "skew_mean_ms": skew / started if started else None,
        "skew_p99_ms": _start_skew(rounds, 0.99),
        **more,
    }


def _start_skew(rounds: list[Document], share: float) -> float | None:
    """In ms, from the rounds' histograms: bucket b counts slots that started within 2^b us (gang_abi.h)."""
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
    """Where a cell of the document stands in the matrix."""
    return found["load"], found["ple"], found["guests"]


def merged(old: Iterable[Document], new: Iterable[Document]) -> list[Document]:
    """All cells; of two in one place the new one."""
    by_place = {(found["variant"], *key_of(found)): found for found in [*old, *new]}
    return list(by_place.values())


def is_complete(document: Document, key: Key, variants: Iterable[str], rounds: int) -> bool:
    """Whether every variant has its rounds in this cell, or a reason why it cannot have them."""
    done = {
        found["variant"]
        for found in document["cells"]
        if key_of(found) == key and (len(found["rates"]) >= rounds or found.get("unavailable"))
    }
    return set(variants) <= done


def finish(document: Document) -> Document:
    """Fill in what follows from the cells and from the second part: ratios and judgement."""
    keys = sorted({key_of(found) for found in document["cells"]})
    document["ratios"] = [ratio for key in keys for ratio in _ratios(document, key)]
    document["pooled"] = [row for load in sorted({key[0] for key in keys}) for row in pooled(document, load)]
    document["judged"] = list(judged(document))
    return document


def medians(document: Document, key: Key) -> dict[str, float]:
    """Iterations/s by variant in one cell, `alone` among them."""
    return {
        found["variant"]: found["median"]
        for found in document["cells"]
        if key_of(found) == key and found["median"] is not None
    }


def _ratios(document: Document, key: Key) -> Iterator[Document]:
    """Of every gang variant: against the best baseline there is, and against one guest alone."""
    found = medians(document, key)
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
                "of_best": found[name] / known[best] if best else None,
                "of_limit": found[name] / found["alone"] if found.get("alone") else None,
                "cpus_of_best": _of_most(document, key, name),
                "within_one_run": len(runs) == 1,
            }


def pooled(document: Document, load: str) -> Iterator[Document]:
    """The gang against each baseline over all rounds of a load with 2 guests and more.

    ratio: geometric mean of the rounds' ratios; error: its standard error, relative. The two halves of a
    round's ratio are measured within seconds, so a drift of the machine cancels out, which it does not in the
    median of a cell: with five rounds that is good to some 10%.
    """
    rates: dict[tuple[Key, str], list[float]] = {
        (key_of(found), found["variant"]): found["rates"]
        for found in document["cells"]
        if found["load"] == load and found["guests"] > 1
    }
    for baseline in BASELINES:
        pairs = [
            pair
            for (key, variant), found in rates.items()
            if variant == "relaxed"
            for pair in zip(found, rates.get((key, baseline), []), strict=False)
        ]
        rounds, ratio, error = paired(pairs)
        if error is not None:
            yield {"load": load, "baseline": baseline, "rounds": rounds, "ratio": ratio, "error": error}


def paired(rounds: Iterable[tuple[float, float]]) -> tuple[int, float | None, float | None]:
    """How many rounds have both halves, the geometric mean of their ratios, its relative standard error."""
    logs = [math.log(one / other) for one, other in rounds if one and other]
    ratio = math.exp(fmean(logs)) if logs else None
    return len(logs), ratio, stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else None


def _of_most(document: Document, key: Key, name: str) -> float | None:
    """The CPU time a variant's guests had, as a share of what the best baseline gave them."""
    cpus = {c["variant"]: c["cpus"] for c in document["cells"] if key_of(c) == key and c.get("cpus")}
    most = max((cpus[baseline] for baseline in BASELINES if baseline in cpus), default=None)
    return cpus[name] / most if most and name in cpus else None


def judged(document: Document) -> Iterator[Document]:
    """What is wanted beside what was measured; `met` None: it was not measured."""
    gang = {(r["load"], r["ple"], r["guests"]): r for r in document["ratios"] if r["variant"] == "relaxed"}
    for guests, wanted in ((2, 1.7), (4, 3.0), (8, 4.0)):
        row = gang.get(("barrier", False, guests), {})
        yield _row(
            f"barrier, PLE off, {guests} guests: gang / best baseline", wanted, row.get("of_best"), "x"
        )
        yield _row(f"barrier, PLE off, {guests} guests: gang / limit", 0.92, row.get("of_limit"))
    for guests in (4, 8):
        row = gang.get(("barrier", True, guests), {})
        yield _row(f"barrier, PLE on, {guests} guests: gang / best baseline", 1.1, row.get("of_best"), "x")
    for load in ("spin", "sleepwake"):
        worst = min((r["of_best"] for k, r in gang.items() if k[0] == load and r["of_best"]), default=None)
        yield _row(f"{load}: gang / best baseline, worst cell", 0.97, worst)
        worst = min((row["ratio"] for row in pooled(document, load)), default=None)
        yield _row(f"{load}: gang / baseline, all rounds, worst baseline", 0.97, worst)
    had = [r["cpus_of_best"] for k, r in gang.items() if k[0] == "spin" and r.get("cpus_of_best")]
    yield _row("spin: the same of CPU time that the guests had", 0.97, min(had, default=None))
    for key, row in gang.items():
        if key[0] == "spinlock" and key[1]:
            yield _row(f"spinlock, PLE on, {key[2]} guests: gang / best baseline", None, row["of_best"], "x")
    yield from _judged_slots(document)
    yield from _judged_overhead(document.get("overhead") or {})


def _judged_slots(document: Document) -> Iterator[Document]:
    gangs = [c for c in document["cells"] if c["variant"] == "relaxed" and c["costarted_share"] is not None]
    share = [found["costarted_share"] for found in gangs]
    yield _row(
        "slots in which every runnable member ran, median cell", 0.98, median(share) if share else None
    )
    yield _row("the same, worst cell", 0.98, min(share, default=None))
    skew = [found["skew_p99_ms"] for found in gangs if found["skew_p99_ms"] is not None]
    yield _row("start skew p99, ms, worst cell", 1.0, max(skew, default=None), most=True)


def _judged_overhead(overhead: Mapping[str, Any]) -> Iterator[Document]:
    for work in ("hackbench", "pipe", "wakeup"):
        found = overhead.get("ratios", {}).get(work, {})
        yield _row(f"nothing marked: {work}, our scheduler / default class", 0.95, found.get("loaded"))
    memory = overhead.get("memory", {}).get("bytes_per_vcpu")
    yield _row("memory of the kernel side, bytes a vCPU", 4096, memory, most=True)


def _row(
    what: str, wanted: float | None, measured: float | None, unit: str = "", most: bool = False
) -> Document:
    met = None
    if wanted is not None and measured is not None:
        met = measured <= wanted if most else measured >= wanted
    return {"what": what, "wanted": wanted, "most": most, "measured": measured, "unit": unit, "met": met}
