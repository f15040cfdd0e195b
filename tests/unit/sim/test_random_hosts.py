# SPDX-License-Identifier: Apache-2.0
"""Hosts made by chance: what divides them, and what is said of each."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gangsim import random_hosts
from gangsim.engine import Engine
from gangsim.errors import Ejected


def test_hosts_made_by_chance_are_judged() -> None:
    """Weights divide CPUs level by level; no node gets more than it can use, and the others get the rest."""
    node = random_hosts.Node
    lone = node(10000, children=[node(100, 1.0)])
    wide = node(100, limit=2.0, children=[node(100, 1.0) for _ in range(8)])
    root = node(1, children=[lone, wide, node(100, 8.0), node(5)])
    assert root.prune()
    root.give(8)
    assert [round(child.given, 2) for child in root.children] == [1.0, 2.0, 5.0]
    assert [round(child.given, 2) for child in wide.children] == [0.25] * 8


def test_a_host_made_by_chance_says_who_has_least(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    """One line a host, and what all say beside what is wanted."""
    code = random_hosts.report(engine.run, 6, 7)
    said = capsys.readouterr().out.splitlines()
    assert code == 0 and len(said) == 7 and said[-1] == "kept"
    assert said[0].startswith("6: ") and said[2].startswith("worst party of its ideal: least ")
    assert said[3].startswith("worst party of its ideal or of default's share, the lesser: least ")
    assert ">=" not in said[2] and "(>= 0.85)" in said[3] and "(>= 0.97)" in said[3]


OUT = Ejected("it stalled")


@pytest.mark.parametrize(
    ("kept", "waits", "missed"),
    [
        ((0.85, 0.97, 1.0), 0, None),
        ((0.84, 1.0, 1.0), 0, "a party is below"),
        ((0.9, 0.96, 1.0), 0, "the median is below"),
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
    """A party's share of the ideal alone, here always 0.1, decides nothing."""
    left = iter(kept)

    def judge(*_: object) -> random_hosts.Judged:
        one = next(left)
        if isinstance(one, Ejected):
            raise one
        return random_hosts.Judged("g0", 0.1, "g0", one, 1.0)

    def run(scenario: object, scheduler: str) -> Any:
        return SimpleNamespace(tasks=[{"longest_wait_ns": waits * 1e6}])

    monkeypatch.setattr(random_hosts, "judge", judge)
    assert random_hosts.report(run, 1, len(kept)) == int(missed is not None)
    assert capsys.readouterr().out.splitlines()[-1] == (f"missed: {missed}" if missed else "kept")


def test_nobody_starves_on_hosts_where_some_may_not_have_all_cpus(engine: Engine) -> None:
    """The scheduler is ejected from none; an earlier one was from most with several caches."""
    for seed in (16, 17, 34, 38):
        made = random_hosts.Maker(seed, masks=True)
        assert random_hosts.longest_ms(engine.run(made.scenario, "gang")) < random_hosts.PATIENCE_MS
