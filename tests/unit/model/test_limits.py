# SPDX-License-Identifier: Apache-2.0
"""Check where gangs and their helpers go when an operator limits or pins them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path

import pytest

from fakes import host
from gangd.model.domain import Helper
from gangd.model.placement import Seating, Standing
from gangd.model.plan import HelperPlace

from .seats import cpus, guests, pinned, seat, standing
from .shapes import SHAPES

SIXTEEN = host(cores=16, threads=2)  # core n has CPUs n and n + 16


def test_pins_by_hand_are_left_alone() -> None:
    """vCPUs pinned to one CPU each stay there, and other guests go elsewhere. The reason says so."""
    topology = host(cores=4, threads=1)
    free, hand = guests(2, 2)
    hand = pinned(hand, {1}, {0})
    placed = seat(topology, [free, hand])
    assert (cpus(placed, hand), cpus(placed, free)) == ([1, 0], [2, 3])
    answer = placed.of[hand.uuid]
    assert isinstance(answer, Seating)
    assert answer.placements[0].reason == "core 1; pinned by hand to 1"


def test_a_cpuset_by_hand_is_a_limit() -> None:
    """Different CPUs out of it; a vCPU that is not limited goes anywhere beside them."""
    topology = host(cores=4, threads=1)
    (hand,) = guests(3)
    hand = pinned(hand, {2, 3}, {2}, {0, 1, 2, 3})
    assert cpus(seat(topology, [hand]), hand)[:2] == [3, 2]
    assert len(set(cpus(seat(topology, [hand]), hand))) == 3


def test_a_wide_cpuset_is_a_limit_and_no_pin() -> None:
    """A guest in a cpuset of libvirt's or the cgroup's is packed, spread and moved as any other within it."""
    beyond = frozenset({*range(8, 16), *range(24, 32)})
    one, two = guests(2, 2)
    for limited in (pinned(one, set(beyond), set(beyond)), replace(one, allowed=beyond)):
        assert cpus(seat(SIXTEEN, [limited]), limited) == [8, 9]
        packed = seat(SIXTEEN, [two, limited], Standing(strategy="pack"))
        assert (cpus(packed, limited), cpus(packed, two)) == ([8, 24], [0, 16])
        answer = packed.of[one.uuid]
        assert isinstance(answer, Seating)
        assert answer.placements[0].reason == "core 8, thread 1 of 2; it may use CPUs 8-15,24-31"
        moved = seat(SIXTEEN, [limited], standing([two, limited], packed, moves=1))
        assert (cpus(moved, limited), moved.moved) == ([8, 9], 1)
    by_hand = pinned(one, {8, 24}, {8, 24})
    assert set(cpus(seat(SIXTEEN, [by_hand]), by_hand)) == {8, 24}


def test_a_limit_is_kept_whatever_it_costs() -> None:
    """A guest placed elsewhere moves; one with too few CPUs takes turns; one with none is refused."""
    (one,) = guests(3)
    before = seat(SIXTEEN, [one])
    narrow = replace(one, allowed=frozenset({4, 5}))
    assert cpus(seat(SIXTEEN, [narrow], standing([one], before)), one) == [4, 5, 4]
    nowhere = replace(one, allowed=frozenset({40}))
    assert seat(SIXTEEN, [nowhere]).of[one.uuid] == (
        "no CPU that it is limited to is free for gangs: CPU 40 is not online"
    )
    against = replace(pinned(one, {1}, {2}, {3}), allowed=frozenset({2, 3}))
    assert seat(SIXTEEN, [against]).of[one.uuid] == (
        "its vCPUs are pinned by hand to CPUs 1-3, and its cgroup has only CPUs 2-3 for gangs"
    )


def crowding(sets: Sequence[Sequence[int]]) -> tuple[int, int, int]:
    """Return, for guests on these CPUs of a host with four cores (n and n + 4): gangs on the fullest CPU,
    cores that guests share, vCPUs beside another one of their guest."""
    columns = Counter(cpu for found in sets for cpu in found)
    cores = Counter(core for found in sets for core in {cpu % 4 for cpu in found})
    paired = sum(len(found) - len({cpu % 4 for cpu in found}) for found in sets)
    return max(columns.values()), sum(count > 1 for count in cores.values()), paired


@pytest.mark.parametrize("widths", [(1,), (2,), (1, 1), (1, 2), (2, 2), (1, 1, 1), (1, 1, 2)])
def test_no_placement_is_better_within_limits(widths: tuple[int, ...]) -> None:
    """Exhaustive search over all guests at once finds none, each limited to some whole cores."""
    topology = host(cores=4, threads=2)
    for rooms in product(
        (frozenset(range(8)), frozenset({0, 1, 4, 5}), frozenset({2, 6})), repeat=len(widths)
    ):
        limited = zip(guests(*widths), rooms, strict=True)
        found = [replace(guest, allowed=room) for guest, room in limited]
        placed = seat(topology, found)
        every = [combinations(sorted(room), width) for width, room in zip(widths, rooms, strict=True)]
        best = min(crowding(choice) for choice in product(*every))
        ours = crowding([cpus(placed, domain) for domain in found])
        assert ours == best, (rooms, ours, best)


def test_the_guest_with_the_least_choice_is_placed_first() -> None:
    """A guest that may be anywhere leaves them their CPUs, though it is wider."""
    topology = host(packages=2, cores=2, threads=1)
    anywhere, first, second = guests(2, 1, 1)
    limited = [replace(guest, allowed=frozenset({0, 1})) for guest in (first, second)]
    placed = seat(topology, [anywhere, *limited])
    assert sorted(cpus(placed, first) + cpus(placed, second)) == [0, 1]
    assert cpus(placed, anywhere) == [2, 3]


SETS = [
    # caches, CPUs of each; vCPUs; their cpuset -> how many vCPUs on a CPU, at most
    (1, 8, 8, 4, 2),
    (1, 8, 7, 3, 3),
    (2, 8, 24, 2, 12),
    (2, 8, 12, 12, 1),
    (2, 4, 4, 6, 1),
]


@pytest.mark.parametrize(("caches", "cores", "width", "wide", "most"), SETS)
def test_a_cpuset_with_few_cpus_is_shared_evenly(
    caches: int, cores: int, width: int, wide: int, most: int
) -> None:
    """vCPUs share the CPUs evenly: they all take turns, or caches are joined so that each has a CPU."""
    (hand,) = guests(width)
    hand = pinned(hand, *[set(range(wide))] * width)
    topology = host(packages=caches, cores=cores, threads=1)
    assert max(Counter(cpus(seat(topology, [hand]), hand)).values()) == most


def test_cores_that_are_kept_from_guests_are_no_room() -> None:
    """`auto` spreads guests while there are as many cores as vCPUs: of those that guests may use."""
    room = frozenset([*range(2, 8), *range(10, 16)])
    topology = replace(host(cores=8, threads=2), guests=room)
    found = [replace(guest, allowed=room) for guest in guests(2, 2, 2, 2)]
    before = seat(topology, found[:1])
    for many in (2, 3, 4, 4):
        before = seat(topology, found[:many], standing(found[: many - 1], before, moves=100))
    cores = [{cpu % 8 for cpu in cpus(before, guest)} for guest in found]
    assert sum(map(len, cores)) == 4 and len(set().union(*cores)) == 4


def test_two_vcpus_by_hand_on_one_cpu_take_turns() -> None:
    """Two vCPUs pinned to one CPU take turns there, as the operator said."""
    (hand,) = guests(2)
    hand = pinned(hand, {1}, {1})
    assert cpus(seat(host(cores=2, threads=1), [hand]), hand) == [1, 1]


def test_pins_across_caches_make_one_domain(tmp_path: Path) -> None:
    """A gang never spans two; where a CPU is nobody's to have, the refusal names it."""
    (hand,) = guests(2)
    hand = pinned(hand, {0}, {4})
    placed = seat(SHAPES["epyc"].read(tmp_path / "epyc"), [hand])
    assert cpus(placed, hand) == [0, 4]
    assert len(placed.caches[0].cpus) == 16
    apart = pinned(hand, {0}, {2})
    assert seat(SHAPES["isolcpus"].read(tmp_path / "isolcpus"), [apart]).of[hand.uuid] == (
        "its vCPUs are pinned by hand to CPUs 0,2, and CPU 2 is isolated (isolcpus=)"
    )


