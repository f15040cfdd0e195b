# SPDX-License-Identifier: Apache-2.0
"""`make publish`: all of docs/results, measured where it is missing or old, and then the pages.

An interrupted run goes on where it was, also in another clone: what is published counts as measured.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable

from bench import conditions, noise, result, settings, store
from bench.records import Origin, Result
from bench.seeds import plan
from bench.tile import plan as tile
from bench.tile.settings import settled
from lab.paths import REPO
from lab.qemu import Clock

SETTLED = {"noise": noise.settled, "tile": settled}  # parts with defaults of their own
PAGES = ("benchmarks", "kernels")
# By part the options of each of its runs.
JOBS: tuple[tuple[str, str], ...] = (
    ("matrix", ""),
    ("overhead", ""),
    ("adaptive", ""),
    ("noise", ""),
    *(("shares", f"--kernel {row}") for row in ("6.18", "7.2-bpo", "6.12", "6.1")),
    *(("matrix", f"--smp {n} --vcpus {n} --loads barrier --guests 4 --ple off") for n in (4, 8)),
    ("seeds", ""),
    ("latency", ""),
    ("tile", ""),
    ("tile", "--kernel 6.12 --ple off"),  # gang.ko schedules; the emulator has no PLE for this kernel
)


def everything(parse: Callable[[list[str]], Namespace], measure: Callable[[str, Namespace], int]) -> int:
    """Run the jobs that are not done, and publish after each. Returns 1 if one could not be done, else 0."""
    status, begin = 0, time.monotonic()
    for number, (part, words) in enumerate(JOBS, 1):
        options = parse(words.split())
        name = store.name_of(part, options)
        print(f"{number} of {len(JOBS)}: {name}", flush=True)
        if is_done(part, options):
            print("  is of today's sources", flush=True)
            continue
        status |= min(1, measure(part, options))
        publish(part, options)
    pages()
    names = {store.name_of(part, parse(words.split())) for part, words in JOBS}
    found = [store.document(store.PUBLISHED / f"{name}.json") for name in names]
    hours = sum(document.wall_seconds for document in found if document) / 3600
    minutes = (time.monotonic() - begin) / 60
    print(f"this run took {minutes:.0f} minutes, and all that is published {hours:.1f} hours")
    return status


def is_done(part: str, options: Namespace) -> bool:
    """True if the part was measured whole under today's conditions."""
    found = store.results(store.HOME / f"{store.name_of(part, options)}.json")
    origin, options = wanted(part, options)
    return any(each.origin == origin and is_whole(part, each, options) for each in found)


def wanted(part: str, options: Namespace) -> tuple[Origin, Namespace]:
    """Return today's conditions of a part, and all of its options."""
    options = SETTLED[part](options) if part in SETTLED else options
    options = settings.complete(options, part)
    # `noise` is a cell of the matrix, measured twice.
    return conditions.origin("matrix" if part == "noise" else part, options), options


def is_whole(part: str, found: Result, options: Namespace) -> bool:
    """True if the result has every cell that the options ask for."""
    loads, guests, ples = options.loads.split(","), options.guests.split(","), options.ple.split(",")
    places = list(itertools.product(loads, [word == "on" for word in ples], map(int, guests)))
    if part == "matrix":
        variants = options.variants.split(",")
        return all(result.is_complete(found, key, variants, options.rounds) for key in places)
    if part == "adaptive":
        return set(places) <= {result.key_of(cell) for cell in found.adaptive}
    if part == "tile":
        worlds = [word == "on" for word in ples]
        return tile.is_whole(found.tile, worlds, int(options.guests), options.rounds)
    if part in conditions.LINUX:
        keys = [{"load": load, "ple": ple, "guests": number, "features": features}
                for load, ple, number in places for features in options.features.split(",")]  # fmt: skip
        cells = getattr(found, part)  # the driver makes the list
        return all(plan.is_whole(plan.found(cells, key), options.rounds) for key in keys)
    return bool(getattr(found, "rows" if part == "noise" else part))


def publish(part: str, options: Namespace) -> None:
    """Copy a part's result, as far as it is, to docs/results for the pages to quote: if it was measured in
    virtual time and under today's conditions."""
    store.PUBLISHED.mkdir(exist_ok=True)
    name = f"{store.name_of(part, options)}.json"
    found = store.document(store.HOME / name)
    today = found and found.date and found.origin == wanted(part, options)[0]
    if found and today and found.origin.clock == Clock.VIRTUAL.value:
        result.finish(found).write(store.PUBLISHED / name)


def pages() -> None:
    """Write the pages anew that quote docs/results."""
    for page in PAGES:
        subprocess.run([sys.executable, "-m", f"docs.tools.{page}"], cwd=REPO, check=True)
