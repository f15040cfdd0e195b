# SPDX-License-Identifier: Apache-2.0
"""Where gangs go, on hosts of real shapes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangd.model.columns import gang_domains
from gangd.model.domain import Domain, Helper, Vcpu
from gangd.model.own_pin import OwnPin
from gangd.model.placement import Seating, Standing
from gangd.model.plan import HelperPlace
from gangd.model.topology import Topology
from gangd.testing import guest, host

from .seats import cpus, cpus_of, guests, pinned, seat, standing
from .shapes import SHAPES

# ---- newcomers ---------------------------------------------------------------------


def test_siblings_share_a_core() -> None:
    """vCPUs 0 and 1 on one core: no other guest of the turn is on it."""
    assert cpus_of(host(cores=2, threads=2), 2) == [[0, 2]]


def test_a_pair_of_vcpus_is_never_split_by_an_odd_one() -> None:
    """Whole cores come first, so that a guest that knows of threads is right about them."""
    assert cpus_of(host(cores=4, threads=2), 3, 5) == [[3, 7, 6], [0, 4, 1, 5, 2]]


def test_the_next_guest_goes_where_nobody_is() -> None:
    """First free cores of a cache, then another cache, then shared in time."""
    topology = host(packages=2, cores=2, threads=1)
    assert cpus_of(topology, 2, 2, 2) == [[0, 1], [2, 3], [0, 1]]
    assert cpus_of(host(cores=4, threads=1), 2, 2, 2) == [[0, 1], [2, 3], [0, 1]]


def test_a_cache_in_use_is_filled_before_another_is_begun() -> None:
    """Best fit: the wide guest that comes later finds a whole cache."""
    topology = host(packages=2, cores=4, threads=1)
    first = guests(2, 2)
    placed = seat(topology, first)
    late = [*first, guest("late", 9, 4)]
    then = seat(topology, late, standing(first, placed))
    assert [cpus(then, d) for d in late] == [[0, 1], [2, 3], [4, 5, 6, 7]]


def test_too_wide_takes_turns() -> None:
    """A guest wider than all CPUs of a kind has all of them, and some of its vCPUs take turns."""
    assert cpus_of(host(packages=2, cores=2, threads=1), 5) == [[0, 1, 2, 3, 0]]
    wide = guests(3)
    answer = seat(host(cores=2, threads=1), wide).of[wide[0].uuid]
    assert isinstance(answer, Seating)
    turns = [p.reason.endswith("takes turns with another vCPU of this guest") for p in answer.placements]
    assert turns == [False, False, True]


def test_no_cpu_is_a_sentence() -> None:
    """A host of which nothing is known holds nobody, nor one whose CPUs are all set apart."""
    assert cpus_of(Topology(), 2) == ["no CPU of the host is free for gangs"]
    whole = host(cores=2, threads=1)
    apart = Topology(whole.cpus, frozenset({0, 1}))
    assert cpus_of(apart, 2) == ["no CPU of the host is free for gangs"]


def test_reasons_say_what_is_shared() -> None:
    """Core, thread of the core, and how many others are there."""
    found = guests(2, 2, 2)
    placed = seat(host(cores=1, threads=2), found)
    answer = placed.of[found[0].uuid]
    assert isinstance(answer, Seating)
    assert answer.placements[1].reason == "core 0, thread 2 of 2; shared in time with 2 other gangs"
    (alone,) = guests(2)
    answer = seat(host(cores=1, threads=2), [alone]).of[alone.uuid]
    assert isinstance(answer, Seating)
    assert answer.placements[0].reason == "core 0, thread 1 of 2; free"


def test_what_was_rejected_is_told() -> None:
    """Every other gang domain that could have held the guest, with what spoke against it."""
    topology = host(packages=3, cores=2, threads=1)
    found = guests(2, 2)
    placed = seat(topology, found)
    answer = placed.of[found[1].uuid]
    assert isinstance(answer, Seating)
    assert [(offer.gang_domain, offer.why_not) for offer in answer.rejected] == [
        (2, "leaves 0 CPUs unused beside it"),
        (0, "1 gang there already"),
    ]


# ---- who has a place keeps it --------------------------------------------------------


def test_a_newcomer_moves_nobody() -> None:
    """However much better it could be arranged."""
    topology = host(cores=4, threads=1)
    first = guests(1, 1, 1)
    before = seat(topology, first)
    more = [*first, guest("wide", 9, 4)]
    after = seat(topology, more, standing(first, before, moves=100))
    assert [cpus(after, d) for d in first] == [cpus(before, d) for d in first]
    assert after.moved == 0


def test_who_stays_moves_only_as_far_as_it_may() -> None:
    """A guest left, and three that shared a cache could be apart: none, one or both move."""
    topology = host(packages=2, cores=2, threads=1)
    found = guests(2, 2, 2, 2)
    before = seat(topology, found)
    assert [cpus(before, d) for d in found] == [[0, 1], [2, 3], [0, 1], [2, 3]]
    left = [found[0], found[2]]
    for moves, rows in ((0, 2), (1, 2), (2, 1), (9, 1)):
        after = seat(topology, left, standing(found, before, moves))
        crowd = Counter(cpu for d in left for cpu in cpus(after, d))
        assert max(crowd.values()) == rows
        assert after.moved == (0 if rows == 2 else 2)


def test_a_cpu_that_went_moves_only_those_who_were_there() -> None:
    """Whatever the limit: the kernel has moved them already."""
    whole = host(cores=4, threads=1)
    found = guests(2, 1)
    before = seat(whole, found)
    assert [cpus(before, d) for d in found] == [[0, 1], [2]]
    gone = Topology(whole.cpus[1:])
    after = seat(gone, found, standing(found, before))
    assert cpus(after, found[1]) == [2]
    assert not set(cpus(after, found[0])) & {0, 2}


def test_a_hotplugged_vcpu_means_a_new_place() -> None:
    """The gang is wider than it was."""
    topology = host(cores=4, threads=1)
    (one,) = guests(1)
    before = seat(topology, [one])
    wider = replace(one, vcpus=(*one.vcpus, Vcpu(1, 77)))
    assert len(set(cpus(seat(topology, [wider], standing([one], before)), wider))) == 2


# ---- what an operator pinned -----------------------------------------------------------


def test_pins_by_hand_are_left_alone() -> None:
    """One CPU each: those it is, and others go elsewhere. The reason says so."""
    topology = host(cores=4, threads=1)
    free, hand = guests(2, 2)
    hand = pinned(hand, {1}, {0})
    placed = seat(topology, [free, hand])
    assert (cpus(placed, hand), cpus(placed, free)) == ([1, 0], [2, 3])
    answer = placed.of[hand.uuid]
    assert isinstance(answer, Seating)
    assert answer.placements[0].reason == "core 1; free; pinned by hand to 1"


def test_a_cpuset_by_hand_is_a_limit() -> None:
    """Different CPUs out of it; a vCPU that is not limited goes anywhere beside them."""
    topology = host(cores=4, threads=1)
    (hand,) = guests(3)
    hand = pinned(hand, {2, 3}, {2}, {0, 1, 2, 3})
    assert cpus(seat(topology, [hand]), hand)[:2] == [3, 2]
    assert len(set(cpus(seat(topology, [hand]), hand))) == 3


def test_two_vcpus_by_hand_on_one_cpu_take_turns() -> None:
    """It is what the operator said."""
    (hand,) = guests(2)
    hand = pinned(hand, {1}, {1})
    assert cpus(seat(host(cores=2, threads=1), [hand]), hand) == [1, 1]


def test_pins_across_caches_make_one_domain(tmp_path: Path) -> None:
    """A gang never spans two; where that cannot be, the refusal names the CPUs."""
    (hand,) = guests(2)
    hand = pinned(hand, {0}, {4})
    placed = seat(SHAPES["epyc"].read(tmp_path / "epyc"), [hand])
    assert cpus(placed, hand) == [0, 4]
    assert len(placed.gang_domains[0].cpus) == 16
    apart = pinned(hand, {0}, {2})
    assert seat(SHAPES["isolcpus"].read(tmp_path / "isolcpus"), [apart]).of[hand.uuid] == (
        "its vCPUs are pinned by hand to CPUs 0,2, which no gang domain has all of"
    )


def test_own_pins_are_nobodys_wish() -> None:
    """What gangd wrote may be changed by gangd; what it found holds, and so does what came after."""
    topology = host(cores=4, threads=1)
    (one,) = guests(1)
    everywhere = frozenset(range(4))
    ours = {(one.uuid, "vcpu/0"): OwnPin(everywhere, frozenset({3}))}
    assert cpus(seat(topology, [pinned(one, {3})], Standing(pins=ours)), one) == [0]
    limited = {(one.uuid, "vcpu/0"): OwnPin(frozenset({1, 2}), frozenset({2}))}
    assert cpus(seat(topology, [pinned(one, {2})], Standing(pins=limited)), one) == [1]
    assert cpus(seat(topology, [pinned(one, {3})], Standing(pins=limited)), one) == [3]


def test_a_guest_read_before_it_was_moved_is_not_pinned_by_hand() -> None:
    """gangd had it on CPU 3 and took it to CPU 1; the reading is older than that."""
    topology = host(cores=4, threads=1)
    (one,) = guests(1)
    moved = {(one.uuid, "vcpu/0"): OwnPin(frozenset(range(4)), frozenset({1}), at=5.0)}
    seen = pinned(one, {3})
    assert cpus(seat(topology, [replace(seen, since=4.0)], Standing(pins=moved)), one) == [0]
    assert cpus(seat(topology, [replace(seen, since=6.0)], Standing(pins=moved)), one) == [3]


def test_helpers_go_off_the_gangs_cpus() -> None:
    """Unless an operator pinned them, or the gang is everywhere."""
    everywhere = frozenset(range(4))
    helpers = (Helper("emulator", everywhere), Helper("iothread/1", frozenset({0})), Helper("iothread/2"))
    (one,) = guests(2)
    one = replace(one, helpers=helpers)
    answer = seat(host(cores=4, threads=1), [one]).of[one.uuid]
    assert isinstance(answer, Seating)
    assert answer.helpers == (HelperPlace("emulator", frozenset({2, 3}), "off the CPUs of the gang"),)
    ours = {(one.uuid, "iothread/1"): OwnPin(everywhere, frozenset({0}))}
    answer = seat(host(cores=4, threads=1), [one], Standing(pins=ours)).of[one.uuid]
    assert isinstance(answer, Seating)
    assert [helper.name for helper in answer.helpers] == ["emulator", "iothread/1"]
    answer = seat(host(cores=2, threads=1), [one]).of[one.uuid]
    assert isinstance(answer, Seating)
    assert answer.helpers == ()


# ---- on every shape ----------------------------------------------------------------------


def nova(cores: Sequence[Sequence[int]], width: int) -> list[int] | None:
    """The free CPUs that OpenStack Nova's rule gives a guest (_pack_instance_onto_cores, nova/virt/
    hardware.py; "prefer"): as many threads of each core as the most that still gives enough CPUs."""
    for threads in range(max(map(len, cores), default=0), 0, -1):
        usable = [core[:threads] for core in cores if len(core) >= threads]
        if threads * len(usable) >= width:
            return [cpu for core in usable for cpu in core][:width]
    return None


def pairs(cores: Sequence[Sequence[int]], found: Sequence[int]) -> int:
    """Cores with several threads of which all are in `found`."""
    return sum(len(core) > 1 and set(core) <= set(found) for core in cores)


@pytest.mark.parametrize("name", SHAPES)
@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 10**6))
def test_never_worse_than_nova(name: str, seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """One guest after the other on an empty host, until Nova has no room: as many whole cores, at least."""
    topology = SHAPES[name].read(tmp_path_factory.mktemp(name))
    dice = random.Random(seed)
    domains = gang_domains(topology)
    whole = [[c for c in core if c in topology.usable] for core in topology.cores()]
    free = [core for core in whole if core]
    here: list[Domain] = []
    stands = Standing()
    ours = theirs = 0
    for number in range(1, 20):
        width = dice.randint(1, min(8, max(len(d.cpus) for d in domains)))
        taken = nova(free, width)
        if taken is None:
            break
        free = [rest for core in free if (rest := [cpu for cpu in core if cpu not in taken])]
        here.append(guest(f"g{number}", number, width))
        placed = seat(topology, here, stands)
        stands = standing(here, placed)
        ours += pairs(whole, cpus(placed, here[-1]))
        theirs += pairs(whole, taken)
    assert ours >= theirs


@pytest.mark.parametrize("name", SHAPES)
@settings(deadline=None, max_examples=25)
@given(widths=st.lists(st.integers(1, 40), min_size=1, max_size=12))
def test_every_placement_is_lawful(
    name: str, widths: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A usable CPU for each vCPU, all in one gang domain, and none twice while others are free."""
    topology = SHAPES[name].read(tmp_path_factory.mktemp(name))
    found = guests(*widths)
    placed = seat(topology, found)
    where = {domain.index: set(domain.cpus) for domain in placed.gang_domains}
    assert sum(map(len, where.values())) == len(set().union(*where.values())) == len(topology.usable)
    for domain in found:
        mine, answer = cpus(placed, domain), placed.of[domain.uuid]
        assert isinstance(answer, Seating)
        assert set(mine) <= where[answer.gang_domain] <= topology.usable
        assert len(set(mine)) == min(len(mine), len(where[answer.gang_domain]))


