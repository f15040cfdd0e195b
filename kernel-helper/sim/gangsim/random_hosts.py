# SPDX-License-Identifier: Apache-2.0
"""Hosts made by chance, nested groups, limits, bound tasks and caches among them: `HARM="--random 1:200"`.

Of each the party is looked for that has least of what hierarchical max-min division gives it, and the one
that has least of that or of what the default scheduler gives it, whichever is less. The ideal alone is out of
reach of everybody inside a limit: with CPUs to spare its tasks run side by side until it is used up.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from gangsim.engine import Run
from gangsim.errors import Ejected
from gangsim.scenario import Group, Guest, Host, Scenario, Task

# sched_prio_to_weight, relative to nice 0
NICE = {-20: 86.68, -10: 9.324, 0: 1.0, 5: 0.327, 10: 0.107, 19: 0.01465}
WEIGHTS = (1, 10, 50, 100, 100, 100, 100, 200, 400, 1000, 10000)
WANTED, MEDIAN = 0.85, 0.97
PATIENCE_MS = 5000  # where default lets nobody wait for longer, nobody is to be ejected


@dataclass
class Node:
    """A party that divides CPUs: `own` of its own, or the sum of its children's, `limit` at most."""

    weight: float
    own: float | None = None
    limit: float | None = None
    children: list[Node] = field(default_factory=list)
    given: float = 0

    @property
    def usable(self) -> float:
        """CPUs."""
        total = sum(child.usable for child in self.children) if self.own is None else self.own
        return total if self.limit is None else min(total, self.limit)

    def give(self, cpus: float) -> None:
        """Divide them among the children, by weight; nobody gets more than it can use."""
        self.given = cpus
        left = list(self.children)
        while left:
            unit = cpus / sum(child.weight for child in left)
            full = [child for child in left if child.usable <= child.weight * unit + 1e-9]
            for child in full or left:
                child.give(child.usable if full else child.weight * unit)
            cpus -= sum(child.given for child in full)
            left = [child for child in left if child not in full] if full else []

    def prune(self) -> bool:
        """False if nobody below has anything to run; such children are dropped."""
        self.children = [child for child in self.children if child.own is not None or child.prune()]
        return bool(self.children)


