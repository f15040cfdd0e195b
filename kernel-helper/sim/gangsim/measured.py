# SPDX-License-Identifier: Apache-2.0
"""The lab's measurements of the same scenarios: docs/results/matrix.json, as `make publish` writes it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gangsim.figures import Figures
from gangsim.scenario import Scenario

# The scheduler here that stands for a variant there.
VARIANTS = {"relaxed": "gang", "pinned": "pinned", "default": "default", "balance": "balance"}


@dataclass(frozen=True)
class Comparison:
    """Throughput of all guests over that of one guest alone, here and there; difference in points."""

    variant: str
    guests: int
    load: str
    simulated: float
    measured: float

    @property
    def difference(self) -> float:
        """Simulator minus lab."""
        return self.simulated - self.measured


def read(path: Path) -> list[dict[str, Any]] | None:
    """The cells of the file; None when there is no such file or it is not what it should be."""
    try:
        document = json.loads(path.read_text())
        cells = document["cells"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return [cell for cell in cells if isinstance(cell, dict)] if isinstance(cells, list) else None


def compare(
    cells: Sequence[dict[str, Any]], results: Sequence[tuple[Scenario, Sequence[Figures]]]
) -> list[Comparison]:
    """Every cell without PLE that was simulated too: same load, 2 CPUs, as many guests of 2 vCPUs."""
    simulated = {}
    for scenario, found in results:
        guests = scenario.guests
        if scenario.host.cpus != 2 or guests[0].vcpus != 2 or scenario.mode != "relaxed":
            continue
        for one in found:
            if one.against_alone is not None:
                simulated[one.scheduler, guests[0].load, len(guests)] = one.against_alone
    pairs = []
    for cell in cells:
        key, measured = _key(cell), _ratio(cell)
        if key in simulated and measured is not None and not cell.get("ple"):
            variant = str(cell.get("variant"))
            pairs.append(Comparison(variant, key[2], key[1], simulated[key], measured))
    return pairs


def _key(cell: dict[str, Any]) -> tuple[str, str, int]:
    load, guests = str(cell.get("load")), cell.get("guests")
    scheduler = VARIANTS.get(str(cell.get("variant")), "")
    return scheduler, load, guests if isinstance(guests, int) else 0


def _ratio(cell: dict[str, Any]) -> float | None:
    median, alone = cell.get("median"), cell.get("alone")
    if not isinstance(median, (int, float)) or not isinstance(alone, (int, float)) or not alone:
        return None
    return float(median) / float(alone)
