# SPDX-License-Identifier: Apache-2.0
"""No CPU has two gangs while a newcomer finds as many that have none: on hosts whose caches are smaller than
guests, whose cores differ, and whose guests are limited. Hosts and guests are made in the manner of people's
reports."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangd.model.columns import CACHE_CPUS
from gangd.model.cpulist import parse_cpulist
from gangd.model.domain import Domain
from gangd.model.placement import Request, Seating, Seatings, Standing, place
from gangd.model.topology import Cpu, Topology

from .seats import cpus, guests, pinned, seat, standing


def machine(cores: int, threads: int = 1, cache: int = 0, node: int = 0) -> Topology:
    """Return so many cores (n has the CPUs n, n + cores, ...), `cache` of them on a last-level cache, `node`
    on a node; 0: all."""
    return Topology(
        tuple(
            Cpu(n, core, core - core % (cache or cores), package := core // (node or cores), package)
            for n in range(cores * threads)
            for core in [n % cores]
        )
    )


def crowd(placed: Seatings, found: Sequence[Domain]) -> Counter[int]:
    """By CPU, how many vCPUs have it."""
    return Counter(cpu for domain in found for cpu in cpus(placed, domain))


def one_by_one(topology: Topology, found: Sequence[Domain]) -> Seatings:
    """Placed in this order; nobody moves for who comes later."""
    placed = seat(topology, found[:1])
    for count in range(2, len(found) + 1):
        here, before = found[:count], placed
        placed = seat(topology, here, standing(here[:-1], before))
        stayed = here[:-1]
        assert [cpus(placed, one) for one in stayed] == [cpus(before, one) for one in stayed]
    return placed


WIDE = {
    # cores, threads, cores of a cache, cores of a node; vCPUs of the guests
    "EPYC 7302, guests of 16": ((32, 2, 4, 32), [16] * 4),
    "EPYC without SMT": ((32, 1, 4, 32), [6] * 5),
    "widths of all sorts": ((32, 1, 4, 32), [6, 5, 7, 3, 9, 2]),
    "Denverton": ((16, 1, 2, 16), [4] * 4),
    "E-cores in fours": ((16, 1, 4, 16), [6, 6, 4]),
    "two sockets of SNC-2": ((48, 2, 24, 12), [30, 30]),
    "four sockets": ((64, 2, 16, 16), [40, 40]),
    "a VM with sockets of two threads": ((8, 2, 1, 1), [4, 4, 6]),
    "POWER9": ((8, 4, 2, 4), [12, 12, 8]),
    "guests wider than a node, which cannot be one with another": ((40, 2, 20, 20), [50, 20]),
    "1,024 CPUs, guests of 24": ((512, 2, 8, 128), [24] * 42),
}


@pytest.mark.parametrize("name", WIDE)
def test_guests_that_fit_beside_each_other_are_beside_each_other(name: str) -> None:
    """At once and one by one, over neighbouring caches where one is too small."""
    shape, widths = WIDE[name]
    topology, found = machine(*shape), guests(*widths)
    assert max(crowd(seat(topology, found), found).values()) == 1
    assert max(crowd(one_by_one(topology, found), found).values()) == 1


def test_guests_that_do_not_fit_are_spread_evenly() -> None:
    """A hundred guests of 24 on 1,024 CPUs: the fullest CPU has one gang more than the emptiest must have."""
    topology, found = machine(512, 2, 8, 128), guests(*[24] * 100)
    for placed in (seat(topology, found), one_by_one(topology, found)):
        assert max(crowd(placed, found).values()) <= 100 * 24 // 1024 + 1


def test_a_guest_that_its_scheduler_moves_joins_no_domains_while_one_is_wide_enough() -> None:
    """The scheduler has such a guest in one cache: seats over several would say nothing of where it
    runs. Guests are spread evenly instead; one that is wider than any has several."""
    topology, found = machine(16, 1, 4), guests(*[3] * 8)
    placed = place([Request(one, roams=True) for one in found], topology)
    caches = [{cpu // 4 for cpu in cpus(placed, one)} for one in found]
    assert Counter(cache for some in caches for cache in some) == dict.fromkeys(range(4), 2)
    (wide,) = guests(6)
    assert len(set(cpus(place([Request(wide, roams=True)], topology), wide))) == 6


def test_a_room_is_shared_as_a_host_is() -> None:
    """AllowedCPUs= of a slice with all guests in it, who are wider than a cache."""
    room = frozenset(range(4, 32))
    topology = replace(machine(32, 1, 4), guests=room)
    found = [replace(one, allowed=room) for one in guests(6, 6, 6, 6)]
    for placed in (seat(topology, found), one_by_one(topology, found)):
        there = crowd(placed, found)
        assert max(there.values()) == 1 and set(there) <= room


PARTLY = {
    # cores, threads, cores of a cache; CPUs by vCPU, "" = not pinned; the CPUs of the free ones
    "hotplugged": ((16, 1, 4), ["0", "1", "2", "3", "", "", "", ""], {4, 5, 6, 7}),
    "on SMT": ((32, 2, 4), ["0", "32", "1", "33", *[""] * 8], {2, 3, 34, 35, *range(4, 8)}),
    "one pin": ((16, 1, 4), ["0", *[""] * 5], {1, 2, 3, 4, 5}),
    "a pin in the middle": ((16, 1, 4), ["9", "", ""], {8, 10}),
    "two nodes": ((40, 2, 20, 20), [*["0-19,40-59"] * 4, *["20-39,60-79"] * 4], {*range(4), *range(20, 24)}),
    "two small nodes": ((32, 2, 16, 16), [*["0-15,32-47"] * 4, *["16-31,48-63"] * 4],
                        {*range(4), *range(16, 20)}),
    "two nodes of many caches": ((128, 2, 8, 64), [*["0-63,128-191"] * 4, *["64-127,192-255"] * 4],
                                 {*range(4), *range(64, 68)}),
}  # fmt: skip


@pytest.mark.parametrize("name", PARTLY)
def test_each_vcpu_has_a_cpu_where_some_are_pinned(name: str) -> None:
    """Pins are kept; the others go beside them, to a core of their own while the cache has one. With a
    place it stays, and a newcomer goes elsewhere."""
    shape, pins, free = PARTLY[name]
    topology, (one, other) = machine(*shape), guests(len(pins), 4)
    one = pinned(one, *[set(parse_cpulist(pin)) for pin in pins])
    placed = seat(topology, [one])
    mine = cpus(placed, one)
    assert all(cpu in parse_cpulist(pin) for cpu, pin in zip(mine, pins, strict=True) if pin)
    assert {cpu for cpu, pin in zip(mine, pins, strict=True) if "," in pin or "-" in pin or not pin} == free
    assert len(set(mine)) == len(pins)
    both = [one, other]
    after = seat(topology, both, standing([one], placed))
    assert cpus(after, one) == mine
    assert max(crowd(after, both).values()) == 1


KINDS = {
    # by CPU: its kind; vCPUs of the guests; the CPUs that they have in all
    "Orion O6": (["capacity 1024"] * 8 + ["capacity 380"] * 4, [6], set(range(6))),
    "all of the fast ones": (["capacity 1024"] * 8 + ["capacity 380"] * 4, [8], set(range(8))),
    "none has room": (["capacity 380"] * 4 + ["capacity 1024"] * 8, [10], {*range(4, 12), 0, 1}),
    "one after another": (["core"] * 8 + ["atom"] * 8, [6, 6, 4], set(range(16))),
}


@pytest.mark.parametrize("name", KINDS)
def test_kinds_of_cores_are_one_where_none_has_room(name: str) -> None:
    """A guest has fast cores while enough idle, and all of them before it has a slow one."""
    kinds, widths, theirs = KINDS[name]
    whole = machine(len(kinds))
    topology = Topology(tuple(replace(cpu, kind=kind) for cpu, kind in zip(whole.cpus, kinds, strict=True)))
    found = guests(*widths)
    assert set(crowd(seat(topology, found), found)) == theirs


def test_fast_cores_beside_a_guest_that_spans_kinds_are_not_lost() -> None:
    """A guest pinned over P and E cores makes both one domain; the next one has the P cores that idle."""
    cores = [cpu // 2 * 2 if cpu < 16 else cpu for cpu in range(32)]
    topology = Topology(
        tuple(Cpu(cpu, core, 0, 0, 0, 0, "core" if cpu < 16 else "atom") for cpu, core in enumerate(cores))
    )
    across, free = guests(12, 8)
    across = pinned(across, *[{cpu} for cpu in range(8, 20)])
    assert set(cpus(seat(topology, [across, free]), free)) == set(range(8))


APART = {
    # CPUs that are set apart, of machine.slice; of a guest: CPUs that its cgroup allows, and where it sits
    "a partition": ("8-15", "", "8-15", "8-15"),
    "a nested one": ("9-10", "2-8,11-15", "9-10", "9-10"),
    "an exclusive set, and all else": ("2-7", "", "2-7", "2-7"),
    "cset shield": ("0-15", "", "2-15", "2-15"),
}


@pytest.mark.parametrize("name", APART)
def test_a_guest_in_a_cpuset_apart_uses_its_cpus(name: str) -> None:
    """A guest inside has its CPUs; a guest outside has none of them, or is told which cpuset has them."""
    taken, theirs, allowed, room = map(parse_cpulist, APART[name])
    topology = replace(machine(16), taken=taken, guests=theirs)
    inside, outside = guests(2, 2)
    inside = replace(inside, allowed=allowed)
    placed = seat(topology, [inside, outside])
    assert set(cpus(placed, inside)) <= room
    answer = placed.of[outside.uuid]
    if isinstance(answer, Seating):
        assert taken.isdisjoint(cpus(placed, outside))
    else:
        assert topology.usable == frozenset()
    alone = pinned(replace(outside, allowed=frozenset()), {min(taken)}, {max(taken)})
    assert "set apart in a cpuset of others" in str(seat(topology, [alone]).of[alone.uuid])


HOSTS = st.builds(
    lambda caches, cache, threads: machine(caches * cache, threads, cache, caches // 2 * cache or cache),
    caches=st.integers(1, 6), cache=st.integers(1, 5), threads=st.integers(1, 2),
)  # fmt: skip


def never_crowded(topology: Topology, seed: int) -> None:
    """Draw guests, some limited to a room that they share, and place them."""
    dice = random.Random(seed)
    room = frozenset(dice.sample(topology.ids, dice.randint(1, len(topology.ids))))
    widths = [dice.randint(1, len(topology.ids)) for _ in range(dice.randint(1, 6))]
    found = [replace(one, allowed=dice.choice([frozenset(), room])) for one in guests(*widths)]
    have: Counter[int] = Counter()
    before = Standing()
    for count, domain in enumerate(found, 1):
        space = sorted(domain.allowed or topology.ids)
        idle = sum(not have[cpu] for cpu in space)
        placed = seat(topology, found[:count], before)
        mine = cpus(placed, domain)
        if idle >= len(mine):
            assert not any(have[cpu] for cpu in mine) and len(set(mine)) == len(mine)
        have.update(set(mine))
        before = standing(found[:count], placed)
    if sum(len(domain.vcpus) for domain in found) <= min(len(room), CACHE_CPUS):
        assert max(crowd(seat(topology, found), found).values()) == 1


@settings(max_examples=300)
@given(topology=HOSTS, seed=st.integers(0, 10**9))
def test_no_guest_is_crowded_while_cpus_idle(topology: Topology, seed: int) -> None:
    """Random hosts have random guests, which come one by one and at once."""
    never_crowded(topology, seed)


@pytest.mark.long
@settings(max_examples=10_000, deadline=None)
@given(topology=HOSTS, seed=st.integers(0, 10**9))
def test_no_guest_is_crowded_on_ten_thousand_hosts(topology: Topology, seed: int) -> None:
    """No guest is crowded on many more hosts."""
    never_crowded(topology, seed)
