# SPDX-License-Identifier: Apache-2.0
"""`make bench-harm`: what gangs take from whom, each figure against that of the default scheduler."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path

from gangsim import finding_rows, harm_rows, host_rows, random_hosts, table
from gangsim.engine import HELPER, Engine, Run
from gangsim.errors import Ejected, ScenarioError
from gangsim.harm_rows import SLACK, Bound, Row, Trace
from gangsim.scenario import Scenario

ROOT = Path(__file__).resolve().parents[3]
KEPT = "kept"
Runner = Callable[[Scenario, str, Trace], Run]


@dataclass(frozen=True)
class Found:
    """A row as it is written: figures in the unit that the name says, None where there is none.

    ratio: gangs / default, or / the row's ideal, or / the lesser; None, too, where that is 0.
    verdict: "kept", or how it was missed: "missed", "unknown" (a figure is None), "ejected: ..." (the
    kernel's words), "cannot: ..." (the simulator's).
    """

    name: str
    default: float | None
    gangs: float | None
    ratio: float | None
    wanted: float
    verdict: str

    @property
    def kept(self) -> bool:
        """True if the row was kept; with any other verdict it was missed."""
        return self.verdict == KEPT


def judge(
    default: float | None, gangs: float | None, wanted: float, bound: Bound, most: float | None = None
) -> str:
    """The verdict on two figures. By products, so that a default of 0 has one, too."""
    if default is None or gangs is None:
        return "unknown"
    if most is not None and gangs > most:
        return "missed"
    if bound == "most":
        return KEPT if gangs <= wanted * default else "missed"
    if bound == "within" and gangs > SLACK * default:
        return "missed"
    return KEPT if gangs >= wanted * default else "missed"


def measured(row: Row, run: Runner, first: int = 1) -> Found:
    """A row, simulated under the default scheduler, then under gangs; `first` of its seeds."""
    default: float | None = None
    gangs: float | None = None
    try:
        default = _middle(row, run, "default", first)
        gangs = _middle(row, run, "gang", first)
        verdict = judge(row.yard(default), gangs, row.wanted, row.bound, row.most(default))
    except ScenarioError as error:
        verdict = f"cannot: {error}"
    except Ejected as error:
        verdict = f"ejected: {error}"
    yard = row.yard(default)
    ratio = gangs / yard if yard and gangs is not None else None
    return Found(row.name, default, gangs, ratio, row.wanted, verdict)


def _middle(row: Row, run: Runner, scheduler: str, first: int) -> float | None:
    """The median over the seeds; of a figure that one of them lacks none is known."""
    seeds = range(first, first + row.seeds)
    found = [row.figure(run(replace(row.scenario, seed=seed), scheduler, row.trace)) for seed in seeds]
    known = [one for one in found if one is not None]
    return statistics.median(known) if len(known) == len(found) else None


def lines(rows: Sequence[Row], found: Sequence[Found]) -> list[str]:
    """The table, and how many rows were missed."""
    head = ("", "default", "gangs", "ratio", "wanted", "verdict")
    body = [
        (
            one.name, table.number(one.default), table.number(one.gangs),
            "-" if one.ratio is None else f"{one.ratio:.3f}",
            wanted(row), one.verdict.split(":")[0],
        )
        for row, one in zip(rows, found, strict=True)
    ]  # fmt: skip
    told = [f"{one.name}: {one.verdict}" for one in found if ":" in one.verdict]
    missed = sum(not one.kept for one in found)
    return [*table.aligned([head, *body]), "", *told, f"{missed} of {len(found)} rows missed"]


def wanted(row: Row) -> str:
    """The bound on a row's ratio, as the table shows it."""
    if row.bound == "within":
        return f"{row.wanted:.2f}..{SLACK:.2f}"
    of = "" if row.ideal is None else f" of {table.number(row.ideal)}"
    of += "" if row.fair is None else f" of {table.number(row.fair)} or default"
    of += f", below {table.number(row.floor)} alike" if row.floor else ""
    of += "" if row.slack is None else f", <= {row.slack:.2f}"
    return f"{'<=' if row.bound == 'most' else '>='} {row.wanted:.2f}{of}"


def document(found: Iterable[Found]) -> dict[str, list[dict[str, object]]]:
    """The contents of harm.json."""
    return {"rows": [asdict(one) for one in found]}


def report(rows: Sequence[Row], run: Runner, out: Path, first: int = 1) -> int:
    """Measure, write `out`, print. 0, or 1 if a row was missed."""
    found = []
    for at, row in enumerate(rows, 1):
        found.append(measured(row, run, first))
        print(f"{at}/{len(rows)} {row.name}: {found[-1].verdict.split(':')[0]}", file=sys.stderr, flush=True)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(document(found), indent=1) + "\n")
    print("\n".join(lines(rows, found)))
    return 0 if all(one.kept for one in found) else 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Return as `report` does, for the standard rows; 2 if none of them is asked for."""
    parser = argparse.ArgumentParser(prog="make bench-harm HARM=", description="Whom gangs harm, simulated.")
    parser.add_argument("--only", default="", metavar="TEXT", help="rows whose name has this in it")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "build/bench/harm.json", help="where it is written"
    )
    parser.add_argument("--helped", action="store_true", help="turns for unmarked guests that yield, too")
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="the first of each row's seeds")
    parser.add_argument("--findings", action="store_true", help="hosts that once broke a scheduler of ours")
    parser.add_argument("--hosts", action="store_true", help="hosts of ordinary life")
    parser.add_argument("--random", metavar="FIRST:LAST", help="hosts made by chance, against their ideal")
    parser.add_argument("--masks", action="store_true", help="with --random: CPUs that some may not have")
    options = parser.parse_args(arguments)
    defines = ["-DSHIM_HELP"] if options.helped else []
    engine = Engine(ROOT / "build/sim", HELPER, None, *defines)
    if options.random:
        first, _, last = options.random.partition(":")
        return random_hosts.report(engine.run, int(first), int(last or first), options.masks)
    known = finding_rows if options.findings else host_rows if options.hosts else harm_rows
    rows = [row for row in known.standard() if options.only in row.name]
    if not rows:
        print(f"error: no row has '{options.only}' in its name", file=sys.stderr)
        return 2
    # rows that follow each other have a scenario in common
    return report(rows, lru_cache(maxsize=32)(engine.run), options.out, options.seeds)


if __name__ == "__main__":
    sys.exit(main())
