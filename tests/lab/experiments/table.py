# SPDX-License-Identifier: Apache-2.0
"""The result as people read it: one line a cell, then wanted beside measured. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from statistics import median
from typing import Any

from observe.figures import number

from experiments.result import Document, Key, key_of, medians
from experiments.tile import page as tile
from experiments.variants import ADAPTIVE, BASELINES, NAMES

Row = list[str]
OPS = ("select_cpu", "enqueue", "dispatch", "running", "stopping", "tick")
AGAINST = ("load", "PLE", "n", "variant", "over pinned", "over the best", "over default", "over alone")


def lines(document: Document) -> Iterator[str]:
    """Everything that is printed at the end."""
    yield from matrix(document)
    yield from _pooled(document)
    yield from _overhead(document)
    yield from _adaptive(document.get("adaptive"))
    yield from _shares(document.get("shares"))
    yield from _noise(document.get("rows"))
    yield from tile.lines(document)
    yield ""
    yield from _aligned([["", "wanted", "measured", ""], *map(_judged, document["judged"])])
    yield ""
    yield from notes(document)


def matrix(document: Document) -> Iterator[str]:
    """Yield what gangs make of each baseline; then iterations/s of all guests together, and the limit."""
    keys = sorted({key_of(found) for found in document["cells"]}, key=_place)
    if not keys:
        return
    yield "a gang over baselines, median of the rounds and its 95 % interval; best of " + ", ".join(BASELINES)
    rows = [against(ratio) for ratio in sorted(document["ratios"], key=lambda ratio: _place(_key(ratio)))]
    yield from _aligned([[*AGAINST], *rows])
    yield ""
    yield "iterations/s of all guests, medians"
    heads = ["load", "PLE", "n", *NAMES, "alone", "whole", "rounds", "failed"]
    yield from _aligned([heads, *(_cells(document, key) for key in keys)])


def against(ratio: Document) -> Row:
    """A gang variant of a cell over each baseline, in the columns AGAINST."""
    load, ple, guests = _key(ratio)
    found = [ratio["of_pinned"], ratio["of_best"], ratio["of_default"], ratio["of_limit"]]
    return [load, "on" if ple else "off", str(guests), ratio["variant"], *map(estimate, found)]


def estimate(found: Document | None) -> str:
    """A ratio and its interval; a dash where it is not known."""
    if found is None or found["ratio"] is None:
        return "-"
    interval = "" if found["low"] is None else f", {found['low']:.2f} to {found['high']:.2f}"
    return f"{found['ratio']:.2f}{interval}"


def _key(ratio: Document) -> Key:
    return ratio["load"], ratio["ple"], ratio["guests"]


def _place(key: Key) -> tuple[bool, str, int]:
    return key[1], key[0], key[2]


def _cells(document: Document, key: Key) -> Row:
    found = medians(document, key)
    cells = [each for each in document["cells"] if key_of(each) == key]
    whole = next((each["whole_share"] for each in cells if each["variant"] == "relaxed"), None)
    return [
        *(key[0], "on" if key[1] else "off", str(key[2])),
        *(number(found.get(name)) for name in (*NAMES, "alone")),
        *(_share(whole), str(sum(len(each["rates"]) for each in cells))),
        str(sum(each["failed"] for each in cells)),
    ]


def _pooled(document: Document) -> Iterator[str]:
    """A line a load."""
    by_load: dict[str, Document] = {}
    for row in document.get("pooled", []):
        by_load.setdefault(row["load"], {})[row["baseline"]] = row
    if by_load:
        yield ""
        yield "gang against each baseline, all rounds of a load with 2 guests and more; 95 % by cells"
        rows = [[load, *(_give(found.get(name)) for name in BASELINES)] for load, found in by_load.items()]
        yield from _aligned([["load", *BASELINES], *rows])


def _give(row: Document | None) -> str:
    return "-" if row is None else f"{_times(row['ratio'])}{_interval(row)} ({row['rounds']})"


def _interval(row: Document) -> str:
    return "" if row["low"] is None else f" {row['low']:.2f} to {row['high']:.2f}"


def _overhead(document: Document) -> Iterator[str]:
    overhead = document.get("overhead")
    if not overhead:
        return
    yield ""
    yield "ordinary work, medians (s; s; us, p99)"
    yield from _aligned([
        ["work", *overhead["conditions"]],
        *([work, *(number(found[name]) for name in overhead["conditions"])]
          for work, found in overhead["medians"].items()),
    ])  # fmt: skip
    yield ""
    yield ops_title(document)
    yield from _aligned(ops(document))
    yield ""
    yield "each call of ours, as the kernel counts it (ns, runs)"
    names = sorted({name for found in overhead["events"].values() for name in found})
    rows = [[name, *(_event(found.get(name)) for found in overhead["events"].values())] for name in names]
    yield from _aligned([["", *overhead["events"]], *rows])


def ops_title(document: Document) -> str:
    """The line above the table of ops."""
    unit = "Instructions" if "instruction_ns" in document["origin"] else "Nanoseconds"
    return f"{unit} an op of the scheduling class takes while hackbench runs (of these our program):"


def ops(document: Document) -> list[Row]:
    """Rows with their heads: what an op takes under each condition, and all ops of a pipe's round trip.

    A document of an earlier format has none.
    """
    found, ours = document["overhead"].get("ops", {}), document["overhead"]["events"]
    unit = document["origin"].get("instruction_ns", 1)

    def cell(name: str, op: str) -> str:
        whole, part = found[name]["ops"].get(op), ours.get(name, {}).get(f"gang_{op}")
        if whole is None:
            return "-"
        return f"{whole['ns'] / unit:,.0f}" + (f" ({part['ns'] / unit:,.0f})" if part else "")

    rows = [[op, *(cell(name, op) for name in found)] for op in OPS]
    trips = [f"{each['round_trip_ns'] / unit:,.0f}" for each in found.values()]
    return [["op", *found], *rows, ["a pipe's round trip", *trips]]


def _event(found: Document | None) -> str:
    return "-" if found is None else f"{found['ns']:.0f} ({found['runs']})"


def _noise(rows: Any) -> Iterator[str]:
    if rows:
        yield from _aligned([
            ["cell", "quiet", "noisy", "difference", "rounds"],
            *([row["cell"], number(row["quiet"]), number(row["noisy"]),
               "-" if row["difference"] is None else f"{row['difference']:+.1%}", str(row["rounds"])]
              for row in rows),
        ])  # fmt: skip


def _adaptive(loads: Any) -> Iterator[str]:
    if not loads:
        return
    yield ""
    yield "the policy adaptive under the daemon: iterations/s, medians; time to the decision, median, worst"
    rows: list[Row] = [["load", "PLE", "n", *ADAPTIVE, "of the best", "decided", "worst", "chosen"]]
    for found in loads:
        chosen, decided = Counter(found["chosen"]), found["decided_seconds"]
        rows.append([
            *(found["load"], "on" if found["ple"] else "off", str(found["guests"])),
            *(number(found["medians"].get(policy)) for policy in ADAPTIVE),
            _times(found["ratio"]) + _interval(found),
            *(f"{pick(decided):.1f} s" if decided else "-" for pick in (median, max)),
            " ".join(f"{mode} {count}" for mode, count in sorted(chosen.items())) or "-",
        ])  # fmt: skip
    yield from _aligned(rows)


def _shares(rows: Any) -> Iterator[str]:
    if not rows:
        return
    yield ""
    yield "CPUs of each party, medians, under the default class and with gangs; their ratio"
    yield from _aligned([
        ["scene", "party", "default", "gang", "ratio", "of cpu.max"],
        *([row["scene"], row["party"], f"{row['default']:.3f}", f"{row['gang']:.3f}",
           _times(row["ratio"]) + _interval(row), _share(row["of_quota"])]
          for row in rows),
    ])  # fmt: skip


def _judged(row: Document) -> Row:
    measured = "-" if row["measured"] is None else f"{row['measured']:.2f}{_interval(row)}"
    return [row["what"], wanted(row), measured, verdict(row)]


def wanted(row: Document) -> str:
    """The bar."""
    return "reported" if row["wanted"] is None else f"{'<=' if row['most'] else '>='} {row['wanted']:g}"


def verdict(row: Document) -> str:
    """Return the row's verdict: met, missed, open or not measured; empty if there is nothing to judge."""
    if row["measured"] is None:
        return "not measured"
    if row["wanted"] is None:
        return ""
    without = f": without {', '.join(row['without'])}" if row["without"] else ""
    return {True: "met", False: "missed", None: f"open{without}"}[row["met"]]


def notes(document: Document) -> Iterator[str]:
    """Yield warnings and the number of failures."""
    yield from warnings(document)
    failed = sum(found["failed"] for found in document["cells"])
    yield f"{failed} rounds failed (they count), {len(document['lab_failures'])} lab failures"


def warnings(document: Document) -> Iterator[str]:
    """Yield the variants that were not available, and that ratios are of mixed runs."""
    reasons = {(c["variant"], c["unavailable"]): None for c in document["cells"] if c.get("unavailable")}
    for variant, reason in reasons:
        yield f"{variant}: not available: {reason}"
    if any(not ratio["within_one_run"] for ratio in document["ratios"]):
        yield "some ratios compare figures of different runs (within_one_run)"


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}x"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _aligned(rows: list[Row]) -> Iterator[str]:
    """The first column to the left, all others to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        rest = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        yield "  ".join([row[0].ljust(widths[0]), *rest]).rstrip()
