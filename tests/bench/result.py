# SPDX-License-Identifier: Apache-2.0
"""The conclusions of a result: cells of its rounds, ratios, wanted against measured. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Protocol

from msgspec.structs import asdict

from bench import bars, stats
from bench.records import SCHEMA, Cell, Gain, Key, Origin, Pooled, Result, Round
from bench.variants import ALONE, BASELINES, GANGS


class Placed(Protocol):
    """A record that has a place in the matrix."""

    load: str
    ple: bool
    guests: int


def empty(part: str, origin: Origin) -> Result:
    """A result without a measurement. part: which bars of the plan it is judged by."""
    return Result(schema=SCHEMA, part=part, origin=origin, plan=bars.plan())


def continued(old: Result | None, part: str, origin: Origin) -> Result:
    """The old result to go on with, if it was measured as a new one would be; else an empty one."""
    new = empty(part, origin)
    same = old is not None and all(
        getattr(old, name) == getattr(new, name) for name in ("schema", "part", "origin", "plan")
    )
    return old if old is not None and same else new


def cell(variant: str, key: Key, rounds: Sequence[Round]) -> Cell:
    """Describe the rounds of a variant in a cell."""
    load, ple, guests = key
    found = Cell(variant=variant, load=load, ple=ple, guests=guests, rates=[each.rate for each in rounds])
    whole = sum(each.whole for each in rounds)
    found.turns = sum(each.turns for each in rounds) or None
    cpus = [each.cpus for each in rounds if each.cpus is not None]
    found.cpus = median(cpus) if cpus else None
    if found.rates:
        found.median = median(found.rates)
        found.spread = (max(found.rates) - min(found.rates)) / found.median if found.median else None
    found.whole_share = min(1.0, whole / found.turns) if found.turns else None
    found.skew_mean_ms = sum(each.skew_ms for each in rounds) / whole if whole else None
    found.skew_p99_ms = _start_skew(rounds, 0.99)
    return found


def _start_skew(rounds: Sequence[Round], share: float) -> float | None:
    """Return ms by the rounds' histograms: bucket b counts turns that started within 2^b us (gang_abi.h)."""
    counts = [count for found in rounds for count in enumerate(found.start_skew)]
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


def key_of(found: Placed) -> Key:
    """Return the place of a cell of the document in the matrix."""
    return found.load, found.ple, found.guests


def merged(old: Iterable[Cell], new: Iterable[Cell]) -> list[Cell]:
    """Return all cells; of two in one place the new one."""
    by_place = {(found.variant, *key_of(found)): found for found in [*old, *new]}
    return list(by_place.values())


def is_complete(document: Result, key: Key, variants: Iterable[str], rounds: int) -> bool:
    """True if every variant has its rounds in this cell, or a reason why it cannot have them."""
    done = {
        found.variant
        for found in document.cells
        if key_of(found) == key and (len(found.rates) >= rounds or found.unavailable)
    }
    return set(variants) <= done


def finish(document: Result) -> Result:
    """Fill in what follows from what was measured: ratios and judgement."""
    keys = sorted({key_of(found) for found in document.cells})
    document.ratios = [ratio for key in keys for ratio in _ratios(document, key)]
    document.pooled = [row for load in sorted({key[0] for key in keys}) for row in pooled(document, load)]
    document.judged = list(bars.judged(document))
    return document


def medians(document: Result, key: Key) -> dict[str, float]:
    """Iterations/s by variant in one cell, `alone` among them."""
    return {
        found.variant: found.median
        for found in document.cells
        if key_of(found) == key and found.median is not None
    }


def _ratios(document: Result, key: Key) -> Iterator[Gain]:
    """Yield the ratios of every gang variant: to each baseline, to the best, and to one guest alone."""
    found = medians(document, key)
    rates = {c.variant: c.rates for c in document.cells if key_of(c) == key}
    runs = {each.run for each in document.cells if key_of(each) == key}
    known = {name: found[name] for name in BASELINES if found.get(name)}
    best = max(known, key=lambda name: known[name], default=None)
    for name in GANGS:
        if name in found:
            yield Gain(
                variant=name,
                load=key[0],
                ple=key[1],
                guests=key[2],
                best=best,
                of_best=_ratio(rates, name, best),
                of_limit=_ratio(rates, name, ALONE.name),
                of_default=_ratio(rates, name, "default"),
                of_pinned=_ratio(rates, name, "pinned"),
                of_balance=_ratio(rates, name, "balance"),
                cpus_of_best=_of_most(document, key, name),
                within_one_run=len(runs) == 1,
            )


def _ratio(rates: Mapping[str, list[float]], gang: str, other: str | None) -> stats.Ratio | None:
    """The median over histories (stats.middle); None without both."""
    if other is None or not rates.get(other):
        return None
    return stats.middle(zip(rates[gang], rates[other], strict=False))


def pooled(document: Result, load: str) -> Iterator[Pooled]:
    """The gang against each baseline over all rounds of a load with 2 guests and more, by cells (stats)."""
    rates: dict[tuple[Key, str], list[float]] = {
        (key_of(found), found.variant): found.rates
        for found in document.cells
        if found.load == load and found.guests > 1
    }
    for baseline in BASELINES:
        cells = [
            list(zip(found, rates.get((key, baseline), []), strict=False))
            for (key, variant), found in rates.items()
            if variant == "relaxed"
        ]
        found = stats.pooled(cells)
        if found.ratio is not None:
            yield Pooled(**asdict(found), load=load, baseline=baseline)


def _of_most(document: Result, key: Key, name: str) -> float | None:
    """The CPU time a variant's guests had, as a share of what the best baseline gave them."""
    cpus = {c.variant: c.cpus for c in document.cells if key_of(c) == key and c.cpus}
    most = max((cpus[baseline] for baseline in BASELINES if baseline in cpus), default=None)
    return cpus[name] / most if most and name in cpus else None