class Maker:
    """One host, and the ideal of each party on it. masks: guests and tasks may lack CPUs, so the ideal, which
    knows of none, is more than some can have."""

    def __init__(self, seed: int, masks: bool = False) -> None:
        self.random = random.Random(seed)
        choice = self.random.choice
        self.cpus = choice((4, 8, 8, 16, 16))
        self.caches = choice((1, 1, 1, 2)) if self.cpus > 4 else 1
        self.root, self.machine, self.system = Node(1), Node(100), Node(100)
        self.nodes = {"": self.machine, "system": self.system}
        self.free = list(range(self.cpus))
        self.random.shuffle(self.free)
        self.parties: list[tuple[str, Node]] = []
        self.groups = [self.group(number) for number in range(self.random.randint(0, 5))]
        self.guests = [self.guest(number) for number in range(self.random.randint(1, 6))]
        hogs = [self.hogs(number) for number in range(self.random.randint(0, 4))]
        self.tasks = [*hogs, *(self.cycles(number) for number in range(self.random.randint(0, 2)))]
        self.root.children += [self.machine, self.system]
        self.root.prune()
        self.root.give(min(self.cpus, self.root.usable))
        threads = choice((1, 2)) if self.cpus // self.caches > 1 else 1
        host = Host(self.cpus, threads, self.cpus // self.caches)
        seconds = 12 if self.random.random() < 0.9 else 40
        self.scenario = Scenario(
            f"r{seed}", host, tuple(self.guests), seconds, seed,
            tasks=tuple(self.tasks), groups=tuple(self.groups),
        )  # fmt: skip
        if masks:
            self.scenario = masked(self.scenario, random.Random(f"masks {seed}"))
        self.ideal = {name: sum(part.given for part in node.children) for name, node in self.parties}

    def among(self, *first: str) -> str:
        """The name of a group to be in."""
        return self.random.choice([*first, *(name for name in self.nodes if name not in ("", "system"))])

    def group(self, number: int) -> Group:
        up = self.among("")
        limit = self.random.choice((None, None, None, 0.5, 2.0))
        made = Group(f"x{number}", self.random.choice(WEIGHTS), up, limit)
        node = self.nodes[made.name] = Node(made.weight, limit=limit)
        (self.nodes[up] if up else self.root).children.append(node)
        return made

    def guest(self, number: int) -> Guest:
        rnd = self.random
        width, load = rnd.randint(1, self.cpus // self.caches), rnd.choice(("barrier", "spin", "spin", "ipi"))
        load = "spin" if width < 2 else load
        busy = None if load == "ipi" else rnd.choice((None, None, rnd.randint(1, width)))
        parent = self.among("", "", "")
        weight, ple, marked = rnd.choice(WEIGHTS), rnd.random() < 0.3, rnd.random() < 0.75
        node = Node(weight, children=[Node(100, 1.0) for _ in range(width if busy is None else busy)])
        self.nodes[parent].children.append(node)
        self.parties.append((f"g{number}", node))
        return Guest(load, width, weight, busy=busy, ple=ple, marked=marked, parent=parent)

    def hogs(self, number: int) -> Task:
        rnd = self.random
        group, count, nice = self.among("system"), rnd.choice((1, 1, 2, 4, 8)), rnd.choice((0, 0, *NICE))
        bound = rnd.random() < 0.25 and bool(self.free)
        cpus = (self.free.pop(),) if bound else None
        parts = [Node(100 * NICE[nice], 1.0) for _ in range(1 if bound else count)]
        self.nodes[group].children += parts
        self.parties.append((f"t{number}", Node(0, children=parts)))
        return Task(
            "hog",
            len(parts),
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
        parts = [Node(100, work / (work + sleep)) for _ in range(count)]
        self.system.children += parts
        self.parties.append((f"c{number}", Node(0, children=parts)))
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


@dataclass(frozen=True)
class Judged:
    """A scheduler on one host: the party that has least of its ideal, and how much; the one that has least of
    that or of its share under the default scheduler, and how much; the longest wait, ms."""

    party: str
    part: float
    loser: str
    kept: float
    longest_ms: float


def longest_ms(run: Run) -> float:
    """The longest that a task was runnable and had no CPU."""
    return max(int(task["longest_wait_ns"]) for task in run.tasks) / 1e6


def judge(made: Maker, run: Run, default: Run) -> Judged:
    """Raises ValueError if there is nobody."""
    ideals = {name: ideal for name, ideal in made.ideal.items() if ideal > 0}
    part, party = min((run.share(name) / ideal, name) for name, ideal in ideals.items())
    least = {name: min(ideal, default.share(name)) for name, ideal in ideals.items()}
    kept, loser = min((run.share(name) / cpus, name) for name, cpus in least.items() if cpus > 0)
    return Judged(party, part, loser, kept, longest_ms(run))


def report(run: Callable[[Scenario, str], Run], first: int, last: int, masks: bool = False) -> int:
    """Print a line for each host, then what all say. The exit status: 1 if `failures` finds any."""
    found: list[Judged] = []
    ejected = 0
    for seed in range(first, last + 1):
        made = Maker(seed, masks)
        what = f"{seed}: {made.cpus} CPUs, {made.caches} caches, {len(made.guests)} guests"
        default = run(made.scenario, "default")
        try:
            one = judge(made, run(made.scenario, "gang"), default)
        except Ejected as error:
            patient = longest_ms(default) > PATIENCE_MS
            ejected += not patient
            why = " (default waits for longer than 5 s, too)" if patient else ""
            print(f"{what}: ejected{why}: {error}", flush=True)
            continue
        found.append(one)
        print(
            f"{what}: {one.party} has {one.part:.2f} of its ideal, {one.loser} {one.kept:.2f} of that or of "
            f"default's, longest wait {one.longest_ms:.0f} ms",
            flush=True,
        )
    print("\n".join(summary(found, ejected)))
    failed = failures(found, ejected)
    print("missed: " + ", ".join(failed) if failed else "kept")
    return int(bool(failed))


def failures(found: Sequence[Judged], ejected: int) -> list[str]:
    """The reasons for an exit status of 1: the bounds that `summary` prints. The ideal alone is none."""
    kept = [one.kept for one in found]
    reasons = {
        "no host was left": not kept,
        "a party is below": bool(kept) and min(kept) < WANTED,
        "the median is below": bool(kept) and statistics.median(kept) < MEDIAN,
        "the scheduler was ejected": ejected > 0,
    }
    return [reason for reason, true in reasons.items() if true]


def _spread(parts: Sequence[float], least: str = "", median: str = "") -> str:
    """The figures of all hosts' worst parties, each with the bound wanted of it."""
    return (
        f"least {min(parts):.2f}{least}, median {statistics.median(parts):.2f}{median}, below {WANTED}: "
        f"{sum(part < WANTED for part in parts)} of {len(parts)} hosts"
    )


def summary(found: Sequence[Judged], ejected: int) -> list[str]:
    """The figures of all hosts, as lines, each bound of the exit status beside its figure."""
    parts, kept = [one.part for one in found] or [0.0], [one.kept for one in found] or [0.0]
    return [
        f"worst party of its ideal: {_spread(parts)}",
        "worst party of its ideal or of default's share, the lesser: "
        + _spread(kept, f" (>= {WANTED})", f" (>= {MEDIAN})"),
        f"ejected where default has nobody waiting for over 5 s: {ejected} (0)",
        f"longest wait: median {statistics.median(one.longest_ms for one in found):.0f} ms, "
        f"most {max(one.longest_ms for one in found):.0f} ms" if found else "no host was left",
    ]  # fmt: skip
