# SPDX-License-Identifier: Apache-2.0
"""Writes docs/results/seeds.md, the tables of docs/benchmarks.md, README's tile; test_docs.py compares them.

A result of other sources or of another emulator than those of this tree stays on the page, as old.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench import conditions, gains, table
from bench.grid import Table
from bench.records import Origin, Result
from bench.seeds import page as seeds
from bench.tile import page as tile
from lab import emulator

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/benchmarks.md"
RESULTS = ROOT / "docs/results"
SEEDS = RESULTS / "seeds.md"
README = ROOT / "README.md"
GAINS = "<!-- gains: begin (written by `python3 -m docs.tools.benchmarks` from docs/results) -->"
GAINS_END = "<!-- gains: end -->"
BEGIN = "<!-- results: begin (written by `python3 -m docs.tools.benchmarks` from docs/results) -->"
END = "<!-- results: end -->"
PARTS = {
    "matrix": "The matrix",
    "matrix-4cpus": "The matrix, guests of 4 vCPUs on 4 CPUs",
    "matrix-8cpus": "The matrix, guests of 8 vCPUs on 8 CPUs",
    "overhead": "Ordinary work",
    "adaptive": "Adaptive",
    "shares-6.18": "Shares, kernel 6.18",
    "shares-7.2-bpo": "Shares, kernel 7.2 of trixie-backports, where no CPU can be kicked",
    "shares-6.12": "Shares, kernel 6.12, where gang.ko schedules",
    "shares-6.1": "Shares, kernel 6.1, where gang.ko schedules",
    "noise": "Beside two busy loops",
    "idle": "The daemon itself",
}
GAINED = (
    "The work of gangs (`relaxed`) divided by that under the best of the default scheduler, vCPUs "
    "pinned one a CPU, and pinned apart (medians, 95 %; 2 CPUs, 2 vCPUs a guest, all guests alike). "
    f"Linux guests have paravirtual locks with PLE, none without. {seeds.OLD}: measured before the "
    "last change of the scheduler, or of how it is measured."
)
Document = dict[str, Any]


def block(folder: Path = RESULTS) -> str:
    """Everything between the two marks, and these."""
    lines = [BEGIN, "", *_gained(folder)]
    for part, head in PARTS.items():
        place, tell = folder / f"{part}.json", _idle if part == "idle" else _part
        lines += [f"### {head}", ""]
        lines += [*tell(place)] if place.exists() else ["Not measured.", ""]
    for document in tiles(folder):
        lines += [f"### The tile, {tile.place(document)}", ""]
        lines += [*_measured(document), *tile.markdown(document)]
    return "\n".join([*lines, END])


def seeds_page(folder: Path = RESULTS) -> str:
    """docs/results/seeds.md: a part for each seeds-*.json."""
    lines = [seeds.HEAD]
    for place in sorted(folder.glob("seeds-*.json")):
        document = Result.read(place)
        lines += [f"## Kernel {document.kernel}, {document.origin.smp} CPUs", ""]
        lines += [*_measured(document), *seeds.lines(document)]
    for place in sorted(folder.glob("latency-*.json")):
        document = Result.read(place)
        lines += [f"## Latency beside busy guests, kernel {document.kernel}", "", seeds.LATENCY]
        lines += [*_measured(document), *seeds.latency(document)]
    return "\n".join(lines).rstrip() + "\n"


def rendered(page: str, folder: Path = RESULTS) -> str:
    """The page with its tables as they should be."""
    head, _, rest = page.partition(BEGIN)
    return head + block(folder) + rest.partition(END)[2]


def readme(page: str, folder: Path = RESULTS) -> str:
    """README with the tables of the tile as they should be."""
    head, _, rest = page.partition(GAINS)
    lines: list[str] = []
    worlds = [("**old:** " if age(document.part, document.origin) else "", document, cell)
              for document in tiles(folder) for cell in tile.measured(document)]  # fmt: skip
    for old, _, cell in worlds[:1]:
        lines += tile.figures(cell, old).markdown()
    lines += tile.worlds(worlds[1:]).markdown() if worlds[1:] else []
    text = "\n".join(lines)
    return f"{head}{GAINS}\n{text}{GAINS_END}{rest.partition(GAINS_END)[2]}"


def tiles(folder: Path) -> list[Result]:
    """Return the tile's results, that of the host with sched_ext and the fewest CPUs first."""
    found = [Result.read(place) for place in folder.glob("tile-*.json")]
    return sorted(found, key=lambda document: (document.origin.module, document.origin.smp, document.kernel))


