# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of the fair base: the clock is the weighted mean, nobody is worth what he cannot use."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .library import load

U32, U64 = ctypes.c_uint32, ctypes.c_uint64
ONE = 65536  # FAIR_ONE
CPU = 1 << 20  # FAIR_CPU
MSEC = 1_000_000
TURN = 12 * MSEC
UPTIMES = [0, 10**9, 300 * 86400 * 10**9]  # FAIR_ONE a ns wraps after 78 hours


@dataclass
class Party:
    """A runnable task: weight, virtual time, since when it runs (None: it waits)."""

    w: int
    v: int
    since: int | None = None


@dataclass
class Clock:
    """The compiled clock, and beside it everybody who is counted in it."""

    library: ctypes.CDLL
    now: int
    parties: list[Party] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in (
            "fair_pay",
            "fair_now",
            "fair_reweigh",
            "fair_reached_in",
            "fair_fits",
            "fair_request_of",
            "fair_most_of",
            "fair_turn",
            "fair_turn_most",
        ):
            getattr(self.library, name).restype = U64
        self.library.fair_reset()

    def join(self, w: int, v: int) -> Party:
        self.library.fair_join(U64(w), U64(v % 2**64), U64(self.now))
        self.parties.append(Party(w, v))
        return self.parties[-1]

    def start(self, party: Party) -> None:
        self.library.fair_start(U64(self.now))
        party.since = self.now

    def pay(self, party: Party) -> None:
        """Do as account(): the party is charged up to now, and runs on."""
        assert party.since is not None
        party.v += self.library.fair_pay(U64(party.w), U64(self.now - party.since))
        party.since = self.now

    def stop(self, party: Party) -> None:
        self.pay(party)
        self.library.fair_stop(U64(self.now))
        party.since = None

    def leave(self, party: Party) -> None:
        self.library.fair_leave(U64(party.w), U64(party.v % 2**64), U64(self.now))
        self.parties.remove(party)

    @property
    def mean(self) -> float:
        """The weighted mean that the clock has to show."""
        total = sum(
            p.w * p.v + (ONE * (self.now - p.since) if p.since is not None else 0) for p in self.parties
        )
        return total / sum(p.w for p in self.parties)

    @property
    def said(self) -> int:
        return int(self.library.fair_now(U64(self.now)))


@pytest.fixture(scope="session")
def library() -> ctypes.CDLL:
    """The compiled headers."""
    return load("fair.c")


@pytest.mark.parametrize("begin", UPTIMES)
def test_the_clock_is_the_weighted_mean(library: ctypes.CDLL, begin: int) -> None:
    """While some run and some wait, after each of them has paid, and after one has gone."""
    clock = Clock(library, begin)
    heavy, light, waits = clock.join(3 * ONE, 1000), clock.join(ONE, 5000), clock.join(ONE, 9000)
    assert clock.said == (3 * 1000 + 5000 + 9000) // 5
    clock.start(heavy)
    clock.start(light)
    for step in (7, MSEC, 4 * MSEC):
        clock.now += step
        assert abs(clock.said - clock.mean) <= 1
        clock.pay(light)
        assert abs(clock.said - clock.mean) <= 1
    clock.stop(heavy)
    clock.leave(heavy)
    assert abs(clock.said - clock.mean) <= 2
    clock.stop(light)
    assert abs(clock.said - clock.mean) <= 2
    assert waits.v == 9000


def test_the_clock_of_an_empty_set_stands(library: ctypes.CDLL) -> None:
    """The clock stands where the last one left it."""
    clock = Clock(library, 10**9)
    last = clock.join(ONE, 4242)
    clock.leave(last)
    clock.now += 10**9
    assert clock.said == 4242


def test_a_heavy_task_joins_a_clock_that_a_light_one_had_alone(library: ctypes.CDLL) -> None:
    """V is far by then: the clock counts the newcomer beside it, and not from where V began."""
    clock = Clock(library, 0)
    light = clock.join(192, 0)
    clock.start(light)
    clock.now += 300 * 10**9
    clock.pay(light)
    at = clock.said
    heavy = clock.join(1 << 30, at)
    assert clock.said == at
    heavy.v = library.fair_reweigh(U64(heavy.w), U64(1 << 20), U64(heavy.v), U64(clock.now))
    assert clock.said == at


def test_a_party_that_drops_out_pays_nothing(library: ctypes.CDLL) -> None:
    """A party that drops out takes its unpaid run time out of the sum: the clock is that of the rest."""
    clock = Clock(library, 10**9)
    stays, goes = clock.join(ONE, 100), clock.join(ONE, 100)
    clock.start(goes)
    clock.now += MSEC
    library.fair_drop(U64(goes.w), U64(goes.v), U64(MSEC), U64(clock.now))
    clock.parties.remove(goes)
    assert clock.said == stays.v


