# SPDX-License-Identifier: Apache-2.0
"""Hosts made by chance, nested groups, limits, bound tasks and caches among them: `HARM="--random 1:200"`.

Of each the party is looked for that has least of what hierarchical max-min division gives it, and the one
that has least of that or of what the default scheduler gives it, whichever is less. The ideal alone is out of
reach of everybody inside a limit: with CPUs to spare its tasks run side by side until it is used up.
Rounds of guests that wait for themselves, and long waits, are counted beside that and decide nothing.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from gangsim import ideal
from gangsim.engine import Run
from gangsim.errors import Ejected
from gangsim.scenario import Group, Guest, Host, Scenario, Task

NICE = (-20, -10, 0, 5, 10, 19)
WEIGHTS = (1, 10, 50, 100, 100, 100, 100, 200, 400, 1000, 10000)
WANTED, MEDIAN = 0.85, 0.985
BELOW, BELOW_MASKED = 0.05, 0.125  # of the hosts may have a party below WANTED: 10 and 25 of 200
PATIENCE_MS = 5000  # where default lets nobody wait for longer, nobody is to be ejected
LONG_MS = 1000  # a wait is long if it is over that and twice default's
FEWEST = 10  # rounds a second: what is less by default is chance


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


@dataclass(frozen=True)
class Judged:
    """A scheduler on one host.

    party, part: the party that has least of its ideal, and how much. loser, kept: the one that has least of
    that or of its share under the default scheduler, whichever is less, and how much. slowest, rounds: the
    same of the rounds that a guest's ideal share comes to, or of default's; None: no guest is due any.
    longest_ms, default_ms: the longest waits here, and under the default scheduler.
    """

    party: str
    part: float
    loser: str
    kept: float
    slowest: str
    rounds: float | None
    longest_ms: float
    default_ms: float

    @property
    def waits(self) -> bool:
        """True if somebody waits for over a second, and for over twice the longest wait by default."""
        return self.longest_ms > max(2 * self.default_ms, LONG_MS)


def longest_ms(run: Run) -> float:
    """The longest that a task was runnable and had no CPU."""
    return max(int(task["longest_wait_ns"]) for task in run.tasks) / 1e6


def judge(made: Maker, run: Run, default: Run) -> Judged:
    """Raises ValueError if there is nobody."""
    ideals = {name: cpus for name, cpus in made.ideal.items() if cpus > 0}
    part, party = min((run.share(name) / cpus, name) for name, cpus in ideals.items())
    least = {name: min(cpus, default.share(name)) for name, cpus in ideals.items()}
    kept, loser = min((run.share(name) / cpus, name) for name, cpus in least.items() if cpus > 0)
    rounds, slowest = min(_rounds(made, run, default), default=(None, ""))
    return Judged(party, part, loser, kept, slowest, rounds, longest_ms(run), longest_ms(default))


def _rounds(made: Maker, run: Run, default: Run) -> list[tuple[float, str]]:
    """Each guest at barriers or with interrupts, and its part of the lesser of two figures."""
    found = []
    for number, guest in enumerate(made.scenario.guests):
        name = guest.called(number)
        if guest.load not in ("barrier", "ipi"):
            continue
        usual = default.guests[number]["rounds"] / default.seconds
        least = min(usual, ideal.rounds(made.scenario, number, made.ideal[name]))
        if least >= FEWEST:
            found.append((run.guests[number]["rounds"] / run.seconds / least, name))
    return found


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
        print(f"{what}: {_line(one)}", flush=True)
    print("\n".join(summary(found, ejected, masks)))
    failed = failures(found, ejected, masks)
    print("missed: " + ", ".join(failed) if failed else "kept")
    return int(bool(failed))


def _line(one: Judged) -> str:
    rounds = "" if one.rounds is None else f", {one.slowest} does {one.rounds:.2f} of its rounds"
    return (
        f"{one.party} has {one.part:.2f} of its ideal, {one.loser} {one.kept:.2f} of that or of default's"
        f"{rounds}, longest wait {one.longest_ms:.0f} ms"
        + (f" (default {one.default_ms:.0f} ms)" if one.waits else "")
    )


def failures(found: Sequence[Judged], ejected: int, masks: bool = False) -> list[str]:
    """The reasons for an exit status of 1: the bounds that `summary` prints. The ideal alone is none, nor are
    rounds and waits."""
    kept = [one.kept for one in found]
    reasons = {
        "no host was left": not kept,
        "too many hosts are below": _below(kept) > _allowed(len(kept), masks),
        "the median is below": bool(kept) and statistics.median(kept) < MEDIAN,
        "the scheduler was ejected": ejected > 0,
    }
    return [reason for reason, true in reasons.items() if true]


def _below(parts: Sequence[float]) -> int:
    return sum(part < WANTED for part in parts)


def _allowed(hosts: int, masks: bool) -> int:
    """The number of hosts that may have a party below WANTED."""
    return int(hosts * (BELOW_MASKED if masks else BELOW))


def _spread(parts: Sequence[float], median: str = "", below: str = "") -> str:
    """The figures of all hosts' worst parties, each with the bound wanted of it."""
    return (
        f"least {min(parts):.2f}, median {statistics.median(parts):.3f}{median}, below {WANTED}: "
        f"{_below(parts)} of {len(parts)} hosts{below}"
    )


def summary(found: Sequence[Judged], ejected: int, masks: bool = False) -> list[str]:
    """The figures of all hosts, as lines, each bound of the exit status beside its figure."""
    parts, kept = [one.part for one in found] or [0.0], [one.kept for one in found] or [0.0]
    rounds = [one.rounds for one in found if one.rounds is not None]
    bounds = f" (>= {MEDIAN})", f" (<= {_allowed(len(found), masks)})"
    return [
        f"worst party of its ideal: {_spread(parts)}",
        f"worst party of its ideal or of default's share, the lesser: {_spread(kept, *bounds)}",
        "worst guest's rounds of those of its ideal share or of default's, the lesser: "
        + (_spread(rounds) if rounds else "no host has any"),
        f"longest wait over 1 s and twice default's: {sum(one.waits for one in found)} of {len(found)} hosts",
        f"ejected where default has nobody waiting for over 5 s: {ejected} (0)",
        f"longest wait: median {statistics.median(one.longest_ms for one in found):.0f} ms, "
        f"most {max(one.longest_ms for one in found):.0f} ms" if found else "no host was left",
    ]  # fmt: skip
