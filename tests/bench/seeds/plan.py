# SPDX-License-Identifier: Apache-2.0
"""The arms, the findings of the seeds, and our bars, written before the run. Pure."""

from __future__ import annotations

from typing import Any

from bench.records import Result

ARMS = ("default", "pinned", "balance", "relaxed", "adaptive")
BASELINES = ("default", "pinned", "balance")
MARKS = ("balance", "relaxed", "adaptive")  # policies of gangd; in the other arms no guest is marked
# By PLE and features: the RFC's second table, and its first one as of today. The other two pairs, measured
# until 2026-11, changed relaxed / best by 0.07 in the median cell of the same PLE.
WORLDS = ((False, "nopvspin"), (True, "pv"))

# Percent by which version 2 of the RFC gained over the base kernel, and over it with pinned vCPUs, by number
# of guests (Dadhania, "Gang scheduling in CFS", linux-kernel, 2011-12-19): of 8 vCPUs, on 8 CPUs.
SEED_NAMES = {"ebizzy": "ebizzy", "hackbench": "hbench", "dbench": "dbench", "compile": "kbench",
              "pgbench": "specjbb"}  # fmt: skip
SEED = {
    True: {
        "kbench": {2: (2, 3), 4: (11, 7), 8: (8, 6)},
        "ebizzy": {2: (2, 5), 4: (4, 3), 8: (23, 26)},
        "specjbb": {2: (-17, -18), 4: (-33, -34), 8: (28, 55)},
        "hbench": {2: (28, 15), 4: (-20, -12), 8: (-189, -64)},
        "dbench": {2: (-3, -3), 4: (-13, 0), 8: (12, -12)},
    },
    False: {
        "kbench": {2: (22, -6), 4: (-11, -29), 8: (12, 6)},
        "ebizzy": {2: (1520, 885), 4: (930, 761), 8: (771, 602)},
        "specjbb": {2: (0, 0), 4: (2, 0), 8: (-8, -11)},
        "hbench": {2: (-32, -49), 4: (12, 48), 8: (-7, 60)},
        "dbench": {2: (-17, -1), 4: (-2, 1), 8: (44, 102)},
    },
}
SPIN, ORDINARY = ("ebizzy", "barrier"), ("hackbench", "dbench", "pgbench", "compile")
LOADS = (*SPIN, *ORDINARY)
# By load, PLE and features (None: any): the least ratio to the best baseline that is wanted of the arm.
BARS = (
    (SPIN, False, None, "relaxed", 1.5),
    (SPIN, True, "pv", "relaxed", 1.0),
    (ORDINARY, None, None, "adaptive", 0.97),
)

PLACE = ("load", "ple", "features", "guests")  # these values name a cell
# The 99th percentile of a marked guest's reads and pings beside busy guests is at most so many `default`'s.
LATENCY_MOST = 1.5
# A read is counted in a class, a quarter of an octave, and told as its upper end: so many times too long.
CLASS = {"fio": 1.25}


def turns(rounds: int) -> list[tuple[int, str]]:
    """Return round and arm in the order of their measurement.

    The kernel verifies the scheduler for some virtual seconds, so `relaxed` has its rounds in a row, between
    two halves of the baselines': what changes in a guest with time falls on all alike. `adaptive` decides
    once, after them.
    """
    half = (rounds + 1) // 2
    before, after = ([(n, arm) for n in part for arm in BASELINES[:: 1 if n % 2 == 0 else -1]]
                     for part in (range(half), range(half, rounds)))  # fmt: skip
    relaxed, adaptive = ([(n, arm) for n in range(rounds)] for arm in ("relaxed", "adaptive"))
    return [*before, *relaxed, *after, *adaptive]


def found(cells: list[dict[str, Any]], key: dict[str, Any]) -> dict[str, Any] | None:
    """Return the cell with this load, PLE, features and number of guests; None if there is none."""
    return next((cell for cell in cells if key.items() <= cell.items()), None)


def left(document: Result) -> list[dict[str, Any]]:
    """Return the cells of earlier sources (`carry`) that the result has not measured again."""
    now = document.seeds
    asked = (cell for cell in document.before if (cell["ple"], cell["features"]) in WORLDS)
    return [cell for cell in asked if not found(now, {n: cell[n] for n in PLACE})]


def carry(old: Result, new: Result) -> None:
    """Keep the cells of `old` in `new`, each with its date and sources, and what was lost and spent on them:
    the page has no holes for hours."""
    stamp = {"date": old.date, "sources": old.origin.sources}
    new.before = [*({**cell, **stamp} for cell in old.seeds), *left(old)]
    new.lab_failures = [*old.lab_failures, *new.lab_failures]
    new.wall_seconds += old.wall_seconds


def is_whole(cell: dict[str, Any] | None, rounds: int) -> bool:
    """True if the cell has so many rounds of every arm."""
    return cell is not None and all(len(cell["arms"][arm]) >= rounds for arm in ARMS)


def bar(cell: dict[str, Any]) -> tuple[str, float]:
    """Return the arm of which something is wanted in this row, and how much."""
    for loads, ple, features, arm, least in BARS:
        if cell["load"] in loads and ple in (None, cell["ple"]) and features in (None, cell["features"]):
            return arm, least
    raise KeyError(cell["load"])
