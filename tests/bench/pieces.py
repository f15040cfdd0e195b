# SPDX-License-Identifier: Apache-2.0
"""The pieces into which a part is cut, so that several VMs measure it at once. Pure but for reading results.

The pieces of a part measure cells that no other one has. Each begins with what the part's result has of them,
writes a result of its own (`seeds-6.18.ebizzy.json`), and is merged into the part's, whichever way it ended:
the part can be cut in another way the next time.
"""

from __future__ import annotations

import itertools
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import structs

from bench import noise, result, settings, store
from bench.conditions import LINUX
from bench.records import Origin, Result
from bench.seeds import plan
from bench.tile import plan as tile
from bench.tile.settings import settled

SETTLED = {"noise": noise.settled, "tile": settled}  # parts with defaults of their own
# By part the option whose values are a piece each. A piece takes an hour and a half at most.
CUT = {**dict.fromkeys(("matrix", "adaptive", "seeds", "latency"), "loads"), "tile": "ple"}
# By part the cells that cannot be measured: after the start of 8 guests whose vCPUs wake each other, under
# 6.18's default class, the VM's driver says no word more (two tries: for 20 minutes, and for 9).
UNMEASURED = {"matrix": {("sleepwake", ple, 8) for ple in (False, True)}}
LISTS = {"matrix": "cells", "noise": "rows"}  # where a result has the cells of a part; else under its name
Place = tuple[Any, ...]


@dataclass(frozen=True)
class Job:
    """A part under all of its options and today's conditions."""

    part: str
    options: Namespace
    origin: Origin

    @property
    def name(self) -> str:
        """The name of its result."""
        return store.name_of(self.part, self.options)

    @property
    def place(self) -> Path:
        """The file of its result."""
        return store.HOME / f"{self.name}.json"


@dataclass(frozen=True)
class Piece:
    """The work of one VM. suffix: what its name has after the job's; "" if it is all of it. lacking: of its
    cells, those to be measured. seconds: what that will take; None: unknown."""

    job: Job
    options: Namespace
    suffix: str
    cells: int
    lacking: int
    why: str
    seconds: float | None

    @property
    def name(self) -> str:
        """The name of its result, its log, its console and its share."""
        return f"{self.job.name}.{self.suffix}" if self.suffix else self.job.name

    @property
    def place(self) -> Path:
        """The file of its result."""
        return store.HOME / f"{self.name}.json"


def complete(part: str, options: Namespace) -> Namespace:
    """Return all options of a part."""
    return settings.complete(SETTLED[part](options) if part in SETTLED else options, part)


def places(part: str, options: Namespace) -> list[Place]:
    """Return the places of all cells that the options ask for."""
    loads, guests = options.loads.split(","), [int(word) for word in options.guests.split(",")]
    ples = [word == "on" for word in options.ple.split(",")]
    if part in ("matrix", "adaptive"):
        found = itertools.product(loads, ples, guests)
        return [place for place in found if place not in UNMEASURED.get(part, ())]
    if part == "tile":
        loads = [part]
    if part in LINUX:
        features = options.features.split(",")
        worlds = [world for world in plan.WORLDS if world[0] in ples and world[1] in features]
        return [(load, *world, number) for load in loads for world in worlds for number in guests]
    return [()]


def place_of(part: str, cell: Any) -> Place:
    """Return the place of a cell of a result."""
    if part in LINUX:
        return tuple(cell[name] for name in plan.PLACE)
    return result.key_of(cell) if part in ("matrix", "adaptive") else ()


def listed(part: str, found: Result) -> Any:
    """Return what a result has of the part."""
    return getattr(found, LISTS.get(part, part))


def lacking(part: str, found: Result, options: Namespace) -> list[Place]:
    """Return the places of the cells that the options ask for and the result does not have whole."""
    return [place for place in places(part, options) if not _has(part, found, options, place)]


def _has(part: str, found: Result, options: Namespace, place: Place) -> bool:
    if part == "matrix":
        load, ple, guests = place
        return result.is_complete(found, (load, ple, guests), options.variants.split(","), options.rounds)
    cells = listed(part, found)
    if part not in CUT:
        return bool(cells)
    here = [cell for cell in cells if place_of(part, cell) == place]
    if part == "adaptive":
        return any(all(len(rates) >= options.rounds for rates in cell.rates.values()) for cell in here)
    if part == "tile":
        return any(tile.lacks(cell, options.rounds) == 0 for cell in here)
    return any(plan.is_whole(cell, options.rounds) for cell in here)


