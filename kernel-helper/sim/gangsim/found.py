# SPDX-License-Identifier: Apache-2.0
"""A line of the list of `make bench-harm`: one row, simulated under both schedulers."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace

from gangsim import bars, table
from gangsim.engine import Run
from gangsim.errors import Ejected, ScenarioError
from gangsim.harm_rows import Row, Trace
from gangsim.scenario import Scenario

Runner = Callable[[Scenario, str, Trace], Run]


@dataclass(frozen=True)
class Found:
    """A row as it is written: figures in the unit that the name says, None where there is none.

    ratio: gangs / default, or / the row's ideal, or / the lesser; None, too, where that is 0. bar: what is
    wanted of it, in words. verdict: "kept", "as default" (missed by both, by gangs no more than by default),
    or "missed", "unknown" (a figure is None), "ejected: ..." (the kernel's words), "cannot: ..." (the
    simulator's). seed: of a host made by chance; kind: of its figure.
    """

    name: str
    default: float | None
    gangs: float | None
    ratio: float | None
    wanted: float
    bar: str
    verdict: str
    seed: int | None = None
    kind: str = ""

    @property
    def harmless(self) -> bool:
        """True unless the row counts as a miss."""
        return self.verdict.split(":")[0] in (bars.KEPT, bars.AS_DEFAULT)


def measured(row: Row, run: Runner, first: int = 1) -> Found:
    """A row, simulated under the default scheduler, then under gangs; `first` of its seeds."""
    default: float | None = None
    gangs: float | None = None
    try:
        default = _middle(row, run, "default", first)
        gangs = _middle(row, run, "gang", first)
        yard, most = row.yard(default), row.most(default)
        verdict = bars.compared(default, gangs, yard, row.wanted, row.bound, most)
    except ScenarioError as error:
        verdict = f"cannot: {error}"
    except Ejected as error:
        verdict = f"ejected: {error}"
    yard = row.yard(default)
    ratio = gangs / yard if yard and gangs is not None else None
    return Found(row.name, default, gangs, ratio, row.wanted, bar(row), verdict)


def _middle(row: Row, run: Runner, scheduler: str, first: int) -> float | None:
    """The median over the seeds; of a figure that one of them lacks none is known."""
    seeds = range(first, first + row.seeds)
    found = [row.figure(run(replace(row.scenario, seed=seed), scheduler, row.trace)) for seed in seeds]
    known = [one for one in found if one is not None]
    return statistics.median(known) if len(known) == len(found) else None


def bar(row: Row) -> str:
    """The bound on a row's ratio, as the table shows it."""
    if row.bound == "within":
        return f"{row.wanted:.2f}..{bars.SLACK:.2f}"
    of = "" if row.ideal is None else f" of {table.number(row.ideal)}"
    of += "" if row.fair is None else f" of {table.number(row.fair)} or default"
    of += f", below {table.number(row.floor)} alike" if row.floor else ""
    of += "" if row.slack is None else f", <= {row.slack:.2f}"
    return f"{'<=' if row.bound == 'most' else '>='} {row.wanted:.2f}{of}"
