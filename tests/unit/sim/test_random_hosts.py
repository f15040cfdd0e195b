# SPDX-License-Identifier: Apache-2.0
"""Hosts made by chance: what divides them, and what is said of each."""

from __future__ import annotations

from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import pytest

from gangsim import bars, harm_table, random_hosts, random_rows
from gangsim.engine import Engine
from gangsim.errors import Ejected
from gangsim.found import Found
from gangsim.harm_list import Group
from gangsim.harm_rows import longest
from gangsim.scenario import Guest, Host, Scenario


def chance(title: str = "random") -> Group:
    return Group(title, "of a test", [], chance=True)


def made_up(seed: int, ratio: float, kind: str = "CPUs", verdict: str = "kept") -> Found:
    return Found(f"random host {seed}: g0, {kind}", 1.0, ratio, ratio, 0.85, ">= 0.85", verdict, seed, kind)


def test_a_host_made_by_chance_has_a_row_of_each_kind(engine: Engine) -> None:
    """CPUs, rounds and waits, each of the party that is worst off; the seed alone has the same again."""
    run = lru_cache(maxsize=32)(engine.run)
    found = random_rows.of_host(6, False, run)
    assert [one.kind for one in found] == [
        kind for kind in random_rows.KINDS if kind in {o.kind for o in found}
    ]
    assert {one.kind for one in found} >= {"CPUs", "longest wait ms"} and {one.seed for one in found} == {6}
    assert all(one.name.startswith("random host 6: ") for one in found)
    assert random_rows.of_host(6, False, engine.run) == found


def fake(rounds: int, wait_ms: float, share: float = 1.0) -> Any:
    """Return a run of two guests on two CPUs, whose figures are these."""
    tasks = [{"longest_wait_ns": wait_ms * 1e6}]
    return SimpleNamespace(
        share=lambda name: share,
        guests=[{"rounds": rounds}] * 2,
        seconds=1,
        tasks=tasks,
        of=lambda name: tasks,
    )


def judged(monkeypatch: pytest.MonkeyPatch, gangs: Any, default: Any) -> dict[str, Found]:
    """Return the rows of a host of one guest at barriers and a spinning one, by kind."""
    scenario = Scenario("s", Host(2, 1, 2), (Guest("barrier", 2), Guest("spin", 2)), 1)
    made = SimpleNamespace(scenario=scenario, ideal={"g0": 1.0, "g1": 1.0})
    monkeypatch.setattr(random_rows, "Maker", lambda *_: made)

    def run(_: Scenario, scheduler: str, trace: tuple[int, int]) -> Any:
        found = gangs if scheduler == "gang" else default
        if isinstance(found, Exception):
            raise found
        return found

    return {one.kind: one for one in random_rows.of_host(1, False, run)}


@pytest.mark.parametrize(
    ("usual", "had", "ratio"),
    [(20_000, 10_000, 0.5), (40_000, 12_500, 0.5), (9, 0, None), (0, 0, None)],
)
def test_rounds_are_judged_by_the_lesser_of_two(
    monkeypatch: pytest.MonkeyPatch, usual: int, had: int, ratio: float | None
) -> None:
    """Half the host makes 25,000 rounds a second in step; where default has next to none none are due."""
    found = judged(monkeypatch, fake(had, 1), fake(usual, 1)).get("rounds/s")
    assert (found and (found.ratio, found.verdict)) == (ratio and (ratio, "missed"))


@pytest.mark.parametrize(
    ("wait", "usual", "verdict"),
    [(14.0, 1.0, "kept"), (14.1, 1.0, "missed"), (60.0, 30.0, "kept"), (60.1, 30.0, "missed")],
)
def test_a_wait_is_judged_by_default_s_or_that_of_its_share(
    monkeypatch: pytest.MonkeyPatch, wait: float, usual: float, verdict: str
) -> None:
    """A wait is twice as long at most; below 7 ms, that of half a CPU, all are alike."""
    assert judged(monkeypatch, fake(0, wait), fake(0, usual))["longest wait ms"].verdict == verdict


@pytest.mark.parametrize(
    ("guest", "usual", "due"),
    [
        (Guest("barrier", 2), 20_000, 25_000),  # in step
        (Guest("barrier", 2, marked=False), 20_000, 10_000),  # it had twice its due
        (Guest("barrier", 6), 20_000, 0),  # a sixth of a second of each vCPU is no time for twenty turns
    ],
)
def test_the_rounds_that_a_guest_is_due(guest: Guest, usual: int, due: float) -> None:
    """A marked guest's are in step, an unmarked one's are default's for its share."""
    made = SimpleNamespace(scenario=Scenario("s", Host(2, 1, 2), (guest,), 1), ideal={"g0": 1.0})
    assert random_rows._rounds_due(made, 0, fake(usual, 1, 2.0)) == (pytest.approx(due), usual)


@pytest.mark.parametrize(
    ("had", "usual", "verdict"), [(0.85, 2.0, "kept"), (0.84, 2.0, "missed"), (0.43, 0.5, "kept")]
)
def test_cpus_are_judged_by_the_lesser_of_two(
    monkeypatch: pytest.MonkeyPatch, had: float, usual: float, verdict: str
) -> None:
    """The ideal is one CPU."""
    assert judged(monkeypatch, fake(0, 1, had), fake(0, 1, usual))["CPUs"].verdict == verdict


@pytest.mark.parametrize(("usual", "harmless"), [(5000, False), (5001, True)])
def test_an_ejection_is_harm_unless_default_has_somebody_wait_as_long(
    monkeypatch: pytest.MonkeyPatch, usual: float, harmless: bool
) -> None:
    """The kernel's watchdog has no patience with either."""
    (found,) = judged(monkeypatch, Ejected("it stalled"), fake(0, usual)).values()
    assert "ejected: it stalled" in found.verdict and found.harmless is harmless


@pytest.mark.parametrize(
    ("ratios", "verdict"), [((0.9, 0.98, 1.0), "kept"), ((0.9, 0.97, 1.0), "missed"), ((0.5,), None)]
)
def test_the_median_of_all_hosts_is_a_row(ratios: tuple[float, ...], verdict: str | None) -> None:
    """A single host has no median."""
    found = random_rows.medians("random", [made_up(seed, ratio) for seed, ratio in enumerate(ratios)])
    assert [one.verdict for one in found] == ([verdict] if verdict else [])


def test_the_worst_hosts_are_named_by_seed() -> None:
    """Five of each kind, the worst first; of waits the longest is worst."""
    few = [made_up(seed, seed / 10, verdict="missed" if seed < 3 else "kept") for seed in range(1, 8)]
    waits = [made_up(seed, seed / 10, "longest wait ms") for seed in (1, 2)]
    cpus, longest = random_rows.spread("random", [*few, *waits])
    assert cpus == (
        "random, CPUs: worst 0.10, median 0.400, 2 of 7 missed; "
        "worst seeds 1 (0.10), 2 (0.20), 3 (0.30), 4 (0.40), 5 (0.50)"
    )
    assert longest.endswith("worst seeds 2 (0.20), 1 (0.10)")
    assert cpus in harm_table.lines([(chance(), few)])


def test_no_task_starves_on_hosts_where_some_may_not_have_all_cpus(engine: Engine) -> None:
    """The scheduler is ejected from no host; an earlier one was ejected from most with several caches."""
    for seed in (16, 17, 34, 38):
        made = random_hosts.Maker(seed, masks=True)
        assert (longest()(engine.run(made.scenario, "gang")) or 0) < bars.PATIENCE_MS
