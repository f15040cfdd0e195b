# SPDX-License-Identifier: Apache-2.0
"""Check where gangs go, on hosts of real shapes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import guest, host
from gangd.model.columns import caches
from gangd.model.domain import Domain, Vcpu
from gangd.model.moves import Moves
from gangd.model.placement import Seating, Standing, Strategy
from gangd.model.plan import Plan
from gangd.model.topology import Topology

from .seats import cpus, cpus_of, guests, seat, standing
from .shapes import SHAPES

SIXTEEN = host(cores=16, threads=2)  # core n has CPUs n and n + 16

# ---- newcomers ---------------------------------------------------------------------


def test_siblings_share_a_core() -> None:
    """vCPUs 0 and 1 on one core: no other guest of the turn is on it."""
    assert cpus_of(host(cores=2, threads=2), 2, strategy="pack") == [[0, 2]]


def test_a_pair_of_vcpus_is_never_split_by_an_odd_one() -> None:
    """Whole cores come first, so that a guest that knows of threads is right about them."""
    assert cpus_of(host(cores=4, threads=2), 3, 5) == [[3, 7, 6], [0, 4, 1, 5, 2]]


def test_an_idle_host_gives_each_vcpu_a_core() -> None:
    """While there are as many cores as vCPUs; then cores are filled, or not, as the operator said."""
    assert cpus_of(SIXTEEN, 2) == [[0, 1]]
    assert len({cpu % 16 for place in cpus_of(SIXTEEN, *[2] * 8) for cpu in place}) == 16
    packed = cpus_of(SIXTEEN, *[2] * 9)
    assert packed == [[core, core + 16] for core in range(9)]
    assert cpus_of(SIXTEEN, 2, strategy="pack") == [[0, 16]]
    spread = cpus_of(SIXTEEN, *[2] * 9, strategy="spread")
    assert len({cpu % 16 for place in spread for cpu in place}) == 16


def test_a_guest_wider_than_its_cache_has_cores_uses_them_all(tmp_path: Path) -> None:
    """Each vCPU gets a core while there are any, the others go beside them; the fast cores come first."""
    topology = SHAPES["epyc"].read(tmp_path / "epyc")  # caches of 4 cores: 0-3 and 16-19, ...
    assert cpus_of(topology, 6) == [[0, 16, 1, 17, 2, 3]]
    hybrid = SHAPES["raptor-lake"].read(tmp_path / "hybrid")  # 8 fast cores: 0-1, 2-3, ...; 16-31 small
    assert cpus_of(hybrid, 10) == [[0, 1, 2, 3, 4, 6, 8, 10, 12, 14]]
    assert sorted(cpu for place in cpus_of(hybrid, 4, 4) for cpu in place) == [0, 2, 4, 6, 8, 10, 12, 14]


def test_guests_are_packed_when_the_host_fills_and_spread_when_it_empties() -> None:
    """Placement goes as far as its moves reach; after that a plan changes nothing more."""
    first, more = guests(*[2] * 8), guests(*[2] * 9)
    before = seat(SIXTEEN, first)
    crowded = seat(SIXTEEN, more, standing(first, before, moves=0))
    assert [cpus(crowded, d) for d in first] == [cpus(before, d) for d in first]
    for moves, packed in ((0, 0), (3, 2), (100, 9)):
        after = seat(SIXTEEN, more, standing(more, crowded, moves))
        assert after.moved <= moves
        assert sum(one % 16 == other % 16 for one, other in (cpus(after, d) for d in more)) == packed
    emptied = seat(SIXTEEN, first, standing(first, after, moves=100))
    assert len({cpu % 16 for d in first for cpu in cpus(emptied, d)}) == 16
    assert seat(SIXTEEN, first, standing(first, emptied, moves=100)).moved == 0


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


def test_guests_too_wide_for_any_domain_go_to_different_ones() -> None:
    """A cache has 64 CPUs at most."""
    topology, found = host(packages=2, cores=32, threads=2), guests(80, 80)
    placed = seat(topology, found)
    domains = {one.cache for each in found if isinstance(one := placed.of[each.uuid], Seating)}
    assert len(domains) == 2


@pytest.mark.parametrize(("width", "few"), [(8, 2), (6, 2), (6, 3), (4, 3)])
def test_a_guest_that_takes_turns_has_the_cpus_that_come_back(width: int, few: int) -> None:
    """Also if it still takes turns then."""
    whole, (one,) = host(cores=4, threads=1), guests(width)
    less = Topology(whole.cpus[:few])
    before = seat(less, [one], standing([one], seat(whole, [one])))
    assert len(set(cpus(before, one))) == few
    after = seat(whole, [one], standing([one], before, moves=100))
    assert len(set(cpus(after, one))) == min(width, 4)
    assert cpus(seat(whole, [one], standing([one], after, moves=100)), one) == cpus(after, one)


def test_a_cpu_that_comes_back_moves_no_wide_guest() -> None:
    """Caches may be joined otherwise then: a guest that stands across an old join keeps it."""
    cpus_of_all = host(cores=32, threads=1).cpus
    whole = Topology(tuple(replace(cpu, llc=cpu.core - cpu.core % 8) for cpu in cpus_of_all))
    less, found = Topology(tuple(cpu for cpu in whole.cpus if cpu.id != 3)), guests(16, 4, 8)
    before = seat(less, found)
    after = seat(whole, found, standing(found, before))
    assert [cpus(after, one) for one in found] == [cpus(before, one) for one in found]


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
    plan = Plan(rows=placed.rows)
    assert plan.why(answer.placements[1]) == "core 0, thread 2 of 2; shared in time with 2 other gangs"
    (alone,) = guests(2)
    placed = seat(host(cores=1, threads=2), [alone])
    answer = placed.of[alone.uuid]
    assert isinstance(answer, Seating)
    assert Plan(rows=placed.rows).why(answer.placements[0]) == "core 0, thread 1 of 2; free"


def test_placement_tells_the_domains_that_it_rejected() -> None:
    """The answer has every other cache that could have held the guest, with what spoke against it."""
    topology = host(packages=3, cores=2, threads=1)
    found = guests(2, 2)
    placed = seat(topology, found)
    answer = placed.of[found[1].uuid]
    assert isinstance(answer, Seating)
    assert [(offer.cache, offer.why_not) for offer in answer.rejected] == [
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


def test_moves_count_for_a_minute() -> None:
    moves = Moves(16)
    moves.spend(5, 100.0)
    moves.spend(2, 130.0)
    assert [moves.left(now) for now in (130.0, 159.9, 160.0, 190.0)] == [9, 9, 14, 16]


def test_guests_that_stay_move_only_as_far_as_they_may() -> None:
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
    """The guest on that CPU moves whatever the limit: the kernel has moved it already."""
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
@settings(max_examples=25)
@given(seed=st.integers(0, 10**6))
def test_never_worse_than_nova(name: str, seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Packed one after the other on an empty host, until Nova has no room or a guest spans caches, which Nova
    minds not: as many whole cores, at least."""
    topology = SHAPES[name].read(tmp_path_factory.mktemp(name))
    dice = random.Random(seed)
    found = caches(topology)
    whole = [[c for c in core if c in topology.usable] for core in topology.cores()]
    free = [core for core in whole if core]
    here: list[Domain] = []
    stands = Standing(strategy="pack")
    ours = theirs = 0
    for number in range(1, 20):
        width = dice.randint(1, min(8, max(len(d.cpus) for d in found)))
        taken = nova(free, width)
        if taken is None:
            break
        free = [rest for core in free if (rest := [cpu for cpu in core if cpu not in taken])]
        here.append(guest(f"g{number}", number, width))
        placed = seat(topology, here, stands)
        if not any(set(cpus(placed, here[-1])) <= set(domain.cpus) for domain in found):
            break
        stands = standing(here, placed, strategy="pack")
        ours += pairs(whole, cpus(placed, here[-1]))
        theirs += pairs(whole, taken)
    assert ours >= theirs


