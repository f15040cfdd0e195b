# SPDX-License-Identifier: Apache-2.0
"""`make sim`: the standard scenarios, or one described by options; tables, JSON and SVG into a folder."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gangsim import catalogue, draw, measured, table
from gangsim.costs import Costs
from gangsim.engine import Engine, Run
from gangsim.errors import ScenarioError
from gangsim.figures import Alone, Figures, median, of_run, parties
from gangsim.scenario import LOADS, SCHEDULERS, Guest, Host, Scenario, Task

ROOT = Path(__file__).resolve().parents[3]
TURNS_SHOWN = 8
KERNELS = {"6.18": True, "7.0": False}  # Scenario.forgets
Result = tuple[Scenario, list[Figures]]


def parser() -> argparse.ArgumentParser:
    """Options; none at all means the standard scenarios."""
    made = argparse.ArgumentParser(prog="make sim SIM=", description="Simulate a host full of guests.")
    made.add_argument("--out", type=Path, default=ROOT / "build/sim", help="folder for JSON and SVG")
    made.add_argument(
        "--bench", type=Path, default=ROOT / "docs/results/matrix.json", help="the lab's figures"
    )
    made.add_argument("--kernel", choices=KERNELS, default="6.18", help="whose sched_ext (%(default)s)")
    one = made.add_argument_group("one scenario of equal guests")
    one.add_argument("--cpus", type=int, help="CPUs of the host, 1 to 1024")
    one.add_argument("--threads", type=int, default=2, help="hardware threads of a core (%(default)s)")
    one.add_argument("--llc", type=int, help="CPUs of a last-level cache (all, at most 64)")
    one.add_argument("--guests", type=int, default=4, help="how many (%(default)s)")
    one.add_argument("--vcpus", type=int, default=2, help="of each guest (%(default)s)")
    one.add_argument("--load", choices=LOADS, action="append", help="repeat it to mix loads (barrier)")
    one.add_argument("--weight", type=int, action="append", help="repeat it to mix weights (100)")
    one.add_argument("--work-us", type=float, help="work of a round")
    one.add_argument("--extra-us", type=float, help="ipi: cost of an interrupt; duty: time asleep")
    one.add_argument("--busy", type=int, help="vCPUs of each guest that do the load; the others sleep (all)")
    one.add_argument("--ple", action="store_true", help="vCPUs that spin exit, and yield to a sibling")
    one.add_argument(
        "--task",
        action="append",
        default=[],
        help="ordinary tasks beside: hog, cycle (1 ms of work, 1 ms of sleep) or chain, :2 for two",
    )
    one.add_argument("--seconds", type=float, default=10, help="host time (%(default)s)")
    one.add_argument("--seeds", type=int, default=1, help="runs of each; medians are shown (%(default)s)")
    one.add_argument("--schedulers", default=",".join(SCHEDULERS), help="some of %(default)s")
    one.add_argument("--mode", default="relaxed", help="of the gangs: relaxed or strict (%(default)s)")
    for field in dataclasses.fields(Costs):
        text = f"{field.name[:-3]}, microseconds (%(default)s)"
        one.add_argument(f"--{field.name.replace('_', '-')}", type=float, default=field.default, help=text)
    return made


def described(options: argparse.Namespace) -> list[tuple[Scenario, int]]:
    """The scenarios that the options ask for, each with its number of seeds."""
    if options.cpus is None:
        return catalogue.standard()
    loads, weights = options.load or ["barrier"], options.weight or [100]
    guests = tuple(
        Guest(
            loads[n % len(loads)],
            options.vcpus,
            weights[n % len(weights)],
            options.work_us,
            options.extra_us,
            options.busy,
            ple=options.ple,
        )
        for n in range(options.guests)
    )
    costs = Costs(**{field.name: getattr(options, field.name) for field in dataclasses.fields(Costs)})
    host = Host(options.cpus, options.threads, options.llc or min(options.cpus, 64))
    schedulers = tuple(options.schedulers.split(","))
    scenario = Scenario(
        "asked",
        host,
        guests,
        options.seconds,
        mode=options.mode,
        costs=costs,
        schedulers=schedulers,
        tasks=tuple(_task(text) for text in options.task),
    )
    return [(scenario, max(options.seeds, 1))]


def _task(text: str) -> Task:
    load, _, count = text.partition(":")
    return Task(load, int(count) if count.isdecimal() else 1)


def told(engine: Engine, scenario: Scenario) -> list[str]:
    """A table of the parties for each scheduler; none if all vCPUs do the load, without ordinary tasks."""
    if not scenario.tasks and all(guest.busy is None for guest in scenario.guests):
        return []
    lines: list[str] = []
    for scheduler in scenario.schedulers:
        lines += table.of_parties(scheduler, parties(engine.run(scenario, scheduler)))
    return lines


def simulate(engine: Engine, scenario: Scenario, seeds: int) -> list[Figures]:
    """All schedulers of a scenario."""
    alone = {}
    for guest in dict.fromkeys(scenario.guests):
        run = engine.run(scenario.alone(guest), "gang")
        rounds, busy = run.guests[0]["rounds"], run.guests[0]["run_ns"]
        alone[guest] = Alone(rounds / run.seconds, busy / 1e9 / run.seconds)
    found = []
    for scheduler in scenario.schedulers:
        runs = [engine.run(replace(scenario, seed=seed), scheduler) for seed in range(1, seeds + 1)]
        found.append(median([of_run(scenario, run, alone) for run in runs]))
    return found


def traced(engine: Engine, scenario: Scenario) -> tuple[list[Run], tuple[int, int]]:
    """Runs long enough for a picture, and the stretch of time in it."""
    turn = round(scenario.costs.turn_us * 1e3)
    window = (40 * turn, (40 + TURNS_SHOWN) * turn)
    short = replace(scenario, seconds=(window[1] + turn) / 1e9)
    return [engine.run(short, scheduler, window) for scheduler in scenario.schedulers], window


def write_json(path: Path, results: Sequence[Result], compared: list[measured.Comparison] | None) -> None:
    """Everything that was found, for machines."""
    document = {
        "scenarios": [
            {"scenario": dataclasses.asdict(scenario), "figures": [dataclasses.asdict(one) for one in found]}
            for scenario, found in results
        ],
        "lab": None if compared is None else [dataclasses.asdict(one) for one in compared],
    }
    path.write_text(json.dumps(document, indent=1) + "\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """0, or 1 with one line about a scenario that cannot be simulated."""
    options = parser().parse_args(arguments)
    engine = Engine(options.out)
    results: list[Result] = []
    try:
        for one, seeds in described(options):
            scenario = replace(one, forgets=KERNELS[options.kernel])
            results.append((scenario, simulate(engine, scenario, seeds)))
            lines = [*table.of_scenario(*results[-1]), *told(engine, scenario)]
            print("\n".join(lines), flush=True)
            runs, window = traced(engine, scenario)
            draw.timeline(options.out / f"timeline-{scenario.name}.svg", scenario, runs, window)
    except ScenarioError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    cells = measured.read(options.bench)
    compared = None if cells is None else measured.compare(cells, results)
    print("\n".join(table.of_lab(compared)))
    draw.bars(options.out / "throughput.svg", results)
    write_json(options.out / "sim.json", results, compared)
    shown = options.out.relative_to(ROOT) if options.out.is_relative_to(ROOT) else options.out
    print(f"figures: {shown / 'sim.json'}, pictures: {shown}/*.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