def _gained(folder: Path) -> Iterator[str]:
    """Yield who gains, load by load."""
    places = [folder / f"{name}.json" for name in ("matrix", "seeds-6.18")]
    yield from ("### Who gains, load by load", "", GAINED, "")
    if not all(place.exists() for place in places):
        yield from ("Not measured.", "")
        return
    found = [Result.read(place) for place in places]
    yield from gains.table(*((each, age(each.part, each.origin) is not None) for each in found)).markdown()


def age(part: str, origin: Origin) -> str | None:
    """Why a result is old; None while it is of this tree."""
    changed = []
    if origin.sources != conditions.sources(part, origin.module):
        changed.append("what decides who runs")
    if origin.emulator != emulator.fingerprint():
        changed.append("the emulator")
    if origin.guest != conditions.guest(part):
        changed.append("what runs in the guests")
    if origin.driver != conditions.driver(part):
        changed.append("how it is measured")
    return " and ".join(changed) or None


def _measured(document: Result) -> Iterator[str]:
    """When, where and of what a result was measured; that it is old, if so."""
    origin = document.origin
    changed = age(document.part, origin)
    if changed:
        yield f"**old: measured before the last change of {changed}.**"
    clock = f"{origin.clock} time"
    if origin.clock == "virtual":
        clock += f" ({origin.instruction_ns} ns an instruction, no CPU {origin.lockstep_ns} ns ahead)"
    yield (
        f"{document.date}, kernel {document.kernel}, {origin.smp} CPUs, {clock}, rounds of "
        f"{origin.seconds:g} s; it took {document.wall_seconds / 60:.0f} minutes of real time. Sources "
        f"`{origin.sources[:12]}`, emulator `{(origin.emulator or '')[:12]}`. Guests lost, each with the "
        f"round that it was in: {len(document.lab_failures)}."
    )
    yield ""


def _part(place: Path) -> Iterator[str]:
    document = Result.read(place)
    yield from _measured(document)
    yield from table.page(document)


def _idle(place: Path) -> Iterator[str]:
    """Yield the cost of gangd with many guests: a row for each figure, a column for each kind of host."""
    document = json.loads(place.read_text())
    guests = f"{document['guests']:,} guests, {document['vcpus']:,} vCPUs"
    yield f"{document['date']}, {guests}, real time."
    yield ""
    found: dict[str, dict[str, Document]] = {}
    for row in document["rows"]:
        found.setdefault(row["name"], {})[row["host"]] = row
    hosts = list(dict.fromkeys(host for rows in found.values() for host in rows))
    rows = [
        [what, _bound(next(iter(its.values()))), *(_idle_figure(its.get(host)) for host in hosts)]
        for what, its in found.items()
    ]
    yield from Table(["What", "Wanted", *hosts], rows).markdown()


def _bound(row: Document) -> str:
    return "" if row["wanted"] is None else f"< {row['wanted']:g}"


def _idle_figure(row: Document | None) -> str:
    if row is None:
        return "-"
    figure = f"{row['measured']:,.0f}" if row["measured"] >= 100 else f"{row['measured']:.3g}"
    return figure + (", **missed**" if row["verdict"] == "missed" else "")


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text()))
    SEEDS.write_text(seeds_page())
    README.write_text(readme(README.read_text()))
