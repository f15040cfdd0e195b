# SPDX-License-Identifier: Apache-2.0
"""The adaptive policy against guests whose spinning is made up, in the rhythm of the daemon's loop."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gang_policies.adaptive import BLIND, CREDIT_MAX, GAP_MAX, MARGIN, POLICY, QUIET, REST, TRIAL_MAX, Memory
from gangd.model.domain import Mark, Mode
from gangd.model.evidence import Evidence
from gangd.model.policy import Decision
from gangd.testing import guest

WEB = guest("web", 1, mark=Mark("adaptive"))
TICK = 0.25  # seconds; in which nothing changes
IN_FORCE = 0.25  # seconds from a decision until the host is as it says
NOISE = 0.2
PROMISED = 0.02  # share of the time that trials may take
HOUR = 3600.0


@dataclass(frozen=True)
class Load:
    """PAUSE exits per CPU second, (lock-holder preemption, contention), as a gang and apart."""

    gang: tuple[float, float]
    apart: tuple[float, float]
    cpu: float = 1.0

    def exits(self, mode: Mode) -> tuple[float, float]:
        return self.gang if mode is Mode.RELAXED else self.apart


BARRIER = Load((20, 60), (9000, 200))
CONTENDED = Load((50, 8000), (600, 300))
SHORT_LOCK = Load((10, 0), (2500, 0))  # waits so short among siblings that no exit sees them
IPI = Load((30, 40), (4000, 10))
SLEEPER = Load((1, 2), (2, 1), cpu=0.6)
NEVER = Load((0, 0), (0, 0))
EVEN = Load((3000, 2000), (2500, 2500))
BEST = {
    "barrier": (BARRIER, Mode.RELAXED),
    "contended": (CONTENDED, Mode.BALANCE),
    "short lock": (SHORT_LOCK, Mode.RELAXED),
    "ipi": (IPI, Mode.RELAXED),
    "sleeper": (SLEEPER, Mode.BALANCE),
    "never": (NEVER, Mode.RELAXED),
    "even": (EVEN, Mode.RELAXED),
}


@dataclass
class Player:
    """A guest and the daemon's loop around it: a reading, a decision, which is in force a moment later; the
    next reading after as long as it wished for."""

    load: Load | None = BARRIER
    then: tuple[float, Load] | None = None  # from that moment on
    noise: float = NOISE
    rng: random.Random = field(default_factory=lambda: random.Random(1))
    now: float = 0.0
    mode: Mode = Mode.RELAXED
    since: float = 0.0
    decision: Decision = field(default_factory=lambda: POLICY.decide(WEB, Evidence()))
    modes: list[Mode] = field(default_factory=list)  # one a tick
    homes: list[Mode] = field(default_factory=list)  # one a reading
    trial: int = 0  # ticks

    def play(self, seconds: float) -> Player:
        """For so long, at least."""
        end = self.now + seconds
        while self.now < end:
            self.reading(self.decision.again or 1.0)
        return self

    def reading(self, seconds: float) -> None:
        """One, so long after the last."""
        begin, wanted, pause, lhp, cpu = self.now, self.decision.mode, 0.0, 0.0, 0.0
        for tick in range(round(seconds / TICK)):
            if tick * TICK >= IN_FORCE and wanted is not self.mode:
                self.mode, self.since = wanted, self.now
            if self.then and self.now >= self.then[0]:
                (_, self.load), self.then = self.then, None
            self.modes.append(self.mode)
            self.trial += self._memory.mode is not self._memory.home
            if self.load:
                own, shared = self.load.exits(self.mode)
                lhp += own * self.load.cpu * TICK
                pause += (own + shared) * self.load.cpu * TICK
                cpu += self.load.cpu * TICK
            self.now += TICK
        lhp, shared = (self._noisy(count) for count in (lhp, pause - lhp))
        evidence = self._evidence(begin, lhp, shared, cpu)
        self.decision = POLICY.decide(WEB, evidence, self.decision.memory)
        self.homes.append(self._memory.home)

    @property
    def _memory(self) -> Memory:
        assert isinstance(self.decision.memory, Memory)
        return self.decision.memory

    def _evidence(self, begin: float, lhp: float, shared: float, cpu: float) -> Evidence:
        passed, mode = self.now - begin, self.mode if self.since <= begin else None
        if self.load is None:
            return Evidence(passed, time=self.now, mode=mode)
        pause, preempted, used = (value / passed for value in (lhp + shared, lhp, cpu))
        return Evidence(passed, pause, preempted, None, used, self.now, mode)

    def _noisy(self, count: float) -> float:
        return count * self.rng.uniform(1 - self.noise, 1 + self.noise)

    def share(self, mode: Mode, begin: float) -> float:
        """Of the time since `begin`, spent in a mode."""
        later = self.modes[round(begin / TICK) :]
        return later.count(mode) / len(later)

    def changes(self) -> int:
        """How often the side changed for good."""
        return sum(a is not b for a, b in zip([Mode.RELAXED, *self.homes], self.homes, strict=False))


@pytest.mark.parametrize("name", BEST)
def test_the_better_side_is_found_within_ten_seconds(name: str) -> None:
    """And kept for the hour, but for trials that cost less than 2 % of it."""
    load, best = BEST[name]
    player = Player(load).play(HOUR)
    assert player.share(best, 10.0) > 1 - PROMISED
    assert set(player.modes[round(10 / TICK) : round(55 / TICK)]) == {best}


@pytest.mark.parametrize("first", BEST)
@pytest.mark.parametrize("then", ["barrier", "contended", "short lock", "ipi"])
def test_another_load_is_noticed_within_ten_seconds(first: str, then: str) -> None:
    """However long nothing had changed, and whenever in the daemon's rhythm it begins."""
    for offset in (0.0, 0.25, 0.75, 1.5, 2.25, 3.0, 3.75):
        player = Player(BEST[first][0]).play(2000.0)
        load, best = BEST[then]
        begin = player.now + offset
        player.then = (begin, load)
        player.play(50.0)
        assert set(player.modes[round((begin + 10) / TICK) :]) == {best}, offset


