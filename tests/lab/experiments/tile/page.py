# SPDX-License-Identifier: Apache-2.0
"""The tables of the tile, for a terminal and as Markdown: a row a party, a column an arm. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from experiments import stats
from experiments.tile import plan
from experiments.tile.parties import BACKUP, LATENCIES, names
from experiments.tile.plan import ARMS, GEOMEAN, Cell

Row = list[str]
OVER_BEST = "mean over the best"


def lines(document: dict[str, Any]) -> Iterator[str]:
    """Yield what a terminal shows of a result; nothing if the result has no tile."""
    for cell in measured(document):
        yield ""
        yield title(cell)
        yield from _aligned([heads(cell), *rows(cell)])
        yield ""
        yield from _aligned([["", "wanted", "measured", ""], *bars(cell)])
        yield from failures(cell)


def markdown(document: dict[str, Any]) -> Iterator[str]:
    """Yield the same as Markdown, a section for each world."""
    for cell in measured(document):
        yield from (f"#### {title(cell)}", "")
        yield from _piped([heads(cell), *rows(cell)])
        yield from ("", *_piped([["What", "Wanted", "Measured", "Verdict"], *bars(cell)]), "")
        for failure in failures(cell):
            yield from (f"{failure}.", "")


def measured(document: dict[str, Any]) -> list[Cell]:
    """Return the cells in which each arm has a round."""
    return [cell for cell in document.get(plan.LOAD, []) if all(cell["arms"][arm] for arm in ARMS)]


def title(cell: Cell) -> str:
    """Return the world of a cell in words."""
    features = "paravirtual features" if cell["features"] == "pv" else cell["features"]
    return f"PLE {'on' if cell['ple'] else 'off'}, guests with {features}"


def heads(cell: Cell) -> Row:
    """Return the arms, and what `default` has."""
    return ["speed over default's", "default has", *ARMS[1:]]


def rows(cell: Cell) -> Iterator[Row]:
    """Yield the means, the worst party, and each party."""
    yield [GEOMEAN, "", *(estimate(plan.mean(cell, arm)) for arm in ARMS[1:])]
    guests = tuple(party for party in names(cell["guests"]) if party != BACKUP)
    yield [
        f"{GEOMEAN}, guests alone",
        "",
        *(estimate(plan.mean(cell, arm, among=guests)) for arm in ARMS[1:]),
    ]
    best = plan.best(cell)
    yield [f"{OVER_BEST} ({best})", "", *(estimate(plan.mean(cell, arm, best)) for arm in ARMS[1:])]
    yield ["worst party", "", *(_worst(cell, arm) for arm in ARMS[1:])]
    for party in names(cell["guests"]):
        ratios = (estimate(plan.ratio(cell, arm, party)) for arm in ARMS[1:])
        yield [party, figure(cell, "default", party), *ratios]


def figure(cell: Cell, arm: str, party: str) -> str:
    """Return a party's median figure: its p99, or its work per second, and the CPUs that it had."""
    if party in LATENCIES:
        told = f"p99 {plan.medians(cell, arm, 'p99_us', party) / 1000:.1f} ms"
    else:
        told = f"{plan.medians(cell, arm, 'speeds', party):,.4g}/s"
    return f"{told}, {plan.medians(cell, arm, 'cpus', party):.2f} CPUs"


def _worst(cell: Cell, arm: str) -> str:
    party, found = plan.worst(cell, arm)
    return f"{party} {'-' if found.ratio is None else f'{found.ratio:.2f}'}"


def bars(cell: Cell) -> Iterator[Row]:
    """Yield a row for each bar."""
    for bar in plan.bars(cell):
        yield [bar.what, f">= {bar.wanted:.2f}", estimate(bar.measured), bar.verdict]


def failures(cell: Cell) -> Iterator[str]:
    """Yield how many rounds gangd failed, and the first reason; nothing if there are none."""
    found = [one["failed"] for arm in ARMS for one in cell["arms"][arm] if "failed" in one]
    if found:
        yield f"rounds that gangd failed: {len(found)} ({found[0]})"


def estimate(found: stats.Ratio) -> str:
    """Return a ratio and its interval; a dash where it is not known."""
    if found.ratio is None:
        return "-"
    interval = "" if found.low is None else f" ({found.low:.2f} to {found.high:.2f})"
    return f"{found.ratio:.2f}{interval}"


def _piped(table: list[Row]) -> Iterator[str]:
    head, *rest = table
    for row in (head, ["---"] * len(head), *rest):
        yield f"| {' | '.join(row)} |"


def _aligned(table: list[Row]) -> Iterator[str]:
    """The first column to the left, all others to the right."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        rest = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        yield "  ".join([row[0].ljust(widths[0]), *rest]).rstrip()
