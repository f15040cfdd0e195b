# SPDX-License-Identifier: Apache-2.0
"""The tables of the tile, for a terminal and as Markdown: a row a party, a column an arm. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bench import stats
from bench.grid import Table
from bench.records import Result
from bench.tile import plan
from bench.tile.parties import LATENCIES, names
from bench.tile.plan import ARMS, GEOMEAN, Cell

Row = list[str]
OVER_BEST = "mean over the best"
SHOWN = ("pinned", "plain", "relaxed")  # arms of a table with a row a world


def lines(document: Result) -> Iterator[str]:
    """Yield what a terminal shows of a result; nothing if the result has no tile."""
    for cell in measured(document):
        yield from ("", *figures(cell).text(), "", *judged(cell).text())


def markdown(document: Result) -> Iterator[str]:
    """Yield the same as Markdown, a section for each world."""
    for cell in measured(document):
        yield from (*figures(cell, "#### ").markdown(), *judged(cell).markdown())


def figures(cell: Cell, mark: str = "") -> Table:
    """Return what each party had under each arm. mark: before the title."""
    return Table(heads(cell), [*rows(cell)], mark + title(cell))


def judged(cell: Cell) -> Table:
    """Return the bars, and what gangd failed."""
    return Table(("What", "Wanted", "Measured", "Verdict"), [*bars(cell)], notes=[*failures(cell)])


def measured(document: Result) -> list[Cell]:
    """Return the cells in which each arm has a round."""
    return [cell for cell in document.tile if all(cell["arms"][arm] for arm in ARMS)]


def title(cell: Cell) -> str:
    """Return the world of a cell in words."""
    features = "paravirtual features" if cell["features"] == "pv" else cell["features"]
    return f"PLE {'on' if cell['ple'] else 'off'}, guests with {features}"


def worlds(found: Iterable[tuple[str, Result, Cell]]) -> Table:
    """Return a row for each world, the means and the worst parties. mark: said before its name."""
    rows = [
        [f"{mark}{place(document)}, {title(cell)}",
         *(text for arm in SHOWN for text in (estimate(plan.mean(cell, arm)), _worst(cell, arm)))]
        for mark, document, cell in found
    ]  # fmt: skip
    arms = [text for arm in SHOWN for text in (f"{arm}: mean", "worst party")]
    return Table(["the same elsewhere, over default's", *arms], rows)


def place(document: Result) -> str:
    """Return the host of a result in words."""
    module = ", gang.ko" if document.origin.module else ""
    return f"kernel {document.origin.row}{module}, {document.origin.smp} CPUs"


def heads(cell: Cell) -> Row:
    """Return the arms, and what `default` has."""
    return ["speed over default's", "default has", *ARMS[1:]]


def rows(cell: Cell) -> Iterator[Row]:
    """Yield the guests' means, the worst party, and each party."""
    yield [GEOMEAN, "", *(estimate(plan.mean(cell, arm)) for arm in ARMS[1:])]
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
