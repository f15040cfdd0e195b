# SPDX-License-Identifier: Apache-2.0
"""The model of EEVDF: how long slices are, what ends them, and how a task that had too much sleeps."""

from __future__ import annotations

from statistics import median

import pytest

from gangsim.engine import Engine, Run
from gangsim.scenario import Costs, Group, Host, Scenario, Task

TICK_MS = 4
SECOND = 1_000_000_000
FINE = Costs(tick_us=100)  # ticks so dense that slices end when they are over


def simulate(engine: Engine, *parts: Task | Group, cpus: int = 1, costs: Costs | None = None) -> Run:
    tasks = tuple(part for part in parts if isinstance(part, Task))
    groups = tuple(part for part in parts if isinstance(part, Group))
    scenario = Scenario(
        "eevdf", Host(cpus, 1, cpus), (), 5, costs=costs or Costs(), tasks=tasks, groups=groups
    )
    return engine.run(scenario, "default", (SECOND, 2 * SECOND))


def spells_ms(run: Run, name: str) -> list[float]:
    """How long a task ran at a time, in the second that is traced."""
    (number,) = [at for at, task in enumerate(run.tasks) if task["name"] == name]
    return [(end - start) / 1e6 for start, end, _, task in run.trace if task == number]


@pytest.mark.parametrize(("cpus", "slice_ms"), [(1, 0.7), (2, 1.4), (4, 2.1), (8, 2.8), (32, 2.8)])
def test_a_slice_grows_with_the_cpus(engine: Engine, cpus: int, slice_ms: float) -> None:
    """The base of 0.7 ms times 1 + ilog2(CPUs), eight CPUs at most, as update_sysctl() has it."""
    run = simulate(engine, Task("hog", 2, cpus=(0,)), cpus=cpus, costs=FINE)
    assert median(spells_ms(run, "hog/0")) == pytest.approx(slice_ms, abs=0.11)


def test_a_tick_ends_a_slice(engine: Engine) -> None:
    """Two busy tasks of one CPU run from tick to tick, though a slice is 0.7 ms long."""
    run = simulate(engine, Task("hog", 2, cpus=(0,)))
    assert max(abs(one - TICK_MS) for one in spells_ms(run, "hog/0")[1:-1]) < 0.01


def test_a_wakeup_ends_a_slice_that_is_over(engine: Engine) -> None:
    """The account that a wakeup brings up to date shows it before the tick: update_curr()."""
    light = Task("cycle", 5, 10, 990, idle=True, name="light")  # they preempt nobody
    run = simulate(engine, Task("hog", 2), light)
    assert median(spells_ms(run, "hog/0")) == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("group", ["", "own"])
def test_a_task_that_had_too_much_pays_for_it_asleep(engine: Engine, group: str) -> None:
    """The task, or its group, stays in the queue (DELAY_DEQUEUE): a nap of 0.5 ms brings it nothing, and it
    waits until the hog has had as much. With that nap forgiven it would preempt the hog at once."""
    napper = Task("cycle", work_us=3000, sleep_us=500, group=group, name="napper")
    groups = (Group("own"), Group("other"))
    run = simulate(engine, *groups, napper, Task("hog", group="other" if group else ""))
    assert run.of("napper")[0]["latency_p50_ns"] > 3e6
    assert run.share("napper") == pytest.approx(0.5, abs=0.01)


def test_a_task_that_slept_for_long_owes_nothing(engine: Engine) -> None:
    """The hog beside it has caught up, so it is picked as one that never had too much."""
    light = Task("cycle", work_us=1000, sleep_us=20_000, name="light")
    run = simulate(engine, Task("hog"), light)
    assert run.of("light")[0]["latency_p50_ns"] < TICK_MS * 1e6
    assert run.share("light") > 0.04