def test_a_guest_that_becomes_quiet_is_left_apart_some_time_later() -> None:
    """Nothing presses: it is found out at the next trial."""
    player = Player(BARRIER).play(2000.0)
    player.load, begin = SLEEPER, player.now
    player.play(2 * GAP_MAX)
    assert player.share(Mode.BALANCE, begin + GAP_MAX + 10.0) == 1.0


@settings(deadline=None, max_examples=60)
@given(
    *[st.tuples(st.floats(0, 20000), st.floats(0, 20000))] * 2,
    st.sampled_from([0.05, 1.0, 8.0]),
    st.integers(0, 1 << 32),
)
def test_noise_does_not_make_it_flap(
    gang: tuple[float, float], apart: tuple[float, float], cpu: float, seed: int
) -> None:
    """Whatever the load, while it stays the same the side changes once at most; trials keep to their time."""
    player = Player(Load(gang, apart, cpu), rng=random.Random(seed)).play(HOUR / 2)
    assert player.changes() <= 1
    assert player.trial * TICK <= PROMISED * player.now
    far = MARGIN * (1 + NOISE) / (1 - NOISE)
    if sum(gang) > far * max(sum(apart), QUIET):
        assert player.homes[-1] is Mode.BALANCE
    if sum(apart) > far * max(sum(gang), QUIET):
        assert player.homes[-1] is Mode.RELAXED


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.sampled_from([*BEST, "unknown"]), st.floats(1, 30)), min_size=1, max_size=12))
def test_trials_keep_to_their_budget_whatever_the_guest_does(phases: list[tuple[str, float]]) -> None:
    """A guest that changes all the time would else be tried all the time."""
    player = Player()
    while player.now < HOUR / 2:
        for name, seconds in phases:
            player.load = BEST[name][0] if name in BEST else None
            player.play(seconds)
    assert player.trial * TICK <= PROMISED * player.now + CREDIT_MAX + TRIAL_MAX


def test_who_hardly_spins_is_left_apart() -> None:
    """As a gang it would only be in the way; the reason has the numbers."""
    player = Player(Load((2, 1), (1, 4)), noise=0).play(100)
    told = "adaptive: PAUSE exits per CPU second 3 as a gang, 5 apart"
    assert player.decision.reason == f"{told}: it hardly spins, apart"
    assert player.share(Mode.BALANCE, 10.0) == 1.0


def test_who_begins_to_spin_has_to_be_loud() -> None:
    """Between quiet and loud nothing is done: a guest at the border would be moved to and fro."""
    player = Player(Load((0, 5), (40, 0))).play(100)
    player.load = Load((0, 5), (80, 0))
    assert player.play(HOUR).changes() == 1


