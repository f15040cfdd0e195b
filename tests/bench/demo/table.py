# SPDX-License-Identifier: Apache-2.0
"""The tables: guests in rows and every figure in a column for each phase; all loads; verdicts. Pure.

A view is the part of a run that one load's guests are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from bench.grid import Table
from lab.observe.figures import number

PHASES = ("default", "pinned", "gang", "after")
HEADS = ("1st", "pin", "gang", "4th")
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


# title, field, how it is shown
COLUMNS: tuple[tuple[str, str, Callable[[float | None], str]], ...] = (
    ("iterations/s", "throughput", number),
    ("co-run", "corun", share),
    ("PAUSE exits/s", "pause_exits", count),
    ("LHP exits/s", "lhp_exits", count),
    ("delay s/s", "run_delay", delay),
    ("switches/s", "switches", count),
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


def of_run(run: Mapping[str, Any]) -> Table:
    """Return the figures of an element of result.json's `runs`."""
    rows = [
        [name.rpartition("-")[2]]
        + [show(figure(run["phases"], phase, name, field)) for _, field, show in COLUMNS for phase in PHASES]
        for name in [*run["loads"], *run["planned"]]
    ]
    groups = [("", 1), *((title, len(PHASES)) for title, *_ in COLUMNS)]
    title = f"PLE {'on' if run['ple'] else 'off'}"
    return Table(["", *HEADS * len(COLUMNS)], rows, title, "r", groups, "|")


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


def overview(found: Sequence[Mapping[str, Any]]) -> Table:
    """A row for each view: iterations and co-run share in every phase, and what the gang gained."""
    rows = [
        [
            view["title"],
            str(len(view["guests"]) or "-"),
            *(number(total(view, phase)) for phase in PHASES),
            *(ratio(against(view, "gang", base)) for base in ("default", "pinned")),
            *(share(worst_corun(view, phase)) for phase in PHASES),
        ]
        for view in found
    ]
    phases = ("default", "pinned", "gang", "default")
    heads = ["load/PLE", "guests", *phases, "/default", "/pinned", *phases]
    groups = [("", 2), ("iterations/s, all guests", 4), ("gang's gain", 2), ("co-run, worst guest", 4)]
    return Table(heads, rows, groups=groups, between=" | ")


def verdicts(found: Sequence[Mapping[str, Any]]) -> Iterator[Table]:
    """A row for each check, a column for each view; then the checks that are not of a load."""
    of_runs = [check for check in found if check["view"]]
    rows, notes = [], []
    for name in dict.fromkeys(check["name"] for check in of_runs):
        checks = [check for check in of_runs if check["name"] == name]
        mark = " *" * any(check["required"] for check in checks)
        bar = " / ".join(dict.fromkeys(check["wanted"] for check in checks))
        rows.append([name + mark, bar, *map(_cell, checks)])
        notes += [f"{c['view']}, {name}: {c['reached']} {c['verdict']}" for c in checks if _is_long(c)]
    yield Table(["", "wanted", *dict.fromkeys(c["view"] for c in of_runs)], rows, align="l", notes=notes)
    others = [check for check in found if not check["view"]]
    rows = [[c["name"] + " *" * c["required"], c["wanted"], c["reached"], c["verdict"]] for c in others]
    yield Table([], rows, align="l")


def _cell(check: Mapping[str, Any]) -> str:
    if check["verdict"] == NOT_MEASURED or _is_long(check):
        return str(check["verdict"])
    return f"{check['reached']} {check['verdict']}"


def _is_long(check: Mapping[str, Any]) -> bool:
    return len(check["reached"]) > LONG
