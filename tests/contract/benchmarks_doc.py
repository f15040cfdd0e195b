#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/results/seeds.md, the tables of docs/benchmarks.md and README's; test_docs.py compares them.

A result of other sources or of another emulator than those of this tree stays on the page, as old.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/benchmarks.md"
RESULTS = ROOT / "docs/results"
SEEDS = RESULTS / "seeds.md"
README = ROOT / "README.md"
GAINS = "<!-- gains: begin (written by `python3 tests/contract/benchmarks_doc.py` from docs/results) -->"
GAINS_END = "<!-- gains: end -->"
BEGIN = "<!-- results: begin (written by `python3 tests/contract/benchmarks_doc.py` from docs/results) -->"
END = "<!-- results: end -->"
sys.path[:0] = [str(ROOT / part) for part in ("tests/lab", "daemon")]

# Their folders are not packages of ours.
from experiments import conditions, gains, table  # noqa: E402
from experiments.seeds import page as seeds  # noqa: E402
from experiments.tile import page as tile  # noqa: E402
from vm import emulator  # noqa: E402

PARTS = {
    "matrix": "First part: guests",
    "matrix-4cpus": "First part: guests of 4 vCPUs on 4 CPUs",
    "matrix-8cpus": "First part: guests of 8 vCPUs on 8 CPUs",
    "overhead": "Second part: ordinary work",
    "adaptive": "Third part: adaptive",
    "shares-6.18": "Fourth part: shares, kernel 6.18",
    "shares-7.2-bpo": "Fourth part: shares, kernel 7.2 of trixie-backports, where no CPU can be kicked",
    "shares-6.12": "Fourth part: shares, kernel 6.12, where gang.ko schedules",
    "shares-6.1": "Fourth part: shares, kernel 6.1, where gang.ko schedules",
    "noise": "Beside two busy loops",
    "idle": "The daemon itself",
}
Document = dict[str, Any]


def block(folder: Path = RESULTS) -> str:
    """Everything between the two marks, and these."""
    lines = [BEGIN, ""]
    for part, head in PARTS.items():
        place, tell = folder / f"{part}.json", _idle if part == "idle" else _part
        lines += [f"### {head}", ""]
        lines += [*tell(json.loads(place.read_text()))] if place.exists() else ["Not measured.", ""]
    for place in sorted(folder.glob("tile-*.json")):
        document = json.loads(place.read_text())
        lines += [f"### The tile, kernel {document['kernel']}, {document['origin']['smp']} CPUs", ""]
        lines += [*_measured(document), *tile.markdown(document)]
    return "\n".join([*lines, END])


def seeds_page(folder: Path = RESULTS) -> str:
    """docs/results/seeds.md: a part for each seeds-*.json."""
    lines = [seeds.HEAD]
    for place in sorted(folder.glob("seeds-*.json")):
        document = json.loads(place.read_text())
        lines += [f"## Kernel {document['kernel']}, {document['origin']['smp']} CPUs", ""]
        lines += [*_measured(document), *seeds.lines(document)]
    for place in sorted(folder.glob("latency-*.json")):
        document = json.loads(place.read_text())
        lines += [f"## Latency beside busy guests, kernel {document['kernel']}", "", seeds.LATENCY]
        lines += [*_measured(document), *seeds.latency(document)]
    return "\n".join(lines).rstrip() + "\n"


def rendered(page: str, folder: Path = RESULTS) -> str:
    """The page with its tables as they should be."""
    head, _, rest = page.partition(BEGIN)
    return head + block(folder) + rest.partition(END)[2]


def readme(page: str, folder: Path = RESULTS) -> str:
    """README with its table of who gains as it should be."""
    found = [json.loads((folder / f"{name}.json").read_text()) for name in ("matrix", "seeds-6.18")]
    head, _, rest = page.partition(GAINS)
    rows = gains.rows(*((each, age(each["part"], each["origin"]) is not None) for each in found))
    text = "\n".join(_table(gains.HEADS, rows))
    return f"{head}{GAINS}\n{text}{GAINS_END}{rest.partition(GAINS_END)[2]}"


def age(part: str, origin: Document) -> str | None:
    """Why a result is old; None while it is of this tree."""
    changed = []
    if origin["sources"] != conditions.sources(part, origin.get("module", True)):
        changed.append("what decides who runs")
    if origin["emulator"] != emulator.fingerprint():
        changed.append("the emulator")
    if origin.get("guest") != conditions.guest(part):
        changed.append("what runs in the guests")
    if origin.get("driver") != conditions.driver(part):
        changed.append("how it is measured")
    return " and ".join(changed) or None


def _measured(document: Document) -> Iterator[str]:
    """When, where and of what a result was measured; that it is old, if so."""
    origin = document["origin"]
    changed = age(document["part"], origin)
    if changed:
        yield f"**old: measured before the last change of {changed}.**"
    clock = f"{origin['clock']} time"
    if origin["clock"] == "virtual":
        clock += f" ({origin['instruction_ns']} ns an instruction, no CPU {origin['lockstep_ns']} ns ahead)"
    yield (
        f"{document['date']}, kernel {document['kernel']}, {origin['smp']} CPUs, {clock}, rounds of "
        f"{origin['seconds']:g} s; it took {document['wall_seconds'] / 60:.0f} minutes of real time. Sources "
        f"`{origin['sources'][:12]}`, emulator `{origin['emulator'][:12]}`. Guests lost, each with the "
        f"round that it was in: {len(document['lab_failures'])}."
    )
    yield ""