@given(st.integers(4096, 1 << 30), st.integers(4096, 1 << 30), st.integers(-48 * MSEC, 48 * MSEC))
def test_a_task_keeps_its_lag_when_it_is_reweighed(library: ctypes.CDLL, w: int, to: int, lag: int) -> None:
    """The ns that it is owed, or owes, stay, and so does the clock."""
    clock = Clock(library, 10**9)
    clock.join(w, 2 * 10**9)
    party = clock.join(w, 2 * 10**9 - 2 * lag * ONE // w)
    at = clock.said
    party.v = library.fair_reweigh(U64(w), U64(to), U64(party.v), U64(clock.now))
    party.w = to
    assert (at - party.v) * to / ONE == pytest.approx(lag, abs=2 + 2 * (w + to) / ONE)
    assert abs(clock.said - at) <= 1


def test_a_task_that_sleeps_ahead_stays_counted_until_the_clock_is_there(library: ctypes.CDLL) -> None:
    """The clock goes at the pace of all; once it is there, the task leaves, and moves it nowhere."""
    clock = Clock(library, 10**9)
    runs, sleeps = clock.join(ONE, 0), clock.join(ONE, 0)
    clock.start(sleeps)
    clock.now += 6 * MSEC
    clock.pay(sleeps)
    wait = library.fair_reached_in(U64(sleeps.v), U64(clock.now))
    assert wait == pytest.approx(6 * MSEC, rel=0.001)
    clock.stop(sleeps)
    library.fair_sleep()
    clock.start(runs)
    clock.now += wait
    assert clock.said == pytest.approx(sleeps.v, abs=256)
    library.fair_remove(U64(sleeps.w), U64(sleeps.v), U64(clock.now))
    clock.parties.remove(sleeps)
    assert clock.said == pytest.approx(sleeps.v, abs=512)


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(UPTIMES),
    st.lists(
        st.tuples(st.integers(1, 90 * 64 * 1024), st.integers(-TURN, TURN), st.integers(1, 50 * MSEC)),
        min_size=2,
        max_size=40,
    ),
)
def test_the_clock_survives_any_weights(
    library: ctypes.CDLL, begin: int, told: list[tuple[int, int, int]]
) -> None:
    """From the lightest to nice -20 in the heaviest group, each within a turn of V: v0 moves, V does not."""
    clock = Clock(library, begin)
    for w, owes, ns in told:
        party = clock.join(w, max(0, clock.said + owes * ONE // w))
        clock.start(party)
        clock.now += ns
        clock.stop(party)
    assert abs(clock.said - clock.mean) <= 2 + clock.mean / 2**40


@given(st.integers(1, 1 << 30), st.integers(1, 1 << 32), st.integers(1, 64), st.integers(1, 64))
def test_no_party_weighs_more_than_it_can_use(
    library: ctypes.CDLL, weight: int, rest: int, limit: int, cpus: int
) -> None:
    """A division by effective weights gives the limit, or the share by weight where that is less."""
    clock = Clock(library, 0)
    fits = clock.library.fair_fits(U64(weight), U64(rest), U64(limit * CPU), U64(cpus * CPU))
    assert 0 < fits <= weight
    got, asked = cpus * fits / (fits + rest), cpus * weight / (weight + rest)
    assert got <= asked + 1e-9
    if limit < cpus and asked > limit and fits > (weight >> 12) + 1 and fits > 1000:
        assert got == pytest.approx(limit, rel=0.01)


def test_light_tasks_ask_for_little(library: ctypes.CDLL) -> None:
    """A request of weight 1 beside 10000 comes within 3.5 s; among equals no request is cut."""
    clock = Clock(library, 0)
    light = clock.library.fair_most_of(U64(655), U64(2 * 6_553_600), U32(3), U32(1), U64(3 * MSEC))
    assert 0.1 * MSEC <= light < 0.2 * MSEC
    assert clock.library.fair_most_of(U64(ONE), U64(8 * ONE), U32(8), U32(4), U64(TURN)) == TURN


def test_requests_follow_bursts(library: ctypes.CDLL) -> None:
    """Twice what it runs at a time, from 0.2 ms to the most."""
    clock = Clock(library, 0)
    ask = clock.library.fair_request_of
    asked = [ask(U64(burst), U64(3 * MSEC)) for burst in (0, MSEC // 20, MSEC // 4, MSEC, 2 * MSEC, 1 << 62)]
    assert asked == [MSEC // 5, MSEC // 5, MSEC // 2, 2 * MSEC, 3 * MSEC, 3 * MSEC]


@given(st.integers(0, 10**16), st.sampled_from([TURN, TURN // 2, TURN // 4]))
def test_turns_end_at_the_edges_of_one_grid(library: ctypes.CDLL, now: int, slot: int) -> None:
    """No turn is shorter than a quarter of the grid; edges of long turns are edges of short ones."""
    clock = Clock(library, 0)
    length = clock.library.fair_turn(U64(now), U64(slot))
    assert (now + length) % slot == 0
    assert slot // 4 <= length < slot + slot // 4


def test_turns_are_shorter_in_a_crowd(library: ctypes.CDLL) -> None:
    """Halves from six tasks a CPU, quarters from 24."""
    clock = Clock(library, 0)
    assert [clock.library.fair_turn_most(U32(nr), U32(4)) for nr in (23, 24, 96)] == [
        TURN,
        TURN // 2,
        TURN // 4,
    ]
