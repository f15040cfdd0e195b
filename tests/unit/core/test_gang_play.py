# SPDX-License-Identifier: Apache-2.0
"""Decisions of gang.ko over many slots, while gangs come, go, sleep, move and change their weight."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from .play_lib import BALANCE, COLUMNS, OFF, RELAXED, SLOT, Party, Play

STARVE = 2_000_000_000
ROW_GANGS = 16
# Over 1,000 slots a share is met within 1 %, or within the slot that cannot be divided.
SLOTS = 1000
WITHIN = 0.01

unhurried = settings(deadline=None, max_examples=40)


def bound(parties: int) -> int:
    """A runnable gang waits at most for the starvation rule and a slot of every other party."""
    return STARVE + (parties + 2) * SLOT


@unhurried
@given(
    weights=st.lists(st.integers(50, 800), min_size=2, max_size=6),
    columns=st.sampled_from([1, 2, 8, 64]),
)
def test_weights_are_met_within_one_percent(weights: list[int], columns: int) -> None:
    """1,000 slots, gangs of any width on the same CPUs: CPU time is as the weights say."""
    play = Play(columns)
    for gang, weight in enumerate(weights, 1):
        play.set(gang, Party(2**columns - 1, weight))
        play.ready(gang, 2**columns - 1)
    for _ in range(SLOTS):
        play.slot()
    for gang, weight in enumerate(weights, 1):
        fair = SLOTS * SLOT * columns * weight / sum(weights)
        assert play.gangs[gang].ran == pytest.approx(fair, rel=WITHIN, abs=SLOT * columns)


@unhurried
@given(
    gangs=st.lists(st.tuples(st.integers(100, 400), st.integers(1, 3)), min_size=2, max_size=5),
    width=st.just(3),
)
def test_a_gang_pays_for_its_busiest_column(gangs: list[tuple[int, int]], width: int) -> None:
    """Gangs whose members halt in part have the CPU they all want as their weights say, not more often."""
    play = Play(width)
    for gang, (weight, awake) in enumerate(gangs, 1):
        play.set(gang, Party(2**width - 1, weight))
        play.ready(gang, 2**awake - 1)
    for _ in range(SLOTS):
        play.slot()
    per_weight = [play.gangs[gang].ran / awake / weight for gang, (weight, awake) in enumerate(gangs, 1)]
    # one slot, at the least weight: what cannot be divided
    assert max(per_weight) - min(per_weight) <= WITHIN * min(per_weight) + 2 * SLOT / 100


@unhurried
@given(
    gangs=st.lists(
        st.tuples(st.integers(1, 2**8 - 1), st.integers(1, 10000)),
        min_size=1,
        max_size=24,
    ),
    others=st.booleans(),
)
def test_no_runnable_gang_waits_past_the_bound(gangs: list[tuple[int, int]], others: bool) -> None:
    """For 6 s no gang waits past the bound, at any overlaps and weights, with and without ordinary tasks."""
    play = Play(8)
    for gang, (columns, weight) in enumerate(gangs, 1):
        play.set(gang, Party(columns, weight))
        play.ready(gang, columns)
    while play.now < 3 * STARVE:
        play.slot(others)
        assert play.now - min(party.since for party in play.gangs.values()) <= bound(len(gangs) + others)


@unhurried
@given(slots=st.integers(1, 300), weight=st.integers(1, 10000))
def test_a_sleeper_gets_one_slot_of_credit(slots: int, weight: int) -> None:
    """However long it slept, at any weight: it is at most one slot behind the clock when it is served."""
    play = Play(1)
    play.set(1, Party(1, weight))
    play.set(2, Party(1))
    play.ready(1, 1)
    for _ in range(slots):
        play.slot()
    play.ready(2, 1)
    before = play.vclock()
    while 2 not in play.slot():
        pass
    assert play.vtime(2) >= before - SLOT


class Domain(RuleBasedStateMachine):
    """Orders in any order: start, stop, block, wake, re-pin, re-weight, change of mode, CPUs come and go."""

    gangs = Bundle("gangs")

    @initialize(
        target=gangs,
        columns=st.integers(1, COLUMNS),
        masks=st.lists(st.integers(0, 2**64), min_size=2, max_size=12),
    )
    def begin(self, columns: int, masks: list[int]) -> MultipleResults[int]:
        self.play = Play(columns)
        self.clock = 0
        self.numbers = iter(range(1, 200))
        return multiple(*(self.start(mask, 100) for mask in masks))

    def somewhere(self, mask: int) -> int:
        """A part of the domain, never empty."""
        return mask % (2**self.play.columns - 1) + 1

    @rule(target=gangs, mask=st.integers(0, 2**64), weight=st.integers(1, 10000))
    def start_one(self, mask: int, weight: int) -> int:
        return self.start(mask, weight)

    def start(self, mask: int, weight: int) -> int:
        gang = next(self.numbers)
        self.play.set(gang, Party(self.somewhere(mask), weight))
        self.wake(gang)
        return gang

    @rule(gang=consumes(gangs))
    def stop(self, gang: int) -> None:
        self.play.set(gang, Party(self.play.gangs[gang].columns, mode=OFF))

    @rule(target=gangs, gang=consumes(gangs), mask=st.integers(0, 2**64))
    def start_again(self, gang: int, mask: int) -> int:
        """The number of a gang that stopped goes to another guest."""
        self.play.set(gang, Party(self.play.gangs[gang].columns, mode=OFF))
        self.play.set(gang, Party(self.somewhere(mask)))
        self.wake(gang)
        return gang

    @rule(gang=gangs)
    def wake_all(self, gang: int) -> None:
        self.wake(gang)

    def wake(self, gang: int) -> None:
        self.play.ready(gang, self.play.gangs[gang].columns)

    @rule(gang=gangs, mask=st.integers(0, 2**64))
    def block(self, gang: int, mask: int) -> None:
        self.play.ready(gang, self.play.gangs[gang].columns & mask)

    @rule(gang=gangs, mask=st.integers(0, 2**64))
    def repin(self, gang: int, mask: int) -> None:
        old = self.play.gangs[gang]
        self.play.set(gang, Party(self.somewhere(mask), old.weight, old.mode, old.ready, old.since))

    @rule(gang=gangs, weight=st.integers(1, 10000))
    def reweight(self, gang: int, weight: int) -> None:
        old = self.play.gangs[gang]
        self.play.set(gang, Party(old.columns, weight, old.mode, old.ready, old.since))

    @rule(gang=gangs, mode=st.sampled_from([BALANCE, RELAXED]))
    def change_mode(self, gang: int, mode: int) -> None:
        """From waiting for no slot it begins to wait now."""
        old = self.play.gangs[gang]
        self.play.set(gang, Party(old.columns, old.weight, mode, old.ready, self.play.now))

    @rule(columns=st.integers(1, COLUMNS))
    def hotplug(self, columns: int) -> None:
        """CPUs come or go: gangs that had members on them are moved to what is left."""
        self.play.resize(columns)
        for gang, old in self.play.gangs.items():
            if old.mode != OFF:
                where = self.somewhere(old.columns) if old.columns >> columns else old.columns
                self.play.set(gang, Party(where, old.weight, old.mode, old.ready, old.since))

    @rule(others=st.booleans(), slots=st.integers(1, 25))
    def slots(self, others: bool, slots: int) -> None:
        for _ in range(slots):
            generation, vtimes = self.play.generation(), {g: self.play.vtime(g) for g in self.play.gangs}
            served = self.play.slot(others)
            assert self.play.generation() == (generation + 1) & 0xFFFF
            assert all(self.play.vtime(gang) >= vtime for gang, vtime in vtimes.items())
            self.lawful(served)
            self.full(served, others)
            self.in_time(others)

    def lawful(self, served: set[int]) -> None:
        """A served gang is eligible and has exactly the columns it takes; none has one outside the domain."""
        row = self.play.row()
        assert set(row[self.play.columns :]) <= {0}
        for gang in served:
            party = self.play.gangs[gang]
            assert party.eligible
            mine = sum(1 << column for column, owner in enumerate(row) if owner == gang)
            assert mine == self.play.took[gang]

    def full(self, served: set[int], others: bool) -> None:
        """No gang that fits is left out, unless the slot is the ordinary tasks' or holds 16 gangs."""
        taken = sum(self.play.took[gang] for gang in served) | self.play.owed()
        left = [g for g, party in self.play.gangs.items() if g not in served and party.eligible]
        if served and len(served) < ROW_GANGS:
            assert all(self.play.took[gang] & taken for gang in left)
        elif not served:
            assert others or not left

    def in_time(self, others: bool) -> None:
        """No eligible gang has waited past the bound."""
        waiting = [party.since for party in self.play.gangs.values() if party.eligible]
        assert self.play.now - min(waiting, default=self.play.now) <= bound(len(self.play.gangs) + 1)

    @precondition(lambda self: hasattr(self, "play"))
    @invariant()
    def the_clock_never_goes_back(self) -> None:
        assert self.play.vclock() >= self.clock
        self.clock = self.play.vclock()


TestDomain = Domain.TestCase
TestDomain.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
