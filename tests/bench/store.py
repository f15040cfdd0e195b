# SPDX-License-Identifier: Apache-2.0
"""The results as files: build/bench has what was measured last, docs/results what is published."""

from __future__ import annotations

import shutil
import time
from argparse import Namespace
from pathlib import Path

from bench import result, settings
from bench.conditions import LINUX
from bench.records import Origin, Result
from bench.seeds import plan
from bench.settings import LOG
from lab.paths import REPO

HOME = REPO / "build" / "bench"
PUBLISHED = REPO / "docs" / "results"
KERNEL = "6.18"  # the row that is measured unless another one is asked for
SHARED = "result.json"  # in the VM under one name, whatever is measured: a name, too, is another history


def begin(part: str, conditions: Origin, place: Path, again: bool) -> None:
    """Keep the last result, or the published one, if its conditions (origin) are the same; else begin one."""
    HOME.mkdir(parents=True, exist_ok=True)
    new = begun(part, conditions, place, again)
    if not again and new not in (found := results(place)) and found:
        print(f"{place.name}: measured under other conditions, so it is measured anew", flush=True)
    new.write(place)


def begun(part: str, conditions: Origin, place: Path, again: bool = False) -> Result:
    """Return the result to go on with, as `begin` writes it."""
    found = [] if again else results(place)
    old = next((one for one in found if one.origin == conditions), found[0] if found else None)
    new = result.continued(old, part, conditions)
    if old is not None and new is not old and part == "seeds":
        plan.carry(old, new)
    return new


def results(place: Path) -> list[Result]:
    """Return the result measured last and the published one, as far as there are such."""
    return [found for found in map(document, (place, PUBLISHED / place.name)) if found]


def document(place: Path) -> Result | None:
    """Return the result measured so far; None if there is none."""
    return Result.read(place) if place.exists() else None


def name_of(part: str, options: Namespace) -> str:
    """Return the name of a part's result file: no kernel and no number of CPUs takes the place of another."""
    named = part in ("shares", *LINUX) or options.kernel != KERNEL
    name = f"{part}-{options.kernel}" if named else part
    return name if options.smp in (None, settings.CPUS.get(part, 2)) else f"{name}-{options.smp}cpus"


def collect(place: Path, share: Path, seconds: float) -> None:
    """Copy a VM's result and log from the share. The date and the real time are only known out here."""
    if (share / LOG).exists():
        shutil.copy(share / LOG, HOME / f"{place.stem}.{LOG}")
    found = document(share / SHARED)
    if found is not None:
        found.date = time.strftime("%Y-%m-%d", time.gmtime())
        found.wall_seconds = round(found.wall_seconds + seconds)
        found.write(place)
        shutil.copy(place, share / SHARED)