def test_unknown_is_not_quiet() -> None:
    """Without PAUSE exits the guest is a gang, and the reason says why; also if they were known before."""
    player = Player(None).play(100)
    assert set(player.modes) == {Mode.RELAXED}
    assert player.decision.reason == "adaptive: PAUSE exits are not measured here"
    assert player.decision.again == BLIND
    player = Player(CONTENDED).play(100)
    player.load, begin = None, player.now
    player.play(20)
    assert player.share(Mode.RELAXED, begin + 5) == 1.0


def test_one_unknown_reading_does_not_blind() -> None:
    """The probes were loaded anew: the next reading knows, and is soon."""
    player = Player(None).play(1)
    assert player.decision.again == REST


def test_none_ever_is_not_few() -> None:
    """Where the CPU has no pause-loop exiting no guest takes a PAUSE exit, however it spins."""
    player = Player(NEVER).play(HOUR)
    assert set(player.modes) == {Mode.RELAXED}
    assert player.decision.reason.startswith("adaptive: it never took a PAUSE exit")


@pytest.mark.parametrize(
    "unknown",
    [
        Evidence(1.0, None, None, None, 1.0, 1.0, Mode.RELAXED),
        Evidence(1.0, 9000.0, 10.0, None, None, 1.0, Mode.RELAXED),
        Evidence(0.0),
    ],
)
def test_a_reading_without_a_part_of_it_starts_no_trial(unknown: Evidence) -> None:
    """PAUSE exits without CPU time say nothing, nor the other way round."""
    assert POLICY.decide(WEB, unknown).mode is Mode.RELAXED


def test_exits_that_are_not_told_apart_all_count() -> None:
    """A backend that counts PAUSE exits alone: what it cannot attribute may be either kind."""
    memory: object = Memory(home=Mode.BALANCE, mode=Mode.BALANCE, own=10.0, spun=True, costs={
        Mode.RELAXED: 100.0, Mode.BALANCE: 10.0})  # fmt: skip
    for second in (1.0, 2.0):
        decision = POLICY.decide(WEB, Evidence(1.0, 9000.0, None, None, 1.0, second, Mode.BALANCE), memory)
        memory = decision.memory
    assert decision.mode is Mode.RELAXED


def test_contention_speaks_against_the_gang() -> None:
    """With as many PAUSE exits before and after, those with every sibling on CPU start a trial, and those
    without do not: apart there are no fewer of them."""
    for kind, tried in (((4000.0, 150.0), False), ((150.0, 4000.0), True)):
        player = Player(Load((100.0, 200.0), (9000.0, 0.0)), noise=0).play(200)
        player.load = Load(kind, (9000.0, 0.0))
        begin = player.trial
        player.play(20)
        assert (player.trial > begin) is tried


def test_the_numbers_are_told() -> None:
    """On which a decision was made."""
    player = Player(CONTENDED, noise=0).play(30)
    assert player.decision.reason == "adaptive: PAUSE exits per CPU second 8050 as a gang, 900 apart: apart"


def test_one_odd_reading_is_an_accident() -> None:
    """A second one like it is another load."""
    player = Player(SHORT_LOCK, noise=0).play(200)
    trial = player.trial
    player.load = CONTENDED
    player.reading(1.0)
    player.load = SHORT_LOCK
    assert player.play(30).trial == trial


def test_a_trial_that_nobody_measures_ends() -> None:
    """The guest goes back to where it was."""
    decision = POLICY.decide(WEB, Evidence(1.0, 9000.0, 0.0, None, 1.0, 1.0, Mode.RELAXED))
    assert decision.mode is Mode.BALANCE
    for second in range(2, 8):
        evidence = Evidence(1.0, 9.0, 0.0, None, 1.0, float(second), None)
        decision = POLICY.decide(WEB, evidence, decision.memory)
    assert decision.mode is Mode.RELAXED
    assert "was not measured" in decision.reason


def test_a_reading_over_a_change_of_mode_is_not_used() -> None:
    """Nor is one twice."""
    decision = POLICY.decide(WEB, Evidence(1.0, 9000.0, None, None, 1.0, 1.0, None))
    again = POLICY.decide(WEB, Evidence(1.0, 9000.0, None, None, 1.0, 1.0, Mode.RELAXED), decision.memory)
    assert (again.mode, again.memory) == (Mode.RELAXED, decision.memory)


def test_a_stranger_s_memory_is_not_used() -> None:
    """Nor does it hurt."""
    assert POLICY.decide(WEB, Evidence(), {"mode": "strict"}).mode is Mode.RELAXED


def test_one_vcpu_is_no_gang() -> None:
    """As with every policy."""
    assert POLICY.decide(guest("one", 1, 1, mark=Mark("adaptive")), Evidence()).mode is Mode.OFF