def test_helpers_go_off_the_gangs_cpus() -> None:
    """Unless an operator pinned them, or the gang is everywhere."""
    helpers = (Helper("emulator"), Helper("iothread/1", frozenset({0})))
    (one,) = guests(2)
    one = replace(one, helpers=helpers)
    answer = seat(host(cores=4, threads=1), [one]).of[one.uuid]
    assert isinstance(answer, Seating)
    assert answer.helpers == (HelperPlace("emulator", frozenset({2, 3}), "off the CPUs of the gang"),)
    answer = seat(host(cores=2, threads=1), [one]).of[one.uuid]
    assert isinstance(answer, Seating)
    assert answer.helpers == ()


def test_helpers_stay_on_the_node_of_their_guest(tmp_path: Path) -> None:
    """Helpers stay on the node where the cgroup lets them; elsewhere only if the gang has the whole node."""
    topology = SHAPES["snc-2"].read(tmp_path)
    nodes = [{cpu.id for cpu in topology.cpus if cpu.node == node} for node in range(4)]
    for width, where in ((4, nodes[0]), (24, topology.usable)):
        (one,) = guests(width)
        one = replace(one, helpers=(Helper("emulator", topology.usable),))
        placed = seat(topology, [one])
        answer = placed.of[one.uuid]
        assert isinstance(answer, Seating)
        (helper,) = answer.helpers
        assert helper.cpus == where - set(cpus(placed, one))
        assert helper.reason.endswith("on its node") == (width == 4)
    limited = replace(one, vcpus=one.vcpus[:2], allowed=frozenset({0, 1, 2, 30}))
    answer = seat(topology, [limited]).of[one.uuid]
    assert isinstance(answer, Seating)
    assert [helper.cpus for helper in answer.helpers] == [frozenset({2})]
