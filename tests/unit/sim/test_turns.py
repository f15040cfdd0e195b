# SPDX-License-Identifier: Apache-2.0
"""The scheduler of turns: rows of every kind at one seed, hosts made by chance, CPUs that meet inside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gangsim import finding_rows, harm, harm_rows, random_hosts
from gangsim.engine import HELPER, Engine, Run
from gangsim.harm_rows import Row
from gangsim.scenario import Group, Guest, Host, Scenario, Task

ROWS = {one.name: one for one in (*harm_rows.standard(), *finding_rows.standard())}
# one of each kind, and those that cost most to get right
KEPT = (
    "barrier: 1 busy of 8 beside 8 of 8, rounds/s",
    "spin: 4 busy of 4 beside 1 of 4, CPUs of its slowest vCPU",
    "a gang beside 100 hogs of nice 19, CPUs of its slowest vCPU",
    "cpu.max 25 %: group limited, CPUs",
    "cpu.max 25 %: group free, CPUs",
    "a hog beside a guest of 8 vCPUs, CPUs",
    "four bound hogs beside two guests of 8, CPUs",
    "short wakeups, 1,000/s, a marked guest busy, done/s",
    "an old hog beside a fork chain, longest wait ms",
    "sleep: woken beside 8 busy gangs, p99 us",
    "a guest of 96 vCPUs on two caches of 64 CPUs, rounds/s",
    "bound hogs 1 1 1 2, a late daemon on the last CPU, done/s",
    "two busy kernel threads on one CPU, a daemon there, done/s",
    "64 daemons of 12.5 % beside two gangs, gangs' CPUs",
    "three guests of 8 on two caches of 8, least CPUs",
    "8 hogs of nice 19 with two of -20 in a heavy group, CPUs",
    "weight 100 beside a one-vCPU 10000 in a slice, CPUs",
    "8 chains of 0.3 ms beside two gangs, done/s",
)


@pytest.fixture(scope="module")
def turns(folder: Path) -> Engine:
    """The simulator with turns.bpf.c in it."""
    return Engine(folder, text="turns.bpf.c")


@pytest.mark.parametrize("name", KEPT)
def test_nobody_is_harmed(turns: Engine, name: str) -> None:
    """Against the default scheduler, or against the ideal."""
    found = harm.measured(replace(ROWS[name], seeds=1), turns.run)
    assert found.verdict == "kept", found


UNMARKED = (
    "barrier: two unmarked guests beside two marked, rounds/s",
    "barrier: two unmarked guests beside a marked one asleep, rounds/s",
    "ipi: two unmarked guests beside a marked one asleep and a hog, rounds/s",
    "ipi: the hog beside them, CPUs",
)


@pytest.fixture(scope="module")
def helped(folder: Path) -> Engine:
    """... that helps unmarked guests."""
    return Engine(folder, HELPER, None, "-DSHIM_HELP", text="turns.bpf.c")


@pytest.mark.parametrize("name", UNMARKED)
def test_unmarked_guests_that_yield_are_helped(helped: Engine, name: str) -> None:
    """They have what the default scheduler gives them, and nobody beside them pays for it."""
    found = harm.measured(replace(ROWS[name], seeds=1), helped.run)
    assert found.verdict == "kept", found


def test_gangs_run_together(turns: Engine) -> None:
    """Two guests of four at barriers on four CPUs make 99 % of what one makes alone, by default a seventh."""
    scenario = Scenario("barriers", Host(4, 1, 4), (Guest("barrier", 4),) * 2, 3)
    alone = turns.run(scenario.alone(scenario.guests[0], 3), "default").guests[0]["rounds"]
    both, default = turns.run(scenario, "gang"), turns.run(scenario, "default")
    assert sum(guest["rounds"] for guest in both.guests) > 0.99 * alone
    assert sum(guest["rounds"] for guest in default.guests) < 0.3 * alone


def shared_core_us(run: Run, threads: int) -> float:
    """How long any two parties were on one core at once."""
    cores: dict[int, list[tuple[int, int, int]]] = {}
    for start, end, cpu, task in run.trace:
        cores.setdefault(cpu // threads, []).append((start, end, run.guest_of[task]))
    found = 0
    for parts in cores.values():
        until: dict[int, int] = {}
        for start, end, party in sorted(parts):
            found += sum(max(0, min(end, at) - start) for other, at in until.items() if other != party)
            until[party] = max(until.get(party, 0), end)
    return found / 1e3


@pytest.mark.parametrize(
    ("host", "guests"),
    [
        (Host(4, 2, 4), [Guest("spin", 4)] * 3),
        (Host(4, 2, 4), [Guest("sleep", 4)] * 3),
        (Host(8, 2, 8), [Guest("barrier", 1), Guest("spin", 3), Guest("duty", 4), Guest("ipi", 4)]),
    ],
)
def test_strict_gangs_have_their_cores_to_themselves(turns: Engine, host: Host, guests: list[Guest]) -> None:
    """No two guests are on the CPUs of one core at once for longer than a kick takes on its way."""
    scenario = Scenario("strict", host, tuple(guests), 1, mode="strict")
    run = turns.run(scenario, "gang", (0, 10**12))
    assert shared_core_us(run, host.threads) < 1


def test_who_is_no_strict_gang_has_his_share_beside_them(turns: Engine) -> None:
    """Three strict guests and a task in four groups of one weight, of which one CPU each is used but for what
    the narrow ones leave idle; everybody has his quarter of that."""
    guests = (Guest("spin", 1), Guest("spin", 2), Guest("spin", 4))
    scenario = Scenario("strict", Host(4, 2, 4), guests, 3, mode="strict", tasks=(Task("hog"),))
    run = turns.run(scenario, "gang")
    had = [sum(int(task["run_ns"]) for task in run.tasks if task["name"].split("/")[0] == party) / 3e9
           for party in ("g0", "g1", "g2", "hog")]  # fmt: skip
    assert all(0.62 < share < 0.70 for share in had), had


def test_cpus_meet_inside_it(turns: Engine) -> None:
    """Clocks stay whole whatever happens between two of their words: nobody waits for more than turns."""
    tasks = (Task("cycle", 4, 200, 800), Task("hog", 2), Task("hog", 4, group="m"))
    groups = (Group("m", cpus=0.5, period_us=10000),)
    guests = (Guest("barrier", 4), Guest("barrier", 4), Guest("sleep", 4, cpus=1.0))
    scenario = Scenario("race", Host(8, 1, 8), guests, 1, tasks=tasks, groups=groups, race=20)
    for seed in (1, 2):
        run = turns.run(replace(scenario, seed=seed), "gang")
        assert max(int(task["longest_wait_ns"]) for task in run.tasks) < 200e6
        assert run.host["longest_costop_ns"] < 5e6


def test_hosts_made_by_chance_are_judged() -> None:
    """What divides them: weights level by level, nobody more than he can use, the rest to the others."""
    node = random_hosts.Node
    lone = node(10000, children=[node(100, 1.0)])
    wide = node(100, limit=2.0, children=[node(100, 1.0) for _ in range(8)])
    root = node(1, children=[lone, wide, node(100, 8.0), node(5)])
    assert root.prune()
    root.give(8)
    assert [round(child.given, 2) for child in root.children] == [1.0, 2.0, 5.0]
    assert [round(child.given, 2) for child in wide.children] == [0.25] * 8


def test_a_host_made_by_chance_says_who_has_least(turns: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    """One line a host, and what all say beside what is wanted."""
    code = random_hosts.report(turns.run, 6, 7)
    said = capsys.readouterr().out.splitlines()
    assert code == 0 and len(said) == 5
    assert said[0].startswith("6: ") and said[2].startswith("worst party of its ideal: least ")


def test_a_row_may_have_an_ideal() -> None:
    """What its figure is divided by is not default's, then, and the table says so."""
    row = Row(
        "a row, CPUs", Scenario("s", Host(2, 1, 2), (Guest("spin", 2),), 1), lambda run: 0.0, 0.9, ideal=2.0
    )
    assert harm.wanted(row) == ">= 0.90 of 2"
