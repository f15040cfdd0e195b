# SPDX-License-Identifier: Apache-2.0
"""Ordinary tasks, cgroups and guests whose vCPUs are not alike: shares by the kernel's own formulas."""

from __future__ import annotations

import pytest

from gangsim.engine import Engine, Run
from gangsim.errors import ScenarioError
from gangsim.figures import parties
from gangsim.scenario import SCHEDULERS, Group, Guest, Host, Scenario, Task


def simulate(engine: Engine, *parts: Task | Group | Guest, cpus: int = 1, scheduler: str = "default") -> Run:
    tasks = tuple(part for part in parts if isinstance(part, Task))
    groups = tuple(part for part in parts if isinstance(part, Group))
    guests = tuple(part for part in parts if isinstance(part, Guest))
    scenario = Scenario("tasks", Host(cpus, 1, cpus), guests, 20, tasks=tasks, groups=groups)
    return engine.run(scenario, scheduler)


def hog(group: str, cpu: int = 0, **other: int) -> Task:
    return Task("hog", name=f"{group}{cpu}", group=group, cpus=(cpu,), **other)


def test_weights_of_groups_divide_a_cpu(engine: Engine) -> None:
    """100:300, however many tasks each has."""
    run = simulate(engine, Group("a", 100), Group("b", 300), hog("a"), hog("b"), hog("b"), hog("b"))
    assert run.share("a0") == pytest.approx(0.25, rel=0.02)
    assert run.share("b0") == pytest.approx(0.75, rel=0.02)


def test_groups_nest(engine: Engine) -> None:
    """A third of a half, three levels down."""
    groups = (Group("a"), Group("b", 100, "a"), Group("c", 200, "a"), Group("d", 100, "b"))
    run = simulate(engine, *groups, Group("e"), hog("d"), hog("c"), hog("e"))
    assert [run.share(name) for name in ("d0", "c0", "e0")] == pytest.approx([1 / 6, 1 / 3, 1 / 2], rel=0.03)


def test_a_group_spreads_its_weight_over_cpus(engine: Engine) -> None:
    """tg->shares times the local part of its load: with a task on each of two CPUs, half of it on each."""
    run = simulate(engine, Group("a"), Group("b"), hog("a"), hog("b"), hog("b", 1), cpus=2)
    assert run.share("a0") == pytest.approx(2 / 3, rel=0.03)
    assert run.share("b1") == pytest.approx(1, rel=0.01)


def test_nice_counts_within_a_group(engine: Engine) -> None:
    """1024:335 is nice 0 to nice 5."""
    run = simulate(engine, Group("a"), hog("a"), Task("hog", nice=5, group="a", name="nice"))
    assert run.share("nice") == pytest.approx(335 / 1359, rel=0.03)


def test_a_task_that_had_its_cpu_alone_shares_it_with_one_that_balancing_pulls(engine: Engine) -> None:
    """A slice ends. Two brief tasks keep newcomers from CPU 0 and then sleep, so one is pulled there."""
    brief = Task("cycle", 2, 20_000, 100_000_000, cpus=(0,), name="brief")
    run = simulate(engine, hog(""), brief, Task("hog", 3, start_ms=5, name="late"), cpus=2)
    assert max(task["longest_wait_ns"] for task in run.tasks) < 200e6
    assert run.share("late") == pytest.approx(1.5, abs=0.05)


@pytest.mark.parametrize("cpus", [1, 4])
def test_cpu_max_is_kept(engine: Engine, cpus: int) -> None:
    """0.3 CPUs on an idle host, on one CPU or on four; what is above counts, too."""
    run = simulate(engine, Group("a", cpus=0.3), Group("b", parent="a"), Task("hog", 3, group="b"), cpus=cpus)
    assert run.share("hog") == pytest.approx(0.3, rel=0.03)
    assert run.host["idle_ns"] > 0.6 * 20e9