def _part(document: Document) -> Iterator[str]:
    yield from _measured(document)
    usual = document["part"] != "matrix" or document["origin"]["smp"] == 2  # else a cell or two
    yield from _table(
        ["What", "Wanted", "Measured", "95 %", "n", "failed", "Verdict"],
        (_judged(row) for row in document["judged"] if usual or row["measured"] is not None),
    )
    for note in table.warnings(document):
        yield from (f"{note}.", "")
    for lines in (_cells(document), _ops(document), _events(document), _shares(document), _rows(document)):
        yield from lines


def _judged(row: Document) -> list[str]:
    wanted = table.wanted(row)
    verdict = table.verdict(row).replace("missed", "**missed**")
    if row["measured"] is None:
        return [row["what"], wanted, "-", "", "", "", verdict]
    interval = "" if row["low"] is None else f"{row['low']:.2f} to {row['high']:.2f}"
    counts = ["" if row.get(name) is None else str(row[name]) for name in ("n", "failed")]
    return [row["what"], wanted, f"{row['measured']:.3g}", interval, *counts, verdict]


def _cells(document: Document) -> Iterator[str]:
    """Iterations a second of all guests together, medians, and what the gang makes of it."""
    found: dict[tuple[str, bool, int], dict[str, Document]] = {}
    for cell in document["cells"]:
        found.setdefault((cell["load"], cell["ple"], cell["guests"]), {})[cell["variant"]] = cell
    names = list(dict.fromkeys(cell["variant"] for cell in document["cells"]))
    rows = []
    for (load, ple, guests), cells in sorted(found.items()):
        rows.append([
            *(load, "on" if ple else "off", str(guests)),
            *(_rate(cells.get(name)) for name in names),
            str(sum(cell["failed"] for cell in cells.values())),
        ])  # fmt: skip
    if rows:
        yield "A gang over each baseline, median of the rounds and its 95 % interval:"
        yield ""
        yield from _table([*table.AGAINST], map(table.against, document["ratios"]))
        yield "Iterations a second of all guests together, medians, and (most - least) / median:"
        yield ""
        heads = ["load", "PLE", "guests", *names, "failed"]
        yield from _table(heads, rows)


def _rate(cell: Document | None) -> str:
    if cell is None or cell["median"] is None:
        return "-"
    return f"{cell['median']:,.0f} ({cell['spread']:.0%})" if cell["spread"] is not None else "0"


def _ops(document: Document) -> Iterator[str]:
    """Yield the table of what an op of the scheduling class takes."""
    if "ops" in document.get("overhead", {}):
        heads, *rows = table.ops(document)
        yield table.ops_title(document)
        yield ""
        yield from _table(heads, rows)


def _events(document: Document) -> Iterator[str]:
    """Yield the table of the BPF programs' run time, as the kernel counts it."""
    events = document.get("overhead", {}).get("events", {})
    names = sorted({name for found in events.values() for name in found})
    rows = [
        [
            f"`{name}`",
            *(f"{e[name]['ns']:.0f} ({e[name]['runs']})" if name in e else "-" for e in events.values()),
        ]
        for name in names
    ]
    if rows:
        yield "Nanoseconds a call of our BPF programs takes, counting included, and how many there were:"
        yield ""
        yield from _table(["program", *events], rows)


def _shares(document: Document) -> Iterator[str]:
    """CPUs of each party."""
    rows = [
        [
            *(row["scene"], row["party"], f"{row['default']:.3f}", f"{row['gang']:.3f}"),
            table.estimate(row),
            "" if row["of_quota"] is None else f"{row['of_quota']:.3f}",
        ]
        for row in document.get("shares", [])
    ]
    if rows:
        yield "CPUs of each party, medians, by default and with gangs, and their ratio (95 % interval):"
        yield ""
        yield from _table(["scene", "party", "default", "gang", "ratio", "of cpu.max"], rows)


def _rows(document: Document) -> Iterator[str]:
    rows = [
        [
            row["cell"],
            *(f"{row[name]:,.0f}" if row[name] is not None else "-" for name in ("quiet", "noisy")),
            "-" if row["difference"] is None else f"{row['difference']:+.1%}",
            *(str(row[name]) for name in ("rounds", "failed")),
        ]
        for row in document.get("rows", [])
    ]
    if rows:
        for name, found in document["machine"].items():
            others = found["busy"] - found["vm"]
            yield f"{name}: of {found['cpus']} CPUs the VM had {found['vm']:.2f}, others {others:.2f}."
        yield ""
        yield from _table(["cell", "quiet", "noisy", "difference", "rounds", "failed"], rows)


def _idle(document: Document) -> Iterator[str]:
    """Yield the cost of gangd with many guests: a row for each figure, a column for each kind of host."""
    guests = f"{document['guests']:,} guests, {document['vcpus']:,} vCPUs"
    yield f"{document['date']}, {guests}, real time."
    yield ""
    found: dict[str, dict[str, Document]] = {}
    for row in document["rows"]:
        found.setdefault(row["name"], {})[row["host"]] = row
    hosts = list(dict.fromkeys(host for rows in found.values() for host in rows))
    yield from _table(
        ["What", "Wanted", *hosts],
        (
            [what, _bound(next(iter(rows.values()))), *(_idle_figure(rows.get(host)) for host in hosts)]
            for what, rows in found.items()
        ),
    )


def _bound(row: Document) -> str:
    return "" if row["wanted"] is None else f"< {row['wanted']:g}"


def _idle_figure(row: Document | None) -> str:
    if row is None:
        return "-"
    figure = f"{row['measured']:,.0f}" if row["measured"] >= 100 else f"{row['measured']:.3g}"
    return figure + (", **missed**" if row["verdict"] == "missed" else "")


def _table(heads: list[str], rows: Iterable[list[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield "|" + "---|" * len(heads)
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text()))
    SEEDS.write_text(seeds_page())
    README.write_text(readme(README.read_text()))
