# SPDX-License-Identifier: Apache-2.0
"""The decisions of gang.ko, without a kernel: the properties of every slot, then of many."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .conftest import OTHERS, SLOT, Core, Gang

STARVE = 2_000_000_000
same_core = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@st.composite
def hosts(draw: st.DrawFn, most: int = 12) -> tuple[int, list[Gang]]:
    """A domain of 1 to 64 columns and gangs on it."""
    columns = draw(st.sampled_from([1, 2, 3, 4, 8, 63, 64]))
    masks = draw(st.lists(st.integers(1, 2**columns - 1), min_size=1, max_size=most))
    weights = [draw(st.integers(1, 10000)) for _ in masks]
    return columns, [
        Gang(n, mask, weight) for n, (mask, weight) in enumerate(zip(masks, weights, strict=True), 1)
    ]


def tick(core: Core, gangs: list[Gang], now: int, others: bool = False) -> list[int]:
    """Open a slot and let whoever is in it use all of it; the parties served."""
    first = core.open(now, others)
    served = sorted(set(core.row()) - {OTHERS})
    if first == OTHERS and others:
        core.charge(OTHERS, SLOT)
        return [OTHERS]
    for gang in gangs:
        if gang.id in served:
            core.charge(gang.id, SLOT * gang.width)
    return served


@same_core
@given(host=hosts(), slots=st.integers(1, 30), data=st.data())
def test_every_row_is_lawful(
    core: Core, host: tuple[int, list[Gang]], slots: int, data: st.DataObject
) -> None:
    """No column has two owners, only ready gangs get any, and those all where they had something to run."""
    columns, gangs = host
    core.reset(columns, gangs)
    seen = {gang.id: gang.columns for gang in gangs}
    for number in range(slots):
        ready = {gang.id: data.draw(st.integers(0, gang.columns)) & gang.columns for gang in gangs}
        for gang in gangs:
            core.ready(gang.id, ready[gang.id])
            seen[gang.id] |= ready[gang.id]
        served = tick(core, gangs, number * SLOT)
        row = core.row()
        for gang in gangs:
            mine = sum(1 << column for column, owner in enumerate(row) if owner == gang.id)
            assert mine == (seen[gang.id] if gang.id in served else 0)
            assert gang.id not in served or ready[gang.id]
            if gang.id in served:
                seen[gang.id] = ready[gang.id]


@same_core
@given(host=hosts())
def test_no_gang_that_fits_is_left_out(core: Core, host: tuple[int, list[Gang]]) -> None:
    """A row is full: whoever is ready and not in it would collide with who is."""
    columns, gangs = host
    core.reset(columns, gangs)
    served = tick(core, gangs, 0)
    taken = [gang.columns for gang in gangs if gang.id in served]
    for gang in gangs:
        assert gang.id in served or any(gang.columns & mask for mask in taken)


@same_core
@given(used=st.lists(st.integers(0, 10**9), min_size=2, max_size=20, unique=True))
def test_least_virtual_time_is_served_first(core: Core, used: list[int]) -> None:
    """Among gangs that want the same CPUs, the one that had the least goes first."""
    gangs = [Gang(number, 0b11) for number in range(1, len(used) + 1)]
    core.reset(2, gangs)
    for gang, ns in zip(gangs, used, strict=True):
        core.charge(gang.id, 2 * ns)
    assert core.open(0) == used.index(min(used)) + 1


@same_core
@given(vtime=st.integers(1, 10**9), others=st.integers(0, 10**9))
def test_everything_else_is_a_party_of_its_own(core: Core, vtime: int, others: int) -> None:
    """Ordinary tasks get the slot exactly when they had no more than the first gang, and want it."""
    core.reset(1, [Gang(1, 1)])
    core.open(0, others=True)
    core.charge(1, vtime)
    core.charge(OTHERS, others)
    assert core.open(0, others=True) == (OTHERS if others <= vtime else 1)
    core.reset(1, [Gang(1, 1)])
    core.charge(1, vtime)
    assert core.open(0, others=False) == 1


@pytest.mark.parametrize(
    ("odds", "share"),
    [
        ({0: (1024, 1024)}, {0: 0.7}),  # a hog beside a gang of four
        (dict.fromkeys(range(4), (1024, 1024)), dict.fromkeys(range(4), 0.5)),
        ({2: (15, 1024)}, {2: 0.0145}),  # nice 19
        ({0: (2048, 1024), 1: (1024, 1024)}, {0: 0.89, 1: 0.55}),
        ({3: (102400, 256)}, {3: 0.95}),  # no more than that, whatever the weight
        ({0: (1, 1024)}, {0: 0.001}),
        ({0: (0, 1024)}, {0: 0.7}),  # nobody was there: not known, so as heavy as a member
    ],
)
def test_ordinary_tasks_are_due_a_share_of_a_column(
    core: Core, odds: dict[int, tuple[int, int]], share: dict[int, float]
) -> None:
    """The weight where they wait and that in all four columns both count."""
    core.reset(4, [Gang(1, 0b1111)])
    found = core.others_share(odds, 4)
    assert found == {column: pytest.approx(wanted, abs=0.011, rel=0.02) for column, wanted in share.items()}


def test_a_slot_nobody_wants_is_closed(core: Core) -> None:
    """No column has an owner while no member is runnable."""
    core.reset(2, [Gang(1, 0b11)])
    core.ready(1, 0)
    assert core.open(0) == OTHERS
    assert core.row() == [OTHERS, OTHERS]


@same_core
@given(weights=st.lists(st.integers(1, 10000), min_size=2, max_size=10), others=st.booleans())
def test_no_party_starves(core: Core, weights: list[int], others: bool) -> None:
    """At any weights a ready party waits at most the bound and one slot of every other."""
    gangs = [Gang(number, 0b11, weight) for number, weight in enumerate(weights, 1)]
    core.reset(2, gangs)
    last = dict.fromkeys([gang.id for gang in gangs] + [OTHERS] * others, 0)
    bound = STARVE + (len(last) + 1) * SLOT
    for now in range(0, 4 * STARVE, SLOT):
        for party in tick(core, gangs, now, others):
            last[party] = now
        assert now - min(last.values()) <= bound


def test_more_gangs_than_slots_before_the_bound(core: Core) -> None:
    """200 gangs on the same CPUs need 4 s a round, twice the bound: each still has its turn."""
    gangs = [Gang(number, 0b11) for number in range(1, 201)]
    core.reset(2, gangs)
    turns: Counter[int] = Counter()
    for number in range(1000):
        turns.update(tick(core, gangs, number * SLOT))
    assert len(turns) == 200 and set(turns.values()) <= {4, 5, 6}


@same_core
@given(weights=st.lists(st.integers(50, 800), min_size=2, max_size=6))
def test_weights_are_honoured(core: Core, weights: list[int]) -> None:
    """Over 1,000 slots every gang gets its weight's share, within two slots and 2 %."""
    gangs = [Gang(number, 0b11, weight) for number, weight in enumerate(weights, 1)]
    core.reset(2, gangs)
    turns: Counter[int] = Counter()
    for number in range(1000):
        turns.update(tick(core, gangs, number * SLOT))
    for gang in gangs:
        fair = 1000 * gang.weight / sum(weights)
        assert turns[gang.id] == pytest.approx(fair, rel=0.02, abs=2)


