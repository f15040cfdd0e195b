# SPDX-License-Identifier: Apache-2.0
"""The tables: guests in rows and every figure in a column for each phase; all loads; verdicts. Pure.

A view is the part of a run that one load's guests are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from lab.observe.figures import number

PHASES = ("default", "pinned", "gang", "after")
HEADS = ("1st", "pin", "gang", "4th")
NARROW, SEPARATOR = "|", " | "
NOT_MEASURED = "not measured"
LONG = 16  # a cell that is longer goes below the table


def count(value: float | None) -> str:
    """Return a number in four characters: 999, 1.2k, 12k."""
    if value is None or value >= 9950:
        return "-" if value is None else f"{value / 1e3:.0f}k"
    return f"{value:.0f}" if value < 999.5 else f"{value / 1e3:.1f}k"


def share(value: float | None) -> str:
    """A percentage; "-" for unknown."""
    return "-" if value is None else f"{value:.0%}"


def ratio(value: float | None) -> str:
    """How many times; "-" for unknown."""
    return "-" if value is None else f"{value:.2f}x"


def delay(value: float | None) -> str:
    """Seconds per second."""
    return "-" if value is None else f"{value:.2f}"


# title, field, how it is shown, width of a column
COLUMNS: tuple[tuple[str, str, Callable[[float | None], str], int], ...] = (
    ("iterations/s", "throughput", number, 5),
    ("co-run", "corun", share, 4),
    ("PAUSE exits/s", "pause_exits", count, 4),
    ("LHP exits/s", "lhp_exits", count, 4),
    ("delay s/s", "run_delay", delay, 4),
    ("switches/s", "switches", count, 4),
)


def views(runs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Every load of every run that was planned, also those that were not reached."""
    return [
        {
            "title": f"{load}/{'on' if run['ple'] else 'off'}",
            "load": load,
            "guests": [name for name, its in run["loads"].items() if its == load],
            **{key: run[key] for key in ("ple", "phases", "restored", "lost")},
        }
        for run in runs
        for load in run["planned"]
    ]


def of_run(run: Mapping[str, Any]) -> list[str]:
    """The lines of one element of result.json's `runs`."""
    names = [*run["loads"], *run["planned"]]
    short = {name: name.rpartition("-")[2] for name in names}
    width = max(map(len, short.values()))
    lines = [f"PLE {'on' if run['ple'] else 'off'}", *_heading(width)]
    for name in names:
        cells = [_cells(run["phases"], name, field, show, size) for _, field, show, size in COLUMNS]
        lines.append(NARROW.join([short[name].rjust(width), *cells]).rstrip())
    return lines


def _heading(first: int) -> list[str]:
    widths = [len(HEADS) * (width + 1) - 1 for *_, width in COLUMNS]
    titles = [title.center(width) for (title, *_), width in zip(COLUMNS, widths, strict=True)]
    heads = [" ".join(head.rjust(width) for head in HEADS) for *_, width in COLUMNS]
    above, below = NARROW.join([" " * first, *titles]), NARROW.join([" " * first, *heads])
    return [above.rstrip(), below, "-" * len(below)]


def _cells(
    phases: Mapping[str, Any], name: str, field: str, show: Callable[[float | None], str], width: int
) -> str:
    return " ".join(show(figure(phases, phase, name, field)).rjust(width) for phase in PHASES)


def figure(phases: Mapping[str, Any], phase: str, name: str, field: str) -> float | None:
    """Return a figure of a guest; None unless its phase was measured to the end."""
    found = phases.get(phase, {})
    if not found.get("measured"):
        return None
    value: float | None = found["figures"].get(name, {}).get(field)
    return value


def total(view: Mapping[str, Any], phase: str, field: str = "throughput") -> float | None:
    """Return a figure of all guests together."""
    return figure(view["phases"], phase, view["load"], field)


def worst_corun(view: Mapping[str, Any], phase: str) -> float | None:
    """The co-run share of the guest that has the smallest; None unless it is known of all."""
    values = [figure(view["phases"], phase, name, "corun") for name in view["guests"]]
    known = [value for value in values if value is not None]
    return min(known) if known and len(known) == len(values) else None


def against(view: Mapping[str, Any], phase: str, other: str) -> float | None:
    """The throughput of all guests in one phase as a multiple of another's."""
    one, base = total(view, phase), total(view, other)
    return one / base if one is not None and base else None


def overview(found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A row for each view: iterations and co-run share in every phase, and what the gang gained."""
    rows = [["load/PLE", "guests", "default", "pinned", "gang", "default", "/default", "/pinned",
             *("default", "pinned", "gang", "default")]]  # fmt: skip
    for view in found:
        rows.append([
            view["title"],
            str(len(view["guests"]) or "-"),
            *(number(total(view, phase)) for phase in PHASES),
            *(ratio(against(view, "gang", base)) for base in ("default", "pinned")),
            *(share(worst_corun(view, phase)) for phase in PHASES),
        ])  # fmt: skip
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    groups = (
        (0, 2, ""),
        (2, 6, "iterations/s, all guests"),
        (6, 8, "gang's gain"),
        (8, 12, "co-run, worst guest"),
    )
    spans = [sum(widths[first:last]) + last - first - 1 for first, last, _ in groups]
    heads = [text.center(span) for (*_, text), span in zip(groups, spans, strict=True)]
    lines = [SEPARATOR.join(heads).rstrip()]
    for row in rows:
        cells = [
            cell.ljust(w) if n == 0 else cell.rjust(w)
            for n, (cell, w) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append(SEPARATOR.join(" ".join(cells[first:last]) for first, last, _ in groups).rstrip())
    yield from [*lines[:2], "-" * max(map(len, lines)), *lines[2:]]


def verdicts(found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A row for each check, a column for each view; then the checks that are not of a load."""
    of_runs = [check for check in found if check["view"]]
    titles = list(dict.fromkeys(check["view"] for check in of_runs))
    rows = [["", "wanted", *titles]]
    footnotes = []
    for name in dict.fromkeys(check["name"] for check in of_runs):
        checks = [check for check in of_runs if check["name"] == name]
        mark = " *" if any(check["required"] for check in checks) else ""
        rows.append(
            [name + mark, " / ".join(dict.fromkeys(c["wanted"] for c in checks)), *map(_cell, checks)]
        )
        footnotes += [
            f"{c['view']}, {name}: {c['reached']} {c['verdict']}" for c in checks if len(c["reached"]) > LONG
        ]
    yield from _aligned(rows)
    yield from footnotes
    others = [check for check in found if not check["view"]]
    yield ""
    yield from _aligned(
        [[c["name"] + " *" * c["required"], c["wanted"], c["reached"], c["verdict"]] for c in others]
    )


def _cell(check: Mapping[str, Any]) -> str:
    if check["verdict"] == NOT_MEASURED or len(check["reached"]) > LONG:
        return str(check["verdict"])
    return f"{check['reached']} {check['verdict']}"


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
