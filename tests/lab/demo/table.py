# SPDX-License-Identifier: Apache-2.0
"""The table of one run: guests in rows, every figure in three columns, one for each phase. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from demo.figures import TOTAL

PHASES = ("default", "gang", "after")
HEADS = ("1st", "gang", "3rd")
BAR = 40
SEPARATOR = " |"


def number(value: float | None) -> str:
    """Three significant digits, at most five characters: 123k, 1.23M, 0.05; "-" for unknown."""
    if value is None:
        return "-"
    for limit, scale, unit in ((999.5, 1, ""), (999_500, 1e3, "k"), (999.5e6, 1e6, "M")):
        if abs(value) < limit or unit == "M":
            return _digits(value / scale) + unit
    raise AssertionError


def count(value: float | None) -> str:
    """As `number`, in four characters: 999, 1.2k, 12k."""
    if value is None or value >= 9950:
        return "-" if value is None else f"{value / 1e3:.0f}k"
    return f"{value:.0f}" if value < 999.5 else f"{value / 1e3:.1f}k"


def share(value: float | None) -> str:
    """A percentage; "-" for unknown."""
    return "-" if value is None else f"{value:.0%}"


def delay(value: float | None) -> str:
    """Seconds per second."""
    return "-" if value is None else f"{value:.2f}"


# title, field, how it is shown, width of a column
COLUMNS: tuple[tuple[str, str, Callable[[float | None], str], int], ...] = (
    ("iterations/s", "throughput", number, 5),
    ("co-run", "corun", share, 4),
    ("PAUSE exits/s", "pause_exits", number, 5),
    ("LHP exits/s", "lhp_exits", number, 5),
    ("delay s/s", "run_delay", delay, 4),
    ("switches/s", "switches", count, 4),
)


def of_run(run: Mapping[str, Any]) -> list[str]:
    """The lines of one element of result.json's `runs`."""
    lines = [f"PLE {'on' if run['ple'] else 'off'}, {run['load']}", *_heading()]
    names = [*run["guests"], TOTAL]
    short = {name: name.rpartition("-")[2] for name in names}
    for name in names:
        cells = [_cells(run["phases"], name, field, show, width) for _, field, show, width in COLUMNS]
        lines.append(SEPARATOR.join([f"{short[name]:>3}", *cells]).rstrip())
    return [*lines, "", *_bars(run["phases"])]


def _heading() -> list[str]:
    widths = [3 * width + 2 for *_, width in COLUMNS]
    titles = [title.center(width) for (title, *_), width in zip(COLUMNS, widths, strict=True)]
    heads = [" ".join(head.rjust(width) for head in HEADS) for *_, width in COLUMNS]
    first, second = SEPARATOR.join(["   ", *titles]), SEPARATOR.join(["   ", *heads])
    return [first.rstrip(), second, "-" * len(second)]


def _cells(
    phases: Mapping[str, Any], name: str, field: str, show: Callable[[float | None], str], width: int
) -> str:
    values = [phases.get(phase, {}).get("figures", {}).get(name, {}).get(field) for phase in PHASES]
    return " ".join(show(value).rjust(width) for value in values)


def _bars(phases: Mapping[str, Any]) -> list[str]:
    totals = {p: phases.get(p, {}).get("figures", {}).get(TOTAL, {}).get("throughput") for p in PHASES}
    most = max([value for value in totals.values() if value], default=0)
    names = {"default": "1st: default scheduler", "gang": "gang: all marked", "after": "3rd: unmarked"}
    lines = []
    for phase, value in totals.items():
        bar = "#" * round(BAR * value / most) if value else ""
        note = "" if phases.get(phase, {}).get("measured") else "  (not measured to the end)"
        lines.append(f"  {names[phase]:24} {number(value):>5}  {bar}{note}")
    return lines


def _digits(value: float) -> str:
    size = abs(value)
    if size == 0:
        return "0"
    return f"{value:.0f}" if size >= 99.95 else f"{value:.1f}" if size >= 9.995 else f"{value:.2f}"
