# SPDX-License-Identifier: Apache-2.0
"""The ideal of each party: hierarchical max-min division (Bertsekas and Gallager) of the host's CPUs.

It is by cpu.weight, nice, cpu.idle, cpu.max, demand, and the CPUs that each party may have: parties for which
these are too few divide them as if they were alone there, and what they cannot use is for all others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from gangsim.bars import TICK_MS
from gangsim.scenario import Guest, Scenario, Task

SLICE_MS = 3.0  # the longest request of a task: base_slice_ns of four CPUs and more, by its tick
IDLE = 100 * 3 / 1024  # WEIGHT_IDLEPRIO where others have 1024


@dataclass
class Node:
    """A party that divides CPUs: it can use `own`, or what its children can use, `limit` at most."""

    weight: float
    own: float = 0
    limit: float | None = None
    children: list[Node] = field(default_factory=list)
    cpus: frozenset[int] = frozenset()  # that a leaf may have
    given: float = 0

    @property
    def usable(self) -> float:
        """CPUs."""
        total = self.own + sum(child.usable for child in self.children)
        return total if self.limit is None else min(total, self.limit)

    def give(self, cpus: float) -> None:
        """Divide them among the children, by weight; nobody gets more than it can use."""
        self.given = cpus
        left = [(child, child.usable) for child in self.children]
        while left:
            unit = cpus / sum(child.weight for child, _ in left)
            full = [(child, most) for child, most in left if most <= child.weight * unit + 1e-9]
            for child, most in full or left:
                child.give(most if full else child.weight * unit)
            cpus -= sum(most for _, most in full)
            left = [one for one in left if one not in full] if full else []


def shares(scenario: Scenario) -> dict[str, float]:
    """CPUs of each party, the tasks of one name together, if its sleep is not put off by its waiting."""
    return _divide(scenario, scenario.tasks)[0]


def due(scenario: Scenario) -> dict[str, float]:
    """Return `shares`, but a task that sleeps has its share only while awake: waiting puts its sleep off.

    Awake it is worth r CPUs, by a division in which this one task never sleeps, so it is due
    work / (work / r + sleep). Quotas are no rates: that division has none for its groups.
    """
    found = shares(scenario)
    for name in {task.name or task.load for task in scenario.tasks}:
        mine = [number for number, task in enumerate(scenario.tasks) if (task.name or task.load) == name]
        if any(scenario.tasks[number].load == "cycle" for number in mine):
            found[name] = min(found[name], sum(_paced(scenario, number) for number in mine))
    return found


def _paced(scenario: Scenario, number: int) -> float:
    """CPUs that the tasks of number `number` are due."""
    task = scenario.tasks[number]
    if task.load != "cycle":
        return sum(_divide(scenario, scenario.tasks)[1][number])
    others = replace(task, count=task.count - 1)
    awake = (*scenario.tasks, replace(task, load="hog", count=1))
    tasks = tuple(others if at == number else one for at, one in enumerate(awake))
    (rate,) = _divide(_unlimited(scenario, task.group), tasks)[1][-1]
    return task.count * task.work_us / (task.work_us / min(rate, 1) + task.sleep_us)


def _unlimited(scenario: Scenario, name: str) -> Scenario:
    """The scenario without the limits of that group and of those around it."""
    groups = {group.name: group for group in scenario.groups}
    while name in groups:
        groups[name] = replace(groups[name], cpus=None)
        name = groups[name].parent
    return replace(scenario, groups=tuple(groups.values()))


def wait_ms(scenario: Scenario, name: str, cpus: float) -> float:
    """The longest wait of a task of the party, which is due `cpus`: a request of EEVDF ends by its virtual
    deadline, and a tick late (Stoica and Abdel-Wahab 1995, theorem 1)."""
    guests = {guest.called(number): guest for number, guest in enumerate(scenario.guests)}
    tasks = [task for task in scenario.tasks if (task.name or task.load) == name]
    request = min([SLICE_MS, *(task.work_us / 1000 for task in tasks if task.load == "cycle")])
    if name in guests:
        rate = cpus / guests[name].members
    else:
        each = cpus / sum(task.count for task in tasks)
        asleep = min((task.sleep_us / task.work_us for task in tasks if task.load == "cycle"), default=0.0)
        rate = 1 / (1 / each - asleep)  # while it is awake
    return request / min(rate, 1.0) - request + TICK_MS


def demand(guest: Guest) -> float:
    """CPUs that the guest uses if it waits for none."""
    part = {"duty": guest.work_ns / (guest.work_ns + guest.extra_ns), "sleep": 0.5}.get(guest.load, 1.0)
    rest = guest.rest_work_us / (guest.rest_work_us + guest.rest_sleep_us) if guest.rest_work_us else 0.0
    return guest.members * part + (guest.vcpus - guest.members) * rest


def rounds(scenario: Scenario, number: int, cpus: float) -> float:
    """Rounds a second of guest `number`, whose load is barrier or ipi, if it has `cpus` CPUs all in step."""
    guest = scenario.guests[number]
    work = guest.work_ns + (guest.extra_ns if guest.load == "ipi" else 0)
    return cpus / guest.members * 1e9 / work


def _divide(scenario: Scenario, tasks: tuple[Task, ...]) -> tuple[dict[str, float], list[list[float]]]:
    """CPUs by party, and of each of these tasks those of its `count`."""
    root = Node(100)
    nodes = {"": root, "machine": Node(100), "system": Node(100)}
    root.children += [nodes["machine"], nodes["system"]]
    for group in scenario.groups:
        node = nodes[group.name] = Node(IDLE if group.idle else group.weight, limit=group.cpus)
        nodes[group.parent].children.append(node)
    guests = list(_guests(scenario))
    everywhere = frozenset(range(scenario.host.cpus))
    for guest, (_, node) in zip(scenario.guests, guests, strict=True):
        nodes[guest.parent or "machine"].children.append(node)
    leaves = [[_leaf(task, everywhere) for _ in range(task.count)] for task in tasks]
    for task, parts in zip(tasks, leaves, strict=True):
        nodes[task.group or "system"].children += parts
    _confine(
        [*(node for _, node in guests), *(leaf for parts in leaves for leaf in parts)], root, len(everywhere)
    )
    found: dict[str, float] = {}
    for name, node in guests:
        found[name] = found.get(name, 0) + node.given
    given = [[leaf.given for leaf in parts] for parts in leaves]
    for task, had in zip(tasks, given, strict=True):
        found[task.name or task.load] = found.get(task.name or task.load, 0) + sum(had)
    return found, given


def _guests(scenario: Scenario) -> Iterator[tuple[str, Node]]:
    """The vCPUs have a group each, of one weight; they count as one here."""
    for number, guest in enumerate(scenario.guests):
        cpus = frozenset(guest.pins or guest.cpus_of(scenario.host))
        weight = IDLE if guest.idle else guest.weight
        yield guest.called(number), Node(weight, demand(guest), guest.cpus, cpus=cpus)


def _leaf(task: Task, everywhere: frozenset[int]) -> Node:
    busy = task.work_us / (task.work_us + task.sleep_us) if task.load == "cycle" else 1.0
    weight = IDLE if task.idle else 100 * 1.25**-task.nice
    return Node(weight, busy, cpus=frozenset(task.cpus or everywhere))


def _confine(leaves: list[Node], root: Node, cpus: int) -> None:
    """Divide the host's CPUs, until no leaves have more than the CPUs that any of them may have."""
    sets = _unions({leaf.cpus for leaf in leaves})
    while True:
        root.give(min(float(cpus), root.usable))
        crowds = [
            (sum(leaf.given for leaf in leaves if leaf.cpus <= some) / len(some), some) for some in sets
        ]
        most, some = max(crowds, key=lambda crowd: (crowd[0], sorted(crowd[1])))
        if most < 1 + 1e-6:
            return
        _divide_alone(leaves, root, some)


def _divide_alone(leaves: list[Node], root: Node, cpus: frozenset[int]) -> None:
    """Let those that may have no CPUs but these use what they have of them if nobody else is there."""
    uses = [leaf.own for leaf in leaves]
    for leaf in leaves:
        leaf.own = leaf.own if leaf.cpus <= cpus else 0.0
    root.give(float(len(cpus)))
    for leaf, use in zip(leaves, uses, strict=True):
        leaf.own = leaf.given if leaf.cpus <= cpus else use


def _unions(sets: set[frozenset[int]]) -> set[frozenset[int]]:
    """Return all unions of some of the sets: by Hall's theorem no other set of CPUs can be too small."""
    found: set[frozenset[int]] = set()
    for one in sets:
        found |= {one, *(one | other for other in found)}
    return found
