# SPDX-License-Identifier: Apache-2.0
"""The pictures: who ran where in a stretch of time, and throughput against the limit. SVG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
# the same figures make the same file
matplotlib.rcParams.update({"svg.hashsalt": "gangsim", "font.size": 9, "svg.fonttype": "none"})

from matplotlib import pyplot  # noqa: E402

from gangsim.engine import Run  # noqa: E402
from gangsim.figures import Figures  # noqa: E402
from gangsim.scenario import SCHEDULERS, Scenario  # noqa: E402

SHOWN_CPUS = 32
COLOURS = dict(zip(SCHEDULERS, ("#2a6f97", "#c1666b", "#d4a24e", "#7a8b5c"), strict=True))


def timeline(path: Path, scenario: Scenario, runs: Sequence[Run], window: tuple[int, int]) -> None:
    """CPUs by time, a row of each for every run, coloured by guest; the first 32 CPUs."""
    rows = min(scenario.host.cpus, SHOWN_CPUS)
    figure, axes = pyplot.subplots(
        len(runs),
        1,
        figsize=(10, (0.6 + max(0.16 * rows, 0.8)) * len(runs) + 0.5),
        sharex=True,
        squeeze=False,
    )
    colours = pyplot.get_cmap("tab20")
    for axis, run in zip(axes[:, 0], runs, strict=True):
        for cpu in range(rows):
            mine = [part for part in run.trace if part[2] == cpu]
            spans = [((start - window[0]) / 1e6, (end - start) / 1e6) for start, end, _, _ in mine]
            axis.broken_barh(
                spans, (cpu - 0.45, 0.9), color=[_colour(colours, run.guest_of[part[3]]) for part in mine]
            )
        axis.set(ylabel="CPU", title=run.scheduler, ylim=(rows - 0.5, -0.5))
        axis.set_xlim(0, (window[1] - window[0]) / 1e6)
        axis.yaxis.get_major_locator().set_params(integer=True)
    axes[-1, 0].set_xlabel(f"ms; one colour a guest; {scenario.name}")
    _save(figure, path)


def _colour(colours: Any, guest: int) -> Any:
    return colours(guest % 20) if guest >= 0 else "#222222"


def bars(path: Path, results: Sequence[tuple[Scenario, Sequence[Figures]]]) -> None:
    """Throughput against the limit, scenario by scenario, a bar for each scheduler."""
    figure, axis = pyplot.subplots(figsize=(10, 4))
    width = 0.8 / len(SCHEDULERS)
    for place, scheduler in enumerate(SCHEDULERS):
        found = [
            (at, one.efficiency)
            for at, (_, figures) in enumerate(results)
            for one in figures
            if one.scheduler == scheduler
        ]
        shift = (place - (len(SCHEDULERS) - 1) / 2) * width
        axis.bar(
            [at + shift for at, _ in found],
            [value for _, value in found],
            width,
            label=scheduler,
            color=COLOURS[scheduler],
        )
    axis.axhline(1, color="black", linewidth=0.8, linestyle=":")
    axis.set(ylabel="throughput / limit", ylim=(0, 1.1))
    axis.set_xticks(range(len(results)), [scenario.name for scenario, _ in results], rotation=30, ha="right")
    axis.legend(ncols=len(SCHEDULERS), loc="upper center", bbox_to_anchor=(0.5, 1.14), frameon=False)
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path, format="svg", metadata={"Date": None})
    pyplot.close(figure)
