# SPDX-License-Identifier: Apache-2.0
"""The adaptive policy against guests whose contention is made up, in the rhythm of the daemon's loop."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import guest
from gang_policies.adaptive import AGAIN, BLIND, CALM, NONE, POLICY, REST, REST_SHORT, UNFAIR, WINDOW
from gangd.model.domain import Mark, Mode
from gangd.model.evidence import Conditions, Evidence
from gangd.model.policy import Decision

WEB = guest("web", 1, mark=Mark("adaptive"))
OFF, GANG = Mode.OFF, Mode.RELAXED
FAIR = Conditions(fair=True)
HOUR = 3600.0


@dataclass
class Player:
    """A guest and the daemon's loop around it: a reading, and a decision that is in force until the next.

    crowded: its vCPUs wait for half of the time, and run apart for 40 % of it unless they are a gang. held:
    the part of their waiting that is their own cpu.max's; wide: of so many times more vCPUs no more wait.
    """

    crowded: bool = True
    conditions: Conditions = FAIR
    probes: bool = True
    schedstat: bool = True
    busy: float = 1.0
    held: float = 0.0
    wide: int = 1
    now: float = 0.0
    decision: Decision = field(default_factory=lambda: POLICY.decide(WEB, Evidence(conditions=FAIR)))
    modes: list[tuple[float, Mode, bool]] = field(default_factory=list)  # time, mode and contention since

    def play(self, seconds: float, again: float | None = None) -> Player:
        """For so long, at least; `again`: another policy has readings taken more often."""
        end = self.now + seconds
        while self.now < end:
            self.reading(again or self.decision.again or AGAIN)
        return self

    def reading(self, seconds: float) -> None:
        """Take a reading, so long after the last."""
        self.modes.append((self.now, self.decision.mode, self.crowded))
        self.now += seconds
        apart = 0.4 if self.crowded and self.decision.mode is OFF else 0.0
        waited = 0.5 * self.busy * (1.0 - self.held) / self.wide if self.crowded else 0.0
        evidence = Evidence(
            seconds,
            corun_ratio=1.0 - apart if self.probes else None,
            run_per_second=self.busy if self.probes else None,
            cpu_per_second=self.busy,
            delay_per_second=waited if self.schedstat else None,
            held_per_second=self.held,
            time=self.now,
            conditions=self.conditions,
        )
        self.decision = POLICY.decide(WEB, evidence, self.decision.memory)

    def changes(self) -> int:
        """How often the mode changed."""
        return sum(a[1] is not b[1] for a, b in zip(self.modes, self.modes[1:], strict=False))


def test_a_crowded_guest_is_a_gang_with_the_first_window() -> None:
    """The guest stays a gang, however seldom its vCPUs run apart; the reason names the figure."""
    player = Player().play(WINDOW)
    assert player.decision.mode is GANG
    assert player.decision.reason == "adaptive: its vCPUs ran apart for 40% of the last 4 s: a gang"
    player.play(HOUR)
    assert player.changes() == 1
    told = (
        "adaptive: its vCPUs waited for CPUs for 33% of the time that they could run, of the last 5 s: a gang"
    )
    assert player.decision.reason == told


def test_a_guest_without_contention_is_left_alone() -> None:
    """The guest never becomes a gang, so no scheduler is loaded; the reason says what was seen."""
    player = Player(crowded=False).play(HOUR)
    assert player.changes() == 0
    assert player.decision.reason == "adaptive: its vCPUs ran apart for 0% of the last 5 s: off"


def test_a_gang_is_left_a_minute_after_its_contention_ended() -> None:
    """A moment of contention begins the minute anew."""
    player = Player().play(300)
    player.crowded = False
    player.play(CALM / 2)
    player.crowded = True
    player.play(1)
    player.crowded, end = False, player.now
    player.play(2 * CALM)
    left = next(time for time, mode, _ in player.modes if time >= end and mode is OFF)
    assert left - end <= CALM + AGAIN
    assert "its vCPUs ran apart for 0%" in player.decision.reason


@pytest.mark.parametrize(("stay", "rest"), [(300.0, REST), (5.0, REST_SHORT)])
def test_a_guest_that_left_enters_again_after_a_rest(stay: float, rest: float) -> None:
    """The rest is longer if the contention was over at once; the reason says how long it is."""
    player = Player().play(stay)
    player.crowded = False
    player.play(2 * CALM)
    player.crowded = True
    player.play(1)
    assert "a gang a while ago; again in" in player.decision.reason
    player.play(2 * rest)
    entered = [b[0] for a, b in zip(player.modes, player.modes[1:], strict=False) if a[1] is OFF is not b[1]]
    assert rest <= entered[1] - entered[0] <= rest + 2 * AGAIN


@pytest.mark.parametrize("seconds", [1, 5, 60])
def test_a_minute_of_crowding_an_hour_loads_the_scheduler_twice_at_most(seconds: int) -> None:
    """The minute comes at once, or in moments that are spread over the hour."""
    player = Player(crowded=False)
    pause = (HOUR - 60) / (60 / seconds)
    while player.now < HOUR:
        player.crowded = False
        player.play(pause)
        player.crowded = True
        player.play(seconds, float(min(seconds, AGAIN)))
    assert sum(a[1] is OFF is not b[1] for a, b in zip(player.modes, player.modes[1:], strict=False)) <= 2


@settings(max_examples=60)
@given(st.lists(st.tuples(st.booleans(), st.floats(0.5, 900)), min_size=1, max_size=30))
def test_the_mode_changes_seldom_under_any_load(loads: list[tuple[bool, float]]) -> None:
    """The mode changes once in five minutes at most, on average: beginnings are ten minutes apart, and each
    has an end. No guest stays a gang without contention for over a minute."""
    player = Player()
    while player.now < HOUR:
        for player.crowded, seconds in loads:
            player.play(seconds)
    assert player.changes() <= 2 * (player.now / REST + 1)
    calm = 0.0
    for (begin, mode, crowded), (end, *_) in zip(player.modes, player.modes[1:], strict=False):
        calm = calm + end - begin if mode is GANG and not crowded else 0.0
        assert calm <= CALM + 2 * AGAIN


def test_a_guest_below_its_own_limit_is_judged_by_run_delay() -> None:
    """Waiting for others decides, for its vCPUs run apart at any rate."""
    player = Player(held=0.95).play(HOUR)
    assert player.changes() == 0
    assert player.decision.reason == "adaptive: its vCPUs waited for CPUs for 2% of the last 5 s: off"
    assert Player(held=0.5).play(WINDOW).decision.mode is GANG


def test_a_guest_that_would_leave_at_once_does_not_enter() -> None:
    """Two of many vCPUs collide at times."""
    player = Player(wide=50).play(HOUR)
    assert player.changes() == 0
    told = "ran apart for 40% of the last 5 s, and waited 1% of the time that they could run: off"
    assert player.decision.reason.endswith(told)


def test_short_readings_are_taken_together() -> None:
    """Another policy that reads every tenth of a second makes no moment a reason."""
    player = Player(crowded=False).play(60, 0.1)
    player.crowded = True
    player.reading(0.1)
    player.crowded = False
    player.play(60, 0.1)
    assert player.changes() == 0
    player.crowded, begin = True, player.now
    player.play(2 * WINDOW, 0.1)
    entered = next(time for time, mode, _ in player.modes if mode is GANG)
    assert entered - begin <= 2 * WINDOW


def test_an_idle_guest_is_not_a_gang() -> None:
    """Two timers of an idle guest collide at each tick, and its vCPUs wait for longer than they run."""
    assert Player(busy=0.01).play(HOUR).changes() == 0


def test_without_probes_run_delay_says_both() -> None:
    """The policy knows nothing without run delay, and the guest is off; also if it was known before."""
    player = Player(probes=False).play(WINDOW)
    assert player.decision.reason == "adaptive: its vCPUs waited for CPUs for 33% of the last 4 s: a gang"
    player.schedstat = False
    player.play(10)
    assert player.decision.mode is OFF
    assert player.decision.reason.startswith("adaptive: its run delay is not measured here")
    assert player.decision.again == BLIND


@pytest.mark.parametrize(("fair", "reason"), [(False, UNFAIR), (None, NONE)])
def test_where_no_scheduler_is_fair_it_is_off(fair: bool | None, reason: str) -> None:
    """The reason says what to type; a gang whose scheduler is gone is one no more."""
    player = Player(conditions=Conditions(fair)).play(HOUR)
    assert (player.changes(), player.decision.reason) == (0, f"adaptive: {reason}")
    player = Player().play(300)
    player.conditions = Conditions(fair)
    assert player.play(1).decision.mode is OFF


def test_the_operator_chooses_both_thresholds() -> None:
    """By gangd.toml."""
    assert Player(conditions=Conditions(True, 50.0)).play(HOUR).changes() == 0
    assert Player(conditions=Conditions(True, 5.0, 60.0)).play(HOUR).changes() == 0


def test_a_reading_is_learned_from_once() -> None:
    """gangd asks at every change of the host; a stranger's memory is none."""
    decision = POLICY.decide(WEB, Evidence(conditions=FAIR), {"mode": "strict"})
    assert (decision.mode, decision.reason) == (OFF, "adaptive: not measured yet: off")
    player = Player().play(WINDOW)
    again = POLICY.decide(WEB, Evidence(5.0, time=player.now, conditions=FAIR), player.decision.memory)
    assert again == player.decision


def test_one_vcpu_is_refused() -> None:
    """A guest of one vCPU is refused, as with every policy: there is no reading to wait for."""
    decision = POLICY.decide(guest("one", 1, 1, mark=Mark("adaptive")), Evidence(conditions=FAIR))
    assert (decision.mode, decision.again) == (OFF, None)