HOSTS = st.builds(host, packages=st.integers(1, 3), cores=st.integers(1, 6), threads=st.integers(1, 2))


@given(topology=HOSTS, count=st.integers(1, 20))
def test_guests_as_wide_as_a_core_spread_evenly(topology: Topology, count: int) -> None:
    """No core has two guests more than another."""
    threads = len(topology.cores()[0])
    found = guests(*[threads] * count)
    placed = seat(topology, found)
    crowd = Counter(dict.fromkeys(topology.ids, 0))
    crowd.update(cpu for d in found for cpu in cpus(placed, d))
    assert max(crowd.values()) - min(crowd.values()) <= 1


@given(
    topology=HOSTS,
    widths=st.lists(st.integers(1, 8), min_size=1, max_size=10),
    leave=st.sets(st.integers(0, 9)),
    moves=st.integers(0, 12),
)
def test_moves_are_counted_and_limited(
    topology: Topology, widths: list[int], leave: set[int], moves: int
) -> None:
    """Whoever leaves: no more vCPUs move than may, they are told, and a second plan moves nobody back."""
    found = guests(*widths)
    before = seat(topology, found)
    stay = [domain for number, domain in enumerate(found) if number not in leave]
    after = seat(topology, stay, standing(found, before, moves))
    same_width = [d for d in stay if before.gang_domains == after.gang_domains]
    changed = sum(a != b for d in same_width for a, b in zip(cpus(before, d), cpus(after, d), strict=True))
    assert after.moved <= moves
    assert not same_width or changed == after.moved
    again = seat(topology, stay, standing(stay, after, 0))
    assert [cpus(again, d) for d in stay] == [cpus(after, d) for d in stay]
