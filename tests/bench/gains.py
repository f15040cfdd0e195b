# SPDX-License-Identifier: Apache-2.0
"""The table of who gains load by load: gangs over the best baseline, of matrix and seeds. Pure."""

from __future__ import annotations

from bench import stats
from bench.grid import Table
from bench.records import Result
from bench.result import key_of
from bench.seeds import page, plan

LINUX = {
    "barrier": "Linux: parallel loop of OpenMP",
    "ebizzy": "Linux: page faults and TLB shootdowns (ebizzy)",
    "hackbench": "Linux: processes that write to each other (hackbench)",
    "pgbench": "Linux: PostgreSQL (pgbench)",
    "dbench": "Linux: file system (dbench)",
    "compile": "Linux: compiling (GCC)",
}
FLAT = {
    "barrier": "test guest: barriers in user space",
    "ipi": "test guest: IPIs that are waited for",
    "spinlock": "test guest: one spinlock",
}
HEADS = ["Work done, times the best baseline's", "PLE: 2 guests", "4 guests", "no PLE: 2 guests", "4 guests"]
COLUMNS = [(ple, guests) for ple in (True, False) for guests in (2, 4)]
FEATURES = {True: "pv", False: "nopvspin"}  # of the Linux guests in the columns


Aged = tuple[Result, bool]  # a result, and True if it is of other conditions than today's


def table(matrix: Aged, seeds: Aged) -> Table:
    """Return the table."""
    rows = []
    for names, ratio in ((LINUX, _of_linux(*seeds)), (FLAT, _of_flat(*matrix))):
        for load, name in names.items():
            found = [ratio.get((load, *place)) for place in COLUMNS]
            if any(found):
                rows.append([name, *(each or "-" for each in found)])
    return Table(HEADS, rows)


Ratios = dict[tuple[str, bool, int], str]


def _of_linux(seeds: Result, is_old: bool) -> Ratios:
    cells = [cell for cell in [*seeds.seeds, *plan.left(seeds)] if page.has_rounds(cell)]
    return {
        (cell["load"], cell["ple"], cell["guests"]): _shown(
            page.ratio(cell, "relaxed", page.best_of(cell)), is_old or "date" in cell
        )
        for cell in cells
        if cell["features"] == FEATURES[cell["ple"]]
    }


def _of_flat(matrix: Result, is_old: bool) -> Ratios:
    return {
        key_of(found): _shown(found.of_best, is_old)
        for found in matrix.ratios
        if found.variant == "relaxed" and found.of_best
    }


def _shown(found: stats.Ratio, is_old: bool) -> str:
    """A ratio and its interval; bold if all of that is a loss, as far as it shows."""
    ratio, _, interval = page.estimate(found).partition(" ")
    loses = found.high is not None and round(found.high, 2) < 1
    words = (f"**{ratio}**" if loses else ratio, interval, page.OLD if is_old else "")
    return " ".join(filter(None, words))
