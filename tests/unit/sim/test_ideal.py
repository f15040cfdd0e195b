# SPDX-License-Identifier: Apache-2.0
"""Hierarchical max-min division: what each party of a scenario is due."""

from __future__ import annotations

import pytest

from gangsim import ideal
from gangsim.scenario import Group, Guest, Host, Scenario, Task

Part = Guest | Task | Group


def scenario(cpus: int, *parts: Part) -> Scenario:
    tasks = tuple(part for part in parts if isinstance(part, Task))
    groups = tuple(part for part in parts if isinstance(part, Group))
    guests = tuple(part for part in parts if isinstance(part, Guest))
    return Scenario("s", Host(cpus, 1, cpus), guests, tasks=tasks, groups=groups)


def test_weights_divide_cpus_level_by_level() -> None:
    """No node gets more than it can use, and the others get the rest."""
    node = ideal.Node
    lone = node(10000, children=[node(100, 1.0)])
    wide = node(100, limit=2.0, children=[node(100, 1.0) for _ in range(8)])
    root = node(1, children=[lone, wide, node(100, 8.0), node(5)])
    root.give(8)
    assert [round(child.given, 2) for child in root.children] == [1.0, 2.0, 5.0, 0.0]
    assert [round(child.given, 2) for child in wide.children] == [0.25] * 8


@pytest.mark.parametrize(
    ("cpus", "parts", "shares"),
    [
        (4, (Guest("spin", 4), Task()), {"g0": 3, "hog": 1}),
        (4, (Guest("spin", 4, 300), Guest("spin", 4, 100)), {"g0": 3, "g1": 1}),
        (4, (Guest("spin", 4, idle=True), Guest("spin", 4)), {"g0": 4 * 3 / 1027, "g1": 4 * 1024 / 1027}),
        (4, (Guest("duty", 4), Guest("spin", 4)), {"g0": 2, "g1": 2}),
        (8, (Guest("spin", 8, cpus=0.5), Guest("barrier", 8, busy=2)), {"g0": 0.5, "g1": 2}),
        (2, (Task(name="a"), Task("hog", 2, nice=10, name="b")), {"a": 1, "b": 1}),
        (1, (Task(name="a"), Task("hog", 2, nice=5, name="b")), {"a": 1 / 1.65536, "b": 0.65536 / 1.65536}),
        (1, (Task(name="a"), Task(idle=True, name="b")), {"a": 1024 / 1027, "b": 3 / 1027}),
        (1, (Group("x"), Group("y", 300), Task(group="x", name="a"), Task("hog", 3, group="y", name="b")),
         {"a": 0.25, "b": 0.75}),
        (8, (Group("x", cpus=0.5), Task("hog", 3, group="x"), Guest("spin", 2)), {"hog": 0.5, "g0": 2}),
        (2, (Group("v"), Guest("spin", 2, parent="v"), Task("cycle", 1, 10, 90, group="v"), Guest("spin", 2)),
         {"g0": 0.9, "cycle": 0.1, "g1": 1.0}),
        (4, (Task("hog", 4, cpus=(0,), name="a"), Task("hog", 4, name="b")), {"a": 1, "b": 3}),
        (4, (Guest("spin", 2, 300, room=(0, 1)), Guest("spin", 2, room=(0, 1)), Task()),
         {"g0": 1.5, "g1": 0.5, "hog": 1}),
        (4, (Guest("spin", 4, room=(0, 1, 2)), Task("hog", 4, cpus=(2, 3))), {"g0": 2, "hog": 2}),
        (4, (Task("hog", 3, cpus=(0, 1), name="a"), Task("hog", 3, cpus=(1, 2), name="b")),
         {"a": 1.5, "b": 1.5}),
    ],
)  # fmt: skip
def test_shares(cpus: int, parts: tuple[Part, ...], shares: dict[str, float]) -> None:
    """Weights, cpu.idle, cpu.max, nice, demand and the CPUs that each may have decide."""
    assert ideal.shares(scenario(cpus, *parts)) == pytest.approx(shares)


@pytest.mark.parametrize(
    ("sleeper", "due"),
    [
        (Task("cycle", 1, 500, 500), 1 / 3),  # half a CPU while awake, and then it sleeps
        (Task("cycle", 1, 100, 9900), 100 / 10_100),
        (Task("cycle", 1, 500, 500, nice=10), 500 / (500 * (1 + 1.25**10) + 500)),
    ],
)
def test_a_sleeper_is_due_its_share_while_it_is_awake(sleeper: Task, due: float) -> None:
    """Max-min division gives it more: it takes its sleep for demand that waits."""
    parts = scenario(1, Task(), sleeper)
    assert ideal.due(parts)["cycle"] == pytest.approx(due)
    assert ideal.shares(parts)["cycle"] >= due


def test_a_sleeper_with_a_cpu_to_itself_is_due_all_that_it_wants() -> None:
    """Each of four."""
    assert ideal.due(scenario(8, Task(), Task("cycle", 4, 500, 500)))["cycle"] == pytest.approx(2)


def test_a_quota_is_no_rate() -> None:
    """Within its group's a sleeper that is awake may have a whole CPU; a neighbour's leaves it more."""
    mine = scenario(1, Group("x", cpus=0.5), Task("cycle", 1, 500, 500, group="x"))
    assert ideal.due(mine)["cycle"] == pytest.approx(0.5)
    beside = scenario(1, Group("x", cpus=0.25), Task("hog", 2, group="x"), Task("cycle", 1, 500, 500))
    assert ideal.due(beside)["cycle"] == pytest.approx(500 / (500 / 0.75 + 500))


@pytest.mark.parametrize(
    ("name", "cpus", "wait"),
    [("g0", 4.0, 4.0), ("g0", 0.4, 31.0), ("hog", 0.5, 7.0), ("cycle", 1 / 3, 4.5)],
)
def test_the_longest_wait_of_a_share(name: str, cpus: float, wait: float) -> None:
    """A request of 3 ms, or of all that a sleeper has to do, at the rate of the share, and a tick."""
    parts = scenario(8, Guest("spin", 4), Task(), Task("cycle", 1, 500, 500))
    assert ideal.wait_ms(parts, name, cpus) == pytest.approx(wait)


def test_rounds_of_a_share() -> None:
    """A barrier guest of 20 us makes 50,000 a second, one of interrupts needs 2 us more for each."""
    both = scenario(4, Guest("barrier", 4), Guest("ipi", 4))
    assert ideal.rounds(both, 0, 2.0) == pytest.approx(25_000)
    assert ideal.rounds(both, 1, 4.0) == pytest.approx(1e9 / 22_000)
