# SPDX-License-Identifier: Apache-2.0
"""Hosts made by chance: what divides them, and what is said of each."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from gangsim import random_hosts
from gangsim.engine import Engine
from gangsim.errors import Ejected
from gangsim.scenario import Guest, Host, Scenario


def test_a_host_made_by_chance_says_who_has_least(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    """The report has a line a host, and what all say beside what is wanted."""
    code = random_hosts.report(engine.run, 6, 7)
    said = capsys.readouterr().out.splitlines()
    assert code == 0 and len(said) == 9 and said[-1] == "kept"
    assert said[0].startswith("6: ") and said[2].startswith("worst party of its ideal: least ")
    assert said[3].startswith("worst party of its ideal or of default's share, the lesser: least ")
    assert ">=" not in said[2] and "(>= 0.985)" in said[3] and said[3].endswith("of 2 hosts (<= 0)")
    assert "rounds" in said[4] and said[5] == "longest wait over 1 s and twice default's: 0 of 2 hosts"


OUT = Ejected("it stalled")


@pytest.mark.parametrize(
    ("kept", "waits", "missed"),
    [
        ((0.85, 0.985, 1.0), 0, None),
        ((0.84, 1.0, 1.0), 0, "too many hosts are below"),
        ((0.84, *[1.0] * 19), 0, None),
        ((0.84, 0.84, *[1.0] * 18), 0, "too many hosts are below"),
        ((0.9, 0.984, 1.0), 0, "the median is below"),
        ((1.0, OUT), 5000, "the scheduler was ejected"),
        ((1.0, OUT), 5001, None),
        ((OUT,), 5001, "no host was left"),
    ],
)
def test_each_bound_that_is_printed_decides_the_exit_status(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kept: tuple[float | Ejected, ...],
    waits: float,
    missed: str | None,
) -> None:
    """A party's share of the ideal alone, rounds and waits, here always bad, decide nothing."""
    left = iter(kept)

    def judge(*_: object) -> random_hosts.Judged:
        one = next(left)
        if isinstance(one, Ejected):
            raise one
        return random_hosts.Judged("g0", 0.1, "g0", one, "g0", 0.1, 3000.0, 1.0)

    def run(scenario: object, scheduler: str) -> Any:
        return SimpleNamespace(tasks=[{"longest_wait_ns": waits * 1e6}])

    monkeypatch.setattr(random_hosts, "judge", judge)
    assert random_hosts.report(run, 1, len(kept)) == int(missed is not None)
    assert capsys.readouterr().out.splitlines()[-1] == (f"missed: {missed}" if missed else "kept")


def test_more_hosts_may_be_below_where_some_may_not_have_all_cpus() -> None:
    """Up to one host in eight may be below with masks, and one in twenty without."""
    good = random_hosts.Judged("g0", 1.0, "g0", 1.0, "", None, 1.0, 1.0)
    found = [replace(good, kept=0.1), *[good] * 7]
    assert random_hosts.failures(found, 0) == ["too many hosts are below"]
    assert random_hosts.failures(found, 0, masks=True) == []
    assert any(line.endswith("8 hosts (<= 1)") for line in random_hosts.summary(found, 0, masks=True))


@pytest.mark.parametrize(
    ("usual", "had", "part"),
    [(20_000, 10_000, 0.5), (40_000, 12_500, 0.5), (9, 0, None), (0, 0, None)],
)
def test_rounds_are_judged_by_the_lesser_of_two(usual: int, had: int, part: float | None) -> None:
    """Half the host makes 25,000 rounds a second in step; where default has next to none none are due."""
    scenario = Scenario("s", Host(2, 1, 2), (Guest("barrier", 2), Guest("spin", 2)), 1)
    made: Any = SimpleNamespace(scenario=scenario, ideal={"g0": 1.0, "g1": 1.0})

    def run(rounds: int) -> Any:
        tasks = [{"longest_wait_ns": 1e9}]
        return SimpleNamespace(
            share=lambda name: 1.0, guests=[{"rounds": rounds}] * 2, seconds=1, tasks=tasks
        )

    one = random_hosts.judge(made, run(had), run(usual))
    assert (one.rounds, one.slowest) == (part, "g0" if part else "")


@pytest.mark.parametrize(
    ("wait", "usual", "long"), [(1001, 500, True), (1000, 1, False), (3000, 1500, False), (3001, 1500, True)]
)
def test_a_long_wait_is_over_a_second_and_twice_default_s(wait: float, usual: float, long: bool) -> None:
    """Either alone is none."""
    assert random_hosts.Judged("g0", 1.0, "g0", 1.0, "", None, wait, usual).waits is long


def test_no_task_starves_on_hosts_where_some_may_not_have_all_cpus(engine: Engine) -> None:
    """The scheduler is ejected from no host; an earlier one was ejected from most with several caches."""
    for seed in (16, 17, 34, 38):
        made = random_hosts.Maker(seed, masks=True)
        assert random_hosts.longest_ms(engine.run(made.scenario, "gang")) < random_hosts.PATIENCE_MS
