# SPDX-License-Identifier: Apache-2.0
"""The arms of the tile, its figures and its bars, written before the run. Pure.

A party's speed is its work per second, or how often its 99th percentile fits into a second: more is better.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import geometric_mean, median
from typing import Any, NamedTuple

from bench import stats
from bench.seeds import plan as seeds
from bench.tile.parties import BACKUP, LATENCIES, names

Cell = dict[str, Any]

ARMS = ("default", "pinned", "balance", "plain", "relaxed")
BASELINES = seeds.BASELINES
# By arm the policy that the mark names; None: the mark leaves the choice to gangd.
MARKS = {"balance": "balance", "relaxed": "relaxed", "plain": None}
WORLDS = seeds.WORLDS
LOAD = "tile"  # the name of its cells

GEOMEAN = "geometric mean"
# The least that is wanted of `plain`: of the mean over `default` and the best baseline, of the worst party.
OVER_DEFAULT, OVER_BEST, THROUGHPUT, LATENCY = 1.15, 1.10, 0.95, 1 / 1.1


class Bar(NamedTuple):
    """A bar beside what was measured. verdict: met, missed or open."""

    what: str
    wanted: float
    measured: stats.Ratio
    verdict: str


def turns(rounds: int) -> list[tuple[int, str]]:
    """Return round and arm in the order of their measurement, the seeds' tables': `plain` decides once."""
    return [(number, "plain" if arm == "adaptive" else arm) for number, arm in seeds.turns(rounds)]


def is_whole(cells: list[Cell], ples: list[bool], guests: int, rounds: int) -> bool:
    """True if the cells of these worlds have so many rounds of each arm."""
    worlds = [(ple, features) for ple, features in WORLDS if ple in ples]
    found = [seeds.found(cells, {"ple": p, "features": f, "guests": guests}) for p, f in worlds]
    return all(cell is not None and lacks(cell, rounds) == 0 for cell in found)


def lacks(cell: Cell, rounds: int) -> int:
    """Return how many rounds the cell lacks."""
    return sum(max(0, rounds - len(cell["arms"][arm])) for arm in ARMS)


def speeds(cell: Cell, arm: str, party: str) -> list[float]:
    """Return a party's speeds, by round; 0 in a round that gangd failed, unless the arm is its own choice."""
    rounds = cell["arms"][arm]
    return [0.0 if "failed" in one and arm != "plain" else one["speeds"][party] for one in rounds]


def ratio(cell: Cell, arm: str, party: str, base: str = "default") -> stats.Ratio:
    """Return the median over the rounds of a party's speed, arm / base, with its interval."""
    return stats.middle(zip(speeds(cell, arm, party), speeds(cell, base, party), strict=False))


def mean(cell: Cell, arm: str, base: str = "default") -> stats.Ratio:
    """Return the median over the rounds of the geometric mean of the guests' ratios, with its interval.

    The host's task is not in it: the default class gives it between nothing and its share.
    """
    guests = (party for party in names(cell["guests"]) if party != BACKUP)
    found = zip(*(_ratios(cell, arm, base, party) for party in guests), strict=True)
    return stats.middle((geometric_mean(ratios) if all(ratios) else 0.0, 1.0)
                        for ratios in found if None not in ratios)  # fmt: skip


def _ratios(cell: Cell, arm: str, base: str, party: str) -> list[Any]:
    """Return a party's ratios by round; None where it got nothing done under `base`."""
    both = zip(speeds(cell, arm, party), speeds(cell, base, party), strict=False)
    return [ours / theirs if theirs else None for ours, theirs in both]


def best(cell: Cell) -> str:
    """Return the baseline with the best geometric mean."""
    return max(BASELINES, key=lambda arm: mean(cell, arm).ratio or 0.0)


def worst(cell: Cell, arm: str, among: tuple[str, ...] | None = None) -> tuple[str, stats.Ratio]:
    """Return the party that an arm serves worst, compared with `default`, and its ratio."""
    found = {party: ratio(cell, arm, party) for party in among or names(cell["guests"])}
    known = {party: each for party, each in found.items() if each.ratio is not None}
    return min((known or found).items(), key=lambda item: item[1].ratio or 0.0)


def bars(cell: Cell) -> Iterator[Bar]:
    """Yield what is wanted of `plain` beside what was measured."""
    top = best(cell)
    yield _judged(f"{GEOMEAN}, plain / default", OVER_DEFAULT, mean(cell, "plain"))
    yield _judged(f"{GEOMEAN}, plain / best ({top})", OVER_BEST, mean(cell, "plain", top))
    here = names(cell["guests"])
    for what, least, among in (
        ("throughput", THROUGHPUT, tuple(party for party in here if party not in LATENCIES)),
        ("latency", LATENCY, tuple(party for party in here if party in LATENCIES)),
    ):
        party, found = worst(cell, "plain", among)
        yield _judged(f"worst {what} ({party}), plain / default", least, found)


def _judged(what: str, wanted: float, found: stats.Ratio) -> Bar:
    """Judge by the whole interval: open if the bar is in it, or if there is none."""
    if found.low is None or found.high is None:
        return Bar(what, wanted, found, "open")
    verdict = "met" if found.low >= wanted else "missed" if found.high < wanted else "open"
    return Bar(what, wanted, found, verdict)


def medians(cell: Cell, arm: str, name: str, party: str) -> float:
    """Return the median over an arm's rounds of one of a party's figures (speeds, p50_us, p99_us, cpus)."""
    return float(median(one[name][party] for one in cell["arms"][arm]))