def test_cpu_idle_leaves_the_cpu_to_others(engine: Engine) -> None:
    """Next to a group that is not idle it has as good as nothing, alone everything."""
    run = simulate(engine, Group("a", idle=True), Group("b"), hog("a"), hog("b"))
    assert run.share("a0") < 0.01 < run.tasks[0]["longest_wait_ns"] / 1e9
    assert simulate(engine, Group("a", idle=True), hog("a")).share("a0") > 0.99


def test_a_task_that_sleeps_much_gets_the_cpu_soon(engine: Engine) -> None:
    """The task is owed time: the other one gives way once it has had its share, not slices later."""
    nap = Task("cycle", work_us=50, sleep_us=950, group="a", name="nap")
    run = simulate(engine, Group("a"), Group("b"), nap, hog("b"), hog("b"))
    assert run.share("nap") > 0.03
    assert run.of("nap")[0]["latency_p99_ns"] < 4e6


def test_an_idle_group_gives_way_to_a_wakeup(engine: Engine) -> None:
    """At once."""
    nap = Task("cycle", work_us=50, sleep_us=950, group="a", name="nap")
    run = simulate(engine, Group("a"), Group("b", idle=True), nap, hog("b"))
    assert run.of("nap")[0]["latency_p99_ns"] < 10e3


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_a_chain_of_forks_never_ends(engine: Engine, scheduler: str) -> None:
    """Each child does its work, and there is always one: as much CPU time as of one that never forks."""
    run = simulate(engine, Task("chain", work_us=500), cpus=2, scheduler=scheduler)
    assert run.share("chain") == pytest.approx(0.99, abs=0.01)
    assert sum(task["rounds"] for task in run.tasks) * 500e3 <= sum(task["run_ns"] for task in run.tasks)


@pytest.mark.parametrize("cpus", [4, 8])
def test_a_thin_gang_has_a_cpu_beside_a_wide_one(engine: Engine, cpus: int) -> None:
    """Nearly: it is owed one, and the wide one is left the others, whole turns at a time."""
    thin, wide = Guest("spin", cpus, busy=1), Guest("spin", cpus)
    run = simulate(engine, thin, wide, cpus=cpus, scheduler="gang")
    shares = [task["share"] for task in run.tasks[: 2 * cpus]]
    assert shares[0] > 0.9 and min(shares[cpus:]) > 0.7
    assert sum(shares) == pytest.approx(cpus, abs=0.05)


@pytest.mark.parametrize("hogs", [4, 100, 1000])
def test_a_gang_has_its_weight_beside_nice_tasks(engine: Engine, hogs: int) -> None:
    """Their group weighs as much as the guest's, however little each of them does and many they are."""
    run = simulate(engine, Guest("spin", 4), Task("hog", hogs, nice=19), cpus=4, scheduler="gang")
    assert [task["share"] for task in run.tasks[:4]] == pytest.approx([0.5] * 4, abs=0.02)


def test_ordinary_tasks_have_their_weight_beside_a_gang(engine: Engine) -> None:
    """Two on one CPU in turn would be halves of it. The lightest is not forgotten for the heaviest."""
    groups = (Group("w1", 1), Group("w100", 100), Group("w10000", 10000))
    run = simulate(engine, Guest("spin", 1), *groups, hog("w1"), hog("w100"), hog("w10000"), scheduler="gang")
    assert run.share("w100000") / run.share("w1000") == pytest.approx(100, rel=0.05)
    assert max(task["longest_wait_ns"] for task in run.tasks) < 5e9


def test_an_old_task_lives_beside_a_chain_of_forks(engine: Engine) -> None:
    """A child has its parent's account, so the chain is one task more: half the CPU."""
    run = simulate(engine, Task("hog", name="old"), Task("chain", work_us=500), scheduler="gang")
    assert run.share("old") == pytest.approx(0.5, abs=0.05)


def test_a_bound_hog_has_its_cpu_beside_gangs(engine: Engine) -> None:
    """The hog's group is worth two of four CPUs and can use one; both gangs divide what is left."""
    far = Guest("spin", 2, name="far")
    run = simulate(engine, Guest("spin", 2), far, Task("hog", name="h0", cpus=(0,)), cpus=4, scheduler="gang")
    assert run.share("h0") > 0.9
    assert [task["share"] for task in run.tasks[:4]] == pytest.approx([0.76] * 4, abs=0.03)