@same_core
@given(width=st.integers(1, 64), weight=st.integers(1, 10000))
def test_a_slot_costs_the_same_at_any_width(core: Core, width: int, weight: int) -> None:
    """Wide gangs are not served less often than narrow ones."""
    core.reset(64, [Gang(1, 2**width - 1, weight)])
    core.charge(1, SLOT * width)
    assert core.vtime(1) == pytest.approx(SLOT * 100 / weight, abs=1)


def test_sleep_earns_one_slot_and_no_more(core: Core) -> None:
    """A gang that slept for an hour comes back with the credit of one slot."""
    worker, sleeper = Gang(1, 1), Gang(2, 1)
    core.reset(1, [worker, sleeper])
    core.ready(2, 0)
    for number in range(100):
        tick(core, [worker], number * SLOT)
    core.ready(2, 1)
    turns = [tick(core, [worker, sleeper], (100 + number) * SLOT)[0] for number in range(20)]
    assert turns[0] == sleeper.id
    assert turns.count(sleeper.id) <= 11


def test_ordinary_tasks_owe_nothing_for_time_while_all_gangs_slept(core: Core) -> None:
    """Ordinary tasks that had the CPUs to themselves are not made to wait for it afterwards."""
    gang = Gang(1, 1)
    core.reset(1, [gang])
    core.ready(1, 0)
    for number in range(100):
        assert tick(core, [gang], number * SLOT, others=True) == [OTHERS]
    core.ready(1, 1)
    turns = [tick(core, [gang], (100 + number) * SLOT, others=True)[0] for number in range(20)]
    assert turns.count(OTHERS) >= 9


def test_a_turn_for_starving_moves_nobody_elses_clock(core: Core) -> None:
    """A gang of weight 1 that is served every two seconds stays as far ahead as its weight says."""
    heavy, light = Gang(1, 1, 10000), Gang(2, 1, 1)
    core.reset(1, [heavy, light])
    turns: Counter[int] = Counter()
    for number in range(4000):
        turns.update(tick(core, [heavy, light], number * SLOT))
    assert turns[light.id] <= 4000 * SLOT / STARVE + 2


def test_gangs_that_fit_side_by_side_share_a_slot(core: Core) -> None:
    """Disjoint columns, one row; the wide gang has one of its own."""
    left, right, wide = Gang(1, 0b0011), Gang(2, 0b1100), Gang(3, 0b1111)
    core.reset(4, [left, right, wide])
    rows = set()
    for number in range(4):
        tick(core, [left, right, wide], number * SLOT)
        rows.add(tuple(core.row()))
    assert rows == {(1, 1, 2, 2), (3, 3, 3, 3)}


def test_modes_that_are_no_gangs_get_no_slot(core: Core) -> None:
    """off and balance are not co-scheduled."""
    for mode in (0, 1):
        core.reset(1, [])
        core.add(Gang(1, 1), mode=mode)
        assert core.open(0) == OTHERS


@same_core
@given(generation=st.integers(0, 2**16 - 1), deadline=st.integers(1 << 10, 2**57))
def test_a_word_holds_both(core: Core, generation: int, deadline: int) -> None:
    """Generation and deadline survive in one word; the deadline is cut to 1024 ns, never later."""
    word = core.word(generation, deadline)
    got_generation, got_deadline = core.parts(word)
    assert got_generation == generation
    assert deadline - 1024 < got_deadline <= deadline
    assert core.over(word, deadline) and not core.over(word, got_deadline - 1)


def test_a_gang_runs_whole_if_all_its_runnable_members_do(core: Core) -> None:
    core.reset(3, [Gang(1, 0b111)])
    core.ready(1, 0b011, 0b001)
    assert not core.all_running(1)
    core.ready(1, 0b011, 0b011)
    assert core.all_running(1)
    core.ready(1, 0)
    assert not core.all_running(1)
