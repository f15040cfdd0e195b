# SPDX-License-Identifier: Apache-2.0
"""Hosts made by chance, nested groups, limits, bound tasks and caches among them.

The ideal of a party alone is out of reach of everybody inside a limit: with CPUs to spare its tasks run side
by side until it is used up.
"""

from __future__ import annotations

import random
from dataclasses import replace

from gangsim import ideal
from gangsim.scenario import Group, Guest, Host, Scenario, Task

NICE = (-20, -10, 0, 5, 10, 19)
WEIGHTS = (1, 10, 50, 100, 100, 100, 100, 200, 400, 1000, 10000)


class Maker:
    """A host, and the ideal of each party on it. masks: guests and tasks may lack CPUs, so the ideal, which
    knows of none, is more than some can have."""

    def __init__(self, seed: int, masks: bool = False) -> None:
        self.random = random.Random(seed)
        choice = self.random.choice
        self.cpus = choice((4, 8, 8, 16, 16))
        self.caches = choice((1, 1, 1, 2)) if self.cpus > 4 else 1
        self.names: list[str] = []
        self.free = list(range(self.cpus))
        self.random.shuffle(self.free)
        self.groups = [self.group(number) for number in range(self.random.randint(0, 5))]
        self.guests = [self.guest(number) for number in range(self.random.randint(1, 6))]
        hogs = [self.hogs(number) for number in range(self.random.randint(0, 4))]
        self.tasks = [*hogs, *(self.cycles(number) for number in range(self.random.randint(0, 2)))]
        threads = choice((1, 2)) if self.cpus // self.caches > 1 else 1
        host = Host(self.cpus, threads, self.cpus // self.caches)
        seconds = 12 if self.random.random() < 0.9 else 40
        self.scenario = Scenario(
            f"r{seed}", host, tuple(self.guests), seconds, seed,
            tasks=tuple(self.tasks), groups=tuple(self.groups),
        )  # fmt: skip
        if masks:
            self.scenario = masked(self.scenario, random.Random(f"masks {seed}"))
        self.ideal = ideal.due(self.scenario)

    def among(self, *first: str) -> str:
        """The name of a group to be in."""
        return self.random.choice([*first, *self.names])

    def group(self, number: int) -> Group:
        up = self.among("")
        limit = self.random.choice((None, None, None, 0.5, 2.0))
        self.names.append(f"x{number}")
        return Group(f"x{number}", self.random.choice(WEIGHTS), up, limit)

    def guest(self, number: int) -> Guest:
        rnd = self.random
        width, load = rnd.randint(1, self.cpus // self.caches), rnd.choice(("barrier", "spin", "spin", "ipi"))
        load = "spin" if width < 2 else load
        busy = None if load == "ipi" else rnd.choice((None, None, rnd.randint(1, width)))
        parent = self.among("", "", "")
        weight, ple, marked = rnd.choice(WEIGHTS), rnd.random() < 0.3, rnd.random() < 0.75
        return Guest(load, width, weight, busy=busy, ple=ple, marked=marked, parent=parent)

    def hogs(self, number: int) -> Task:
        rnd = self.random
        group, count, nice = self.among("system"), rnd.choice((1, 1, 2, 4, 8)), rnd.choice((0, 0, *NICE))
        bound = rnd.random() < 0.25 and bool(self.free)
        cpus = (self.free.pop(),) if bound else None
        return Task(
            "hog",
            1 if bound else count,
            nice=nice,
            group="" if group == "system" else group,
            name=f"t{number}",
            cpus=cpus,
        )

    def cycles(self, number: int) -> Task:
        rnd = self.random
        cpus = (self.free.pop(),) if rnd.random() < 0.3 and self.free else None
        count, work, sleep = rnd.choice((1, 4)), rnd.choice((50, 500, 3000)), rnd.choice((1000, 10000))
        count = 1 if cpus else count
        return Task(
            "cycle", count, work, sleep, name=f"c{number}", cpus=cpus, start_ms=rnd.choice((0, 0, 3000))
        )


def masked(scenario: Scenario, chance: random.Random) -> Scenario:
    """Return the scenario with CPUs reserved, and guests and tasks limited to a cache or to any CPUs."""
    host = replace(scenario.host, reserved=chance.choice((0, 0, scenario.host.threads)))

    def room(width: int) -> tuple[int, ...] | None:
        cache = chance.choice(host.domains())
        some = sorted(chance.sample(range(host.cpus), chance.randint(width, host.cpus)))
        found = chance.choice((None, cache, some))
        return tuple(found) if found and len(found) >= width else None

    guests = tuple(replace(guest, room=room(guest.vcpus)) for guest in scenario.guests)
    tasks = tuple(task if task.cpus else replace(task, cpus=room(1)) for task in scenario.tasks)
    return replace(scenario, host=host, guests=guests, tasks=tasks)
