# SPDX-License-Identifier: Apache-2.0
"""The adaptive policy against guests whose spinning is made up."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gang_policies.adaptive import GAP_MAX, POLICY
from gangd.model.domain import Mark, Mode
from gangd.model.evidence import Evidence
from gangd.testing import guest

WEB = guest("web", 1, mark=Mark("adaptive"))
Load = Callable[[Mode], float | None]


def run(load: Load, seconds: int, memory: object = None, start: int = 0) -> tuple[list[Mode], object, str]:
    """The mode in force in each second, one reading a second; a mode holds from the second after it was
    decided. Also the memory and the last reason."""
    modes, mode = [], getattr(memory, "mode", Mode.RELAXED)
    reason = ""
    for second in range(start + 1, start + seconds + 1):
        pause = load(mode)
        evidence = Evidence(1.0, pause, None, None, None if pause is None else 1.0, float(second), mode)
        modes.append(mode)
        decision = POLICY.decide(WEB, evidence, memory)
        mode, memory, reason = decision.mode, decision.memory, decision.reason
    return modes, memory, reason


def barrier(mode: Mode) -> float:
    """Spins for siblings that wait, and hardly in a gang."""
    return 100.0 if mode is Mode.RELAXED else 9000.0


def contended(mode: Mode) -> float:
    """Spins for siblings that run."""
    return 8000.0 if mode is Mode.RELAXED else 700.0


def even(_mode: Mode) -> float:
    """Spins as much either way."""
    return 5000.0


@pytest.mark.parametrize(
    ("load", "best"), [(barrier, Mode.RELAXED), (contended, Mode.BALANCE), (even, Mode.RELAXED)]
)
def test_the_better_side_is_found_within_ten_seconds(load: Load, best: Mode) -> None:
    """And kept, but for trials that cost less than 2 % of an hour."""
    modes, _, _ = run(load, 3600)
    assert set(modes[10:50]) == {best}
    assert sum(mode is not best for mode in modes[10:]) < 0.02 * len(modes)


@pytest.mark.parametrize(
    ("first", "then", "best"), [(barrier, contended, Mode.BALANCE), (contended, barrier, Mode.RELAXED)]
)
def test_another_load_is_noticed(first: Load, then: Load, best: Mode) -> None:
    """Within ten seconds, however long nothing had changed."""
    _, memory, _ = run(first, 2000)
    modes, _, _ = run(then, 40, memory, 2000)
    assert set(modes[10:]) == {best}


def test_who_hardly_spins_is_not_tried() -> None:
    """A trial could only cost."""
    modes, _, reason = run(lambda _mode: 3.0, 2000)
    assert set(modes) == {Mode.RELAXED}
    assert reason == "adaptive: it hardly spins, 3 PAUSE exits per CPU second"


def test_unknown_is_not_quiet() -> None:
    """Without PAUSE exits the guest is a gang, and the reason says why."""
    modes, _, reason = run(lambda _mode: None, 100)
    assert set(modes) == {Mode.RELAXED}
    assert reason == "adaptive: PAUSE exits are not measured here"
    _, memory, _ = run(contended, 100)
    assert getattr(memory, "mode", None) is Mode.BALANCE
    modes, _, _ = run(lambda _mode: None, 10, memory, 100)
    assert modes[-1] is Mode.RELAXED


def test_noise_within_the_margin_changes_nothing() -> None:
    """A side that is better by less than the margin does not win."""
    modes, _, _ = run(lambda mode: 5000.0 if mode is Mode.RELAXED else 4200.0, 3600)
    assert sum(mode is Mode.BALANCE for mode in modes) <= 3600 / GAP_MAX + 6


def test_the_numbers_are_told() -> None:
    """On which a decision was made."""
    _, _, reason = run(contended, 100)
    assert reason == "adaptive: PAUSE exits per CPU second 8000 as a gang, 700 apart: apart"


def test_a_reading_over_a_change_of_mode_is_not_used() -> None:
    """Nor is one twice."""
    decision = POLICY.decide(WEB, Evidence(1.0, 9000.0, None, None, 1.0, 1.0, None))
    again = POLICY.decide(WEB, Evidence(1.0, 9000.0, None, None, 1.0, 1.0, Mode.RELAXED), decision.memory)
    assert (again.mode, again.memory) == (Mode.RELAXED, decision.memory)


def test_one_vcpu_is_no_gang() -> None:
    """As with every policy."""
    assert POLICY.decide(guest("one", 1, 1, mark=Mark("adaptive")), Evidence()).mode is Mode.OFF
