# SPDX-License-Identifier: Apache-2.0
"""`make bench-harm`: what gangs take from whom, each figure against that of the default scheduler."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from gangsim import harm_list, harm_table, random_rows
from gangsim.engine import HELPER, Engine
from gangsim.found import Found, Runner
from gangsim.harm_list import Group

ROOT = Path(__file__).resolve().parents[3]
CHANCE = 20  # hosts of each of the groups made by chance, unless asked for otherwise


def report(groups: Sequence[Group], run: Runner, out: Path | None = None) -> int:
    """Measure, print, write `out`. 0, or 1 if a row was missed."""
    found = [(group, _measured(group, run)) for group in groups if group.entries]
    print("\n".join(harm_table.lines(found)))
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(harm_table.document(found), indent=1) + "\n")
    return 0 if all(one.harmless for one in harm_table.everything(found)) else 1


def _measured(group: Group, run: Runner) -> list[Found]:
    found: list[Found] = []
    for at, (name, measure) in enumerate(group.entries, 1):
        new = measure(run)
        found += new
        verdicts = ", ".join(one.verdict.split(":")[0] for one in new)
        print(f"{group.name} {at}/{len(group.entries)} {name}: {verdicts}", file=sys.stderr, flush=True)
    return [*found, *random_rows.medians(group.name, found)] if group.chance else found


def parser() -> argparse.ArgumentParser:
    """Options; none at all means all rows, and some hosts made by chance."""
    made = argparse.ArgumentParser(prog="make bench-harm HARM=", description="Whom gangs harm, simulated.")
    made.add_argument("--only", default="", metavar="WORD", help="a group, or rows with that in their name")
    made.add_argument("--json", type=Path, metavar="FILE", help="where the rows are written for machines")
    made.add_argument("--helped", action="store_true", help="turns for unmarked guests that yield, too")
    made.add_argument("--seeds", type=int, default=1, metavar="N", help="the first of each row's seeds")
    for name, what in (("random", "made by chance"), ("masked", "of which some may not have all CPUs")):
        made.add_argument(
            f"--{name}", type=int, default=CHANCE, metavar="N", help=f"hosts {what} (%(default)s)"
        )
        made.add_argument(f"--{name}-seed", type=int, metavar="SEED", help="the one of that seed, alone")
    return made


def chosen(options: argparse.Namespace) -> list[Group]:
    """The groups that the options leave: a seed is one host and nothing else."""
    one = options.random_seed, options.masked_seed
    counts = options.random, options.masked
    alone = one != (None, None)
    single = [[] if seed is None else [seed] for seed in one]
    random, masked = single if alone else [list(range(1, count + 1)) for count in counts]
    found = [group.only(options.only) for group in harm_list.groups(random, masked, options.seeds)]
    return [group for group in found if group.chance or not alone]


def main(arguments: Sequence[str] | None = None) -> int:
    """Return as `report` does; 2 if no row is asked for."""
    options = parser().parse_args(arguments)
    groups = chosen(options)
    if not any(group.entries for group in groups):
        print(f"error: no row has '{options.only}' in its name", file=sys.stderr)
        return 2
    engine = Engine(ROOT / "build/sim", HELPER, None, *(["-DSHIM_HELP"] if options.helped else []))
    # rows that follow each other have a scenario in common
    return report(groups, lru_cache(maxsize=32)(engine.run), options.json)


if __name__ == "__main__":
    sys.exit(main())