@pytest.mark.parametrize("name", SHAPES)
@settings(max_examples=25)
@given(widths=st.lists(st.integers(1, 40), min_size=1, max_size=12))
def test_every_placement_is_lawful(
    name: str, widths: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A usable CPU for each vCPU, all in one cache, and none twice while others are free."""
    topology = SHAPES[name].read(tmp_path_factory.mktemp(name))
    found = guests(*widths)
    placed = seat(topology, found)
    where = {domain.index: set(domain.cpus) for domain in placed.caches}
    assert sum(map(len, where.values())) == len(set().union(*where.values())) == len(topology.usable)
    for domain in found:
        mine, answer = cpus(placed, domain), placed.of[domain.uuid]
        assert isinstance(answer, Seating)
        assert set(mine) <= where[answer.cache] <= topology.usable
        assert len(set(mine)) == min(len(mine), len(where[answer.cache]))


def quality(topology: Topology, found: Sequence[Domain], strategy: Strategy) -> tuple[int, int, int]:
    """Return, for a fresh plan: gangs on the fullest CPU, shared cores, vCPUs on the fullest core."""
    placed = seat(topology, found, Standing(strategy=strategy))
    core_of = {cpu.id: cpu.core for cpu in topology.cpus}
    columns: dict[int, set[str]] = {cpu: set() for cpu in core_of}
    cores: dict[int, list[str]] = {core: [] for core in core_of.values()}
    for domain in found:
        for cpu in cpus(placed, domain):
            columns[cpu].add(domain.uuid)
            cores[core_of[cpu]].append(domain.uuid)
    shared = sum(len(set(there)) > 1 for there in cores.values())
    return max(map(len, columns.values())), shared, max(map(len, cores.values()))


@pytest.mark.parametrize("name", SHAPES)
@settings(max_examples=20)
@given(widths=st.lists(st.integers(1, 12), min_size=1, max_size=30), data=st.data())
def test_auto_is_never_worse_than_packed(
    name: str, widths: list[int], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """By no measure; and the same once there are more vCPUs than cores."""
    topology = SHAPES[name].read(tmp_path_factory.mktemp(name))
    rooms = st.sampled_from([frozenset[int](), *(frozenset(d.cpus) for d in caches(topology))])
    found = [replace(guest, allowed=data.draw(rooms)) for guest in guests(*widths)]
    auto, packed = quality(topology, found, "auto"), quality(topology, found, "pack")
    assert all(ours <= theirs for ours, theirs in zip(auto, packed, strict=True))
    if sum(widths) > len(topology.cores()):
        assert auto == packed


@given(cores=st.integers(1, 16), widths=st.lists(st.integers(1, 6), min_size=1, max_size=12))
def test_on_an_idle_cache_nobody_shares_a_core(cores: int, widths: list[int]) -> None:
    """While the vCPUs are no more than the cores: no placement is better."""
    topology = host(cores=cores, threads=2)
    if sum(widths) <= cores:
        assert quality(topology, guests(*widths), "auto") == (1, 0, 1)


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
    """When guests leave, no more vCPUs move than may; the plan counts them, a second plan moves no guest."""
    found = guests(*widths)
    before = seat(topology, found)
    stay = [domain for number, domain in enumerate(found) if number not in leave]
    after = seat(topology, stay, standing(found, before, moves))
    same_width = [d for d in stay if before.caches == after.caches]
    changed = sum(a != b for d in same_width for a, b in zip(cpus(before, d), cpus(after, d), strict=True))
    assert after.moved <= moves
    assert not same_width or changed == after.moved
    again = seat(topology, stay, standing(stay, after, 0))
    assert [cpus(again, d) for d in stay] == [cpus(after, d) for d in stay]