def is_done(job: Job) -> bool:
    """True if the part was measured whole under today's conditions."""
    same = [found for found in store.results(job.place) if found.origin == job.origin]
    return any(not lacking(job.part, found, job.options) for found in same)


def left_over(job: Job) -> list[Path]:
    """Return the results of pieces that no run has merged: it was killed."""
    return sorted(store.HOME.glob(f"{job.name}.*.json"))


def known(job: Job) -> Result:
    """Return the part's result to go on with: all that was measured under today's conditions, here, in
    another clone, and by pieces that a killed run left."""
    found = store.begun(job.part, job.origin, job.place, False)
    published = store.document(store.PUBLISHED / job.place.name)
    if published and goes_on(job, published):
        merged = list_merged(job.part, listed(job.part, published), listed(job.part, found))
        setattr(found, LISTS.get(job.part, job.part), merged)
    for place in left_over(job):
        merge(job, found, Result.read(place))
    return found


def goes_on(job: Job, found: Result) -> bool:
    """True if a result was measured, and is judged, as one of today is."""
    return result.continued(found, job.part, job.origin) is found


def list_merged(part: str, old: Any, new: Any) -> Any:
    """Return all cells; of two in one place the new one. What has no cells is whole."""
    if part not in CUT:
        return new or old
    if part == "matrix":
        return result.merged(old, new)
    return list({place_of(part, cell): cell for cell in [*old, *new]}.values())


def merge(job: Job, whole: Result, found: Result) -> None:
    """Take what a piece has measured, lost and spent into the part's result, if it is of today."""
    if not goes_on(job, found):
        return
    cells = list_merged(job.part, listed(job.part, whole), listed(job.part, found))
    setattr(whole, LISTS.get(job.part, job.part), cells)
    whole.date, whole.kernel = found.date or whole.date, found.kernel or whole.kernel
    whole.lab_failures = [*whole.lab_failures, *found.lab_failures]
    whole.wall_seconds += found.wall_seconds


def begun(piece: Piece, whole: Result) -> Result:
    """Return the result that a piece begins with: the part's, with no more than its own cells."""
    part, wanted = piece.job.part, set(places(piece.job.part, piece.options))
    found = result.empty(part, piece.job.origin)
    cells = [cell for cell in listed(part, whole) if place_of(part, cell) in wanted]
    setattr(found, LISTS.get(part, part), cells)
    return found


def cut(job: Job) -> Iterator[Piece]:
    """Yield the pieces of a job that lack something."""
    found, each, why = known(job), cell_seconds(job), reason(job)
    name = CUT.get(job.part, "")
    values = getattr(job.options, name).split(",") if name else []
    whole = len(values) < 2
    for value in [""] if whole else values:
        options = job.options if whole else Namespace(**{**vars(job.options), name: value})
        left = len(lacking(job.part, found, options))
        if left:
            suffix = f"ple-{value}" if value and name == "ple" else value
            seconds = None if each is None else each * left
            options = _without_unmeasured(job.part, options)
            yield Piece(job, options, suffix, len(places(job.part, options)), left, why, seconds)


def _without_unmeasured(part: str, options: Namespace) -> Namespace:
    """Return the options with the numbers of guests that have a cell: the driver begins with the most."""
    if part not in UNMEASURED:
        return options
    numbers = {place[2] for place in places(part, options)}
    asked = [word for word in options.guests.split(",") if int(word) in numbers]
    return Namespace(**{**vars(options), "guests": ",".join(asked)})


def cell_seconds(job: Job) -> float | None:
    """Return how long a cell took when the part was published; None: unknown. What it carries from earlier
    sources (seeds) has its time in it."""
    found = store.document(store.PUBLISHED / job.place.name)
    if not found or not listed(job.part, found):
        return None
    cells = {place_of(job.part, cell) for cell in listed(job.part, found)} if job.part in CUT else [()]
    return found.wall_seconds / (len(cells) + len(found.before)) or None


def reason(job: Job) -> str:
    """Return why a job is not done."""
    found = store.results(job.place)
    if not found or any(goes_on(job, each) for each in found):
        return "missing"
    today, then = structs.asdict(job.origin), structs.asdict(found[-1].origin)
    names = [name for name in today if today[name] != then[name]]
    return f"measured with other {', '.join(names) or 'bars'}"
