# SPDX-License-Identifier: Apache-2.0
"""docs/results/seeds.md: each row of the seeds' tables, the seed's percentage beside ours, and why. Pure.

The tables are in the form of MMTests' compare-kernels: the mean (harmonic, for these are rates), the change
in percent, stars where its 95 % interval leaves zero out.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import harmonic_mean, median, stdev
from typing import Any

import msgspec

from bench import settings, stats
from bench.grid import Table
from bench.records import Result
from bench.seeds import plan
from bench.seeds.plan import ARMS, BASELINES

Document = dict[str, Any]
Rounds = list[Document]

HEAD = Path(__file__).with_name("head.md").read_text()
LATENCY = """99th percentiles of a Linux guest's reads of 4 KiB from its disk, one after the other (`fio`),
and of its answers to the host's pings (`ping`), beside three guests that are always busy, marked alike.
"""
HEADS = ("load", "guests", "RFC: over base, over pinned", "relaxed / default", "relaxed / pinned",
         "relaxed / best", "adaptive / best", "wanted of, of the best")  # fmt: skip
GUESTS = tuple(map(int, settings.SEEDS["guests"].split(",")))  # at once
OLD = "†"  # marks the row of a cell that the result carries (plan.carry)
EVEN = 0.03  # by which two arms may differ and be called equal


def lines(document: Result) -> Iterator[str]:
    """The page's part on one result, for each world a table of claims and one of figures."""
    before = plan.left(document)
    if before:
        dates = " and ".join(sorted({cell["date"] for cell in before}))
        states = sorted({cell["sources"][:12] for cell in before if cell.get("sources")})
        of = f" of sources `{'`, `'.join(states)}`" if states else ""
        yield (
            f"{OLD} measured on {dates}, before the last change of what a figure depends on{of}. The guests "
            "lost and the minutes are theirs, too."
        )
        yield ""
    measured = [cell for cell in [*document.seeds, *before] if has_rounds(cell)]
    for ple, features in plan.WORLDS:
        cells = [cell for cell in measured if (cell["ple"], cell["features"]) == (ple, features)]
        cells.sort(key=lambda cell: (plan.LOADS.index(cell["load"]), cell["guests"]))
        have = {(cell["load"], cell["guests"]) for cell in cells}
        missing = {n: [load for load in plan.LOADS if (load, n) not in have] for n in GUESTS}
        yield from (f"### PLE {'on' if ple else 'off'}, guests with {TOLD[features]}", "")
        if any(missing.values()):
            told = (f"{', '.join(loads)} with {number} guests" for number, loads in missing.items() if loads)
            yield from (f"Not measured yet: {'; '.join(told)}.", "")
        if not cells:
            continue
        yield from Table(HEADS, [*map(_claims, cells)]).markdown()
        yield from (*(f"* {why(cell)}" for cell in cells), "", "```text")
        yield from _figures(cells)
        yield from ("```", "")


TOLD = {"pv": "paravirtual features", "nopvspin": "`nopvspin`"}


def _claims(cell: Document) -> list[str]:
    best = best_of(cell)
    found = [("relaxed", "default"), ("relaxed", "pinned"), ("relaxed", best), ("adaptive", best)]
    ratios = [estimate(ratio(cell, arm, base)) for arm, base in found]
    load = f"{cell['load']} {OLD}" if "date" in cell else cell["load"]
    return [load, str(cell["guests"]), seed(cell), *ratios, wanted(cell)]


def has_rounds(cell: Document) -> bool:
    """True if each arm has a round: a run that was interrupted leaves a cell without."""
    return all(cell["arms"].get(arm) for arm in ARMS)


def seed(cell: Document) -> str:
    """Return the RFC's two percentages for this row; a dash where it has none."""
    name = plan.SEED_NAMES.get(cell["load"], "")
    found = plan.SEED[cell["ple"]].get(name, {}).get(cell["guests"])
    return "-" if found is None else f"{name}: {found[0]:+d} %, {found[1]:+d} %"


def best_of(cell: Document) -> str:
    """Return the baseline with the best median."""
    return max(BASELINES, key=lambda arm: median(rates(cell, arm)))


def rates(cell: Document, arm: str) -> list[float]:
    """Return the arm's rates, by round."""
    return [found["rate"] for found in cell["arms"][arm]]


def ratio(cell: Document, arm: str, base: str) -> stats.Ratio:
    """Return the median over the rounds of arm / base, with its interval."""
    return stats.middle(zip(rates(cell, arm), rates(cell, base), strict=False))


def estimate(found: stats.Ratio) -> str:
    """A ratio, its interval and number of rounds."""
    if found.ratio is None:
        return "-"
    interval = "" if found.low is None else f" ({found.low:.2f} to {found.high:.2f})"
    return f"{found.ratio:.2f}{interval}"


def wanted(cell: Document) -> str:
    """Return the row's bar and whether it is met, by the interval."""
    arm, least = plan.bar(cell)
    return f"{arm} {least:g}: {_verdict(ratio(cell, arm, best_of(cell)), least)}"


