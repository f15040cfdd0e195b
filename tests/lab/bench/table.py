# SPDX-License-Identifier: Apache-2.0
"""The result as people read it: one line a cell, then wanted beside measured. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from statistics import median
from typing import Any

from demo.table import number

from bench.result import Document, Key, key_of, medians
from bench.variants import BASELINES, NAMES

Row = list[str]


def lines(document: Document) -> Iterator[str]:
    """Everything that is printed at the end."""
    yield from matrix(document)
    yield from _pooled(document)
    yield from _overhead(document.get("overhead"))
    yield from _adaptive(document.get("adaptive"))
    yield ""
    yield from _aligned([["", "wanted", "measured", ""], *map(_judged, document["judged"])])
    yield ""
    yield from notes(document)


def matrix(document: Document) -> Iterator[str]:
    """Iterations/s of all guests together, the limit, and what the gangs make of it."""
    keys = sorted({key_of(found) for found in document["cells"]}, key=_place)
    if not keys:
        return
    heads = [
        "load",
        "PLE",
        "n",
        *NAMES,
        "alone",
        "gang/best",
        "gang/limit",
        "strict/best",
        "co-start",
        "thrown",
    ]
    yield "iterations/s of all guests, medians; gang is sched_ext relaxed, best of " + ", ".join(BASELINES)
    yield from _aligned([heads, *(_cells(document, key) for key in keys)])


def _place(key: Key) -> tuple[bool, str, int]:
    return key[1], key[0], key[2]


def _cells(document: Document, key: Key) -> Row:
    found = medians(document, key)
    ratios = {r["variant"]: r for r in document["ratios"] if (r["load"], r["ple"], r["guests"]) == key}
    cells = [each for each in document["cells"] if key_of(each) == key]
    costart = next((each["costarted_share"] for each in cells if each["variant"] == "relaxed"), None)
    gang, strict = ratios.get("relaxed", {}), ratios.get("strict", {})
    return [
        *(key[0], "on" if key[1] else "off", str(key[2])),
        *(number(found.get(name)) for name in (*NAMES, "alone")),
        *(_times(gang.get("of_best")), _share(gang.get("of_limit")), _times(strict.get("of_best"))),
        *(_share(costart), str(sum(each.get("thrown_away", 0) for each in cells))),
    ]


def _pooled(document: Document) -> Iterator[str]:
    """A line a load."""
    by_load: dict[str, Document] = {}
    for row in document.get("pooled", []):
        by_load.setdefault(row["load"], {})[row["baseline"]] = row
    if by_load:
        yield ""
        yield "gang against each baseline, all rounds of a load with 2 guests and more; +- the standard error"
        rows = [[load, *(_give(found.get(name)) for name in BASELINES)] for load, found in by_load.items()]
        yield from _aligned([["load", *BASELINES], *rows])


def _give(row: Document | None) -> str:
    return (
        "-" if row is None else f"{row['ratio']:.2f}x +-{row['error'] * row['ratio']:.2f} ({row['rounds']})"
    )


def _overhead(overhead: Any) -> Iterator[str]:
    if not overhead:
        return
    yield ""
    yield "nothing marked, medians (s; s; us, p99); a ratio above 1 is better than the default class"
    rows: list[Row] = [
        ["work", *overhead["conditions"], *(f"{c}/default" for c in overhead["conditions"][1:])]
    ]
    for work, found in overhead["medians"].items():
        ratios = overhead["ratios"].get(work, {})
        values = [number(found.get(condition)) for condition in overhead["conditions"]]
        rows.append([work, *values, *(_times(ratios.get(c)) for c in overhead["conditions"][1:])])
    yield from _aligned(rows)


def _adaptive(loads: Any) -> Iterator[str]:
    if not loads:
        return
    yield ""
    yield "the policy adaptive under the daemon: iterations/s, medians; time to the decision, median, worst"
    rows: list[Row] = [
        ["load", "PLE", "n", "balance", "relaxed", "adaptive", "of the better", "decided", "worst", "chosen"]
    ]
    for found in loads:
        chosen, decided = Counter(found["chosen"]), found["decided_seconds"]
        rows.append([
            *(found["load"], "on" if found["ple"] else "off", str(found["guests"])),
            *(number(found["medians"][policy]) for policy in ("balance", "relaxed", "adaptive")),
            _times(found["ratio"]) + (f" +-{found['error']:.2f}" if found.get("error") else ""),
            *(f"{pick(decided):.1f} s" if decided else "-" for pick in (median, max)),
            " ".join(f"{mode} {count}" for mode, count in sorted(chosen.items())) or "-",
        ])  # fmt: skip
    yield from _aligned(rows)


def _judged(row: Document) -> Row:
    sign = "<=" if row["most"] else ">="
    wanted = "reported" if row["wanted"] is None else f"{sign} {row['wanted']:g}{row['unit']}"
    measured = "-" if row["measured"] is None else f"{row['measured']:.2f}{row['unit']}"
    verdict = {True: "ok", False: "missed", None: "" if row["wanted"] is None else "not measured"}[row["met"]]
    return [row["what"], wanted, measured, verdict]


def notes(document: Document) -> Iterator[str]:
    """What was not to be had, what was thrown away."""
    reasons = {(c["variant"], c["unavailable"]): None for c in document["cells"] if c.get("unavailable")}
    for variant, reason in reasons:
        yield f"{variant}: not available: {reason}"
    thrown = sum(found.get("thrown_away", 0) for found in document["cells"])
    failures = len(document["lab_failures"])
    yield f"{thrown} rounds thrown away because the machine was busy, {failures} lab failures"
    failed = sum(found.get("failed", 0) for found in document["cells"])
    if failed:
        yield f"{failed} rounds failed, the scheduler was ejected or starved a guest; they were repeated"
    if any(not ratio["within_one_run"] for ratio in document["ratios"]):
        yield "some ratios compare figures of different runs (kernel.json: within_one_run)"


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