def test_a_task_beside_strict_gangs_has_its_share(engine: Engine) -> None:
    """Three strict guests and a task are in four groups of one weight. Each has a quarter of the
    CPU time that is used; the narrow guests leave the rest idle."""
    guests = (Guest("spin", 1), Guest("spin", 2), Guest("spin", 4))
    scenario = Scenario("strict", Host(4, 2, 4), guests, 3, mode="strict", tasks=(Task("hog"),))
    run = engine.run(scenario, "gang")
    had = [sum(int(task["run_ns"]) for task in run.tasks if task["name"].split("/")[0] == party) / 3e9
           for party in ("g0", "g1", "g2", "hog")]  # fmt: skip
    assert all(0.62 < share < 0.70 for share in had), had


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_vcpus_need_not_be_alike(engine: Engine, scheduler: str) -> None:
    """Rounds are those of the one vCPU that works (one naps, two sleep), and none waits alone on the host."""
    guest = Guest("barrier", 4, busy=1, rest_work_us=100, rest_sleep_us=900)
    run = simulate(engine, guest, cpus=4, scheduler=scheduler)
    assert run.guests[0]["rounds"] == pytest.approx(20 / 20e-6, rel=0.01)
    assert [task["share"] for task in run.tasks[:2]] == pytest.approx([1, 0.1], rel=0.05)
    asleep = simulate(engine, Guest("barrier", 4, busy=1), cpus=4, scheduler=scheduler)
    assert [task["share"] > 0 for task in asleep.tasks] == [True, False, False, False]


def test_guests_have_groups_as_libvirt_makes_them(engine: Engine) -> None:
    """A guest's weight is its own, not its vCPUs': of four vCPUs each weighs half of one of two."""
    run = simulate(engine, Guest("spin", 4), Guest("spin", 2), cpus=4, scheduler="pinned")
    assert run.share("g1") == pytest.approx(4 / 3, rel=0.02)
    limited = simulate(engine, Guest("spin", 2, cpus=0.5), Guest("spin", 2), cpus=2)
    assert limited.share("g0") == pytest.approx(0.5, rel=0.05)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_everybody_has_figures(engine: Engine, scheduler: str) -> None:
    """Guests, then tasks; what a vCPU and a task got adds up to what the host gave."""
    parts = (Guest("barrier", 2, ple=True), Guest("duty", 2), Task("hog", 2), Task("cycle"), Task("chain"))
    run = simulate(engine, *parts, cpus=4, scheduler=scheduler)
    found = parties(run)
    assert [party.name for party in found] == ["g0", "g1", "hog", "cycle", "chain"]
    assert sum(party.cpus for party in found) * 20e9 == pytest.approx(run.host["run_ns"])
    assert all(party.rate > 0 and party.p50_us <= party.p99_us for party in found)
    host = run.host
    assert host["run_ns"] + host["switch_ns"] + host["idle_ns"] == 4 * 20_000_000_000


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        (Task("sing"), "a task 'sing', which is none of hog"),
        (Task(cpus=(7,)), "a task that may run on no CPU"),
        (Task(nice=20), "a task of nice 20"),
        (Task(group="a"), "a task in group 'a', which is not there"),
        (Group("b", parent="a"), "a group 'b' in 'a', which is not there before it"),
        (Group("g0"), "a group 'g0' of a guest's name"),
        (Guest("spin", 1, busy=2), "a guest of 1 vCPUs of which 2 are busy"),
    ],
)
def test_an_impossible_task_or_group_is_refused(
    engine: Engine, part: Task | Group | Guest, reason: str
) -> None:
    """The error is a sentence with the reason."""
    with pytest.raises(ScenarioError) as error:
        simulate(engine, part, *([] if isinstance(part, Task) else [Task(), Guest("spin", 1)]))
    assert reason in str(error.value)