def why(cell: Document) -> str:
    """Return one sentence on why the row is as it is, from what gangd counted meanwhile."""
    best = best_of(cell)
    found = ratio(cell, "relaxed", best)
    place = f"{cell['load']}, {cell['guests']} guests"
    if found.ratio is None:
        return f"{place}: not measured."
    gang, other = told(cell["arms"]["relaxed"]), told(cell["arms"][best])
    facts = [f"{name} {gang[name]} (there {other[name]})" for name in gang if name in other]
    return f"{place}: `relaxed` {claim(found)} `{best}`: {', '.join(facts)}.{failures(cell)}"


def claim(found: stats.Ratio) -> str:
    """Return a claim as strong as the interval is, as far as that shows."""
    if found.low is None or found.high is None:
        return "cannot be told from"
    low, high = round(found.low, 2), round(found.high, 2)
    if low > 1 or high < 1:
        return "wins over" if low > 1 else "loses to"
    return "is level with" if low >= 1 - EVEN and high <= 1 + EVEN else "cannot be told from"


def failures(cell: Document) -> str:
    """Return how many rounds gangd failed, which count, and the first reason; nothing if there are none."""
    found = [round_["failed"] for rounds in cell["arms"].values() for round_ in rounds if "failed" in round_]
    return f" Failed rounds, which count: {len(found)} ({found[0]})." if found else ""


def told(rounds: Rounds) -> dict[str, str]:
    """Return what explains an arm, in words: medians of the rounds, per CPU second of the vCPUs."""

    def per_second(name: str) -> float:
        return float(median(found[name] / found["cpu_seconds"] for found in rounds if found["cpu_seconds"]))

    corun = median(found["corun_seconds"] / found["run_seconds"] for found in rounds if found["run_seconds"])
    words = {"co-run": f"{corun:.0%}", "switches": f"{per_second('switches'):,.0f}/s"}
    words["exits"] = f"{per_second('exits_total'):,.0f}/s"
    if any(found["pause_exits"] for found in rounds):
        words["PAUSE exits"] = f"{per_second('pause_exits'):,.0f}/s"
        words["of these LHP"] = f"{per_second('lhp_exits'):,.0f}/s"
    return words


def _figures(cells: Rounds) -> Iterator[str]:
    """MMTests' form: each arm's mean and standard deviation, and its change against `default`."""
    yield "".join([" " * 20, *(f"{arm:>24}" for arm in ARMS)])
    for cell in cells:
        place = f"{cell['load']} {cell['guests']}vm"
        base = rates(cell, "default")
        means = [
            _figure(harmonic_mean(rates(cell, arm)), harmonic_mean(base), _star(cell, arm)) for arm in ARMS
        ]
        spreads = [_figure(_stdev(rates(cell, arm)), _stdev(base), False, less=True) for arm in ARMS]
        yield "".join([f"Hmean  {place:<13}", *means])
        yield "".join([f"Stddev {place:<13}", *spreads])


def _stdev(found: list[float]) -> float:
    return stdev(found) if len(found) > 1 else 0.0


def _star(cell: Document, arm: str) -> bool:
    """True if the interval of the arm over `default` leaves 1 out."""
    found = ratio(cell, arm, "default")
    return found.low is not None and found.high is not None and not found.low <= 1 <= found.high


def _figure(value: float, base: float, sure: bool, less: bool = False) -> str:
    change = (value - base) / base * 100 if base else 0.0
    change = 0.0 - change if less else change
    left, right = ("*", "*") if sure else ("(", ")")
    return f"{value:,.1f} {left} {change:.1f}%{right}".rjust(24)


def latency(document: Result) -> Iterator[str]:
    """The table of the guest whose disk and network are measured beside busy ones."""
    heads = ("load", "PLE", "guests", *(f"{arm}, ms" for arm in ARMS), "relaxed / default", "wanted")
    rows = []
    for cell in document.latency:
        p99 = {arm: [found["p99_us"] for found in cell["arms"][arm]] for arm in ARMS}
        found = stats.middle(zip(p99["relaxed"], p99["default"], strict=False))
        times = (f"{median(each) / 1000:.2f}" if each else "-" for each in p99.values())
        place = (cell["load"] + failures(cell), "on" if cell["ple"] else "off", str(cell["guests"]))
        verdict = _verdict(_widened(found, plan.CLASS.get(cell["load"], 1.0)), plan.LATENCY_MOST, most=True)
        bound = f"at most {plan.LATENCY_MOST:g}: {verdict}"
        rows.append([*place, *times, estimate(found), bound])
    yield from Table(heads, rows).markdown()


def _widened(found: stats.Ratio, width: float) -> stats.Ratio:
    """Return the ratio of figures of which each may be up to `width` times too large."""
    if found.low is None or found.high is None:
        return found
    return msgspec.structs.replace(found, low=found.low / width, high=found.high * width)


def _verdict(found: stats.Ratio, bound: float, most: bool = False) -> str:
    """Return met or missed if the whole interval is, else open."""
    if found.low is None or found.high is None:
        return "open"
    verdicts = {end <= bound if most else end >= bound for end in (found.low, found.high)}
    return "open" if len(verdicts) > 1 else "met" if verdicts.pop() else "missed"
