# SPDX-License-Identifier: Apache-2.0
"""The bars of `make bench-harm` that are not one row's own, and the verdict on two figures.

A row that gangs miss and the default scheduler keeps is harm. Where default misses the same ideal, gangs have
to be no worse than default.
"""

from __future__ import annotations

from typing import Literal

Bound = Literal["least", "most", "within"]

SLACK = 1.05  # "within": what is given to one is taken from another, so more is a miss, too
WORST, MEDIAN = 0.85, 0.98  # of hosts made by chance: the worst party of each, and the median of these
WAIT, TICK_MS = 2.0, 4.0  # the longest wait, in those of default; below a tick all are alike
PATIENCE_MS = 5000.0  # where default lets nobody wait for longer, nobody is to be ejected
TURNS, TURN_SECONDS = 20, 0.012  # of a guest whose rounds are judged, at least, and how long each lasts
FEWEST = 10  # rounds a second: what is less by default is chance

KEPT, MISSED, AS_DEFAULT, UNKNOWN = "kept", "missed", "as default", "unknown"


def judge(
    yard: float | None, figure: float | None, wanted: float, bound: Bound, most: float | None = None
) -> str:
    """The verdict on a figure. By products, so that a yard of 0 has one, too."""
    if yard is None or figure is None:
        return UNKNOWN
    if most is not None and figure > most:
        return MISSED
    if bound == "most":
        return KEPT if figure <= wanted * yard else MISSED
    if bound == "within" and figure > SLACK * yard:
        return MISSED
    return KEPT if figure >= wanted * yard else MISSED


def compared(default: float | None, gangs: float | None, yard: float | None, wanted: float, bound: Bound,
             most: float | None) -> str:  # fmt: skip
    """The verdict on gangs, which `AS_DEFAULT` excuses where default misses the row, and is no better."""
    verdict = judge(yard, gangs, wanted, bound, most)
    if verdict != MISSED or judge(yard, default, wanted, bound, most) != MISSED:
        return verdict
    return AS_DEFAULT if judge(default, gangs, wanted, bound, most) == KEPT else MISSED
