# SPDX-License-Identifier: Apache-2.0
"""The list of `make bench-harm`, measured: its table, its summary and its document. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from gangsim import bars, random_rows, table
from gangsim.found import Found
from gangsim.harm_list import Group

Measured = Sequence[tuple[Group, Sequence[Found]]]
HEAD = ("", "default", "gangs", "ratio", "wanted", "verdict")


def lines(found: Measured) -> list[str]:
    """The table, sentences that would move its columns, the spread of hosts made by chance, the counts."""
    body: list[tuple[str, ...]] = [HEAD]
    for group, rows in found:
        body += [(f"{group.name}: {group.title}", *[""] * 5), *map(_cells, rows)]
    told = [f"{one.name}: {one.verdict}" for _, rows in found for one in rows if ":" in one.verdict]
    spreads = [line for group, rows in found if group.chance for line in random_rows.spread(group.name, rows)]
    return [*table.aligned(body), "", *told, *spreads, *_counts(found)]


def _cells(one: Found) -> tuple[str, ...]:
    ratio = "-" if one.ratio is None else f"{one.ratio:.3f}"
    verdict = one.verdict.split(":")[0]
    return "  " + one.name, table.number(one.default), table.number(one.gangs), ratio, one.bar, verdict


def _counts(found: Measured) -> Iterator[str]:
    for name, rows in [*((group.name, rows) for group, rows in found), ("in all", everything(found))]:
        missed = sum(not one.harmless for one in rows)
        excused = sum(one.verdict.startswith(bars.AS_DEFAULT) for one in rows)
        yield f"{name}: {missed} of {len(rows)} rows missed, {excused} as default"


def everything(found: Measured) -> list[Found]:
    """All rows of all groups."""
    return [one for _, rows in found for one in rows]


def document(found: Measured) -> dict[str, list[dict[str, object]]]:
    """All rows, for machines."""
    return {"rows": [{"group": group.name, **asdict(one)} for group, rows in found for one in rows]}
