# SPDX-License-Identifier: Apache-2.0
"""The offer of one cache, against every other choice there is."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from gangd.model.board import Board
from gangd.model.plan import Cache, Offer


def board(cores: int, threads: int = 2) -> Board:
    """CPUs numbered core by core."""
    cpus = tuple(range(cores * threads))
    return Board(Cache(0, cpus, "", tuple(cpu - cpu % threads for cpu in cpus)))


def offered(place: Board, width: int, allowed: frozenset[int] | None = None) -> tuple[int, ...]:
    """The CPUs offered; there must be some."""
    offer = place.offer(width, allowed)
    assert offer
    return offer.cpus


def filled(place: Board, cpus: tuple[int, ...]) -> int:
    """How many whole cores they are."""
    return sum(set(core) <= set(cpus) for core in place.cores)


@st.composite
def boards(draw: st.DrawFn) -> Board:
    """At most 16 threads, gangs anywhere."""
    threads = draw(st.sampled_from([1, 2, 4]))
    place = board(draw(st.integers(1, 12 // threads)), threads)
    cpus = st.sets(st.sampled_from(place.cache.cpus), min_size=1)
    for number, taken in enumerate(draw(st.lists(cpus, max_size=5))):
        place.take(f"g{number}", taken, whole_cores=draw(st.booleans()))
    return place


def best_of_all(place: Board, width: int) -> tuple[int, int]:
    """The least rows, and with those the most whole cores, over every choice of `width` CPUs."""
    return min(
        (max(len(place.gangs(cpu)) for cpu in cpus), -filled(place, cpus))
        for cpus in combinations(place.cache.cpus, width)
    )


@given(place=boards(), data=st.data())
def test_no_choice_is_better(place: Board, data: st.DataObject) -> None:
    """Fewest rows, then most whole cores: as exhaustive search finds them."""
    width = data.draw(st.integers(1, len(place.cache.cpus)))
    cpus = offered(place, width)
    assert len(set(cpus)) == len(cpus) == width
    found = max(len(place.gangs(cpu)) for cpu in cpus), -filled(place, cpus)
    assert found == best_of_all(place, width)


@given(place=boards(), spread=st.booleans(), data=st.data())
def test_no_choice_is_better_within_limits(place: Board, spread: bool, data: st.DataObject) -> None:
    """Spread or packed, on whatever CPUs are allowed: the least cost that exhaustive search finds."""
    allowed = data.draw(st.sets(st.sampled_from(place.cache.cpus), min_size=1))
    width = data.draw(st.integers(1, len(allowed)))
    offer = place.offer(width, frozenset(allowed), spread=spread)
    assert offer and set(offer.cpus) <= allowed and len(set(offer.cpus)) == width
    choices = combinations(sorted(allowed), width)
    assert offer.cost == min(place.cost(cpus, spread=spread) for cpus in choices)


def test_a_core_for_each_vcpu_while_there_are_idle_ones() -> None:
    """Then both threads of those, then of few others; reasons count what is short."""
    place = board(4)
    place.take("a", (0,))
    assert place.offer(3, spread=True) == Offer(0, 0, 0, 0, 0, 4, 0, (2, 4, 6))
    for width, cpus, why_not in (
        (4, (2, 3, 4, 6), "1 vCPU more than cores"),
        (7, (1, 2, 3, 4, 5, 6, 7), "1 core to be shared with others, 3 vCPUs more than cores"),
    ):
        offer = place.offer(width, spread=True)
        assert offer and (offer.cpus, offer.why_not) == (cpus, why_not)


def test_no_choice_is_better_on_sixteen_threads() -> None:
    """No choice beats the board's on a host that is half full, for every width."""
    place = board(8)
    for gang, cpus in (("a", (0, 1, 2)), ("b", (4,)), ("c", (8, 9, 10, 11)), ("d", (3, 4, 5, 12))):
        place.take(gang, cpus)
    for width in range(1, 17):
        cpus = offered(place, width)
        found = max(len(place.gangs(cpu)) for cpu in cpus), -filled(place, cpus)
        assert found == best_of_all(place, width), width


@given(widths=st.lists(st.sampled_from([1, 2, 4, 8, 16]), max_size=30))
def test_columns_are_nested_or_apart(widths: list[int]) -> None:
    """Gangs as wide as a power of two never overlap in part, so that rows have no holes."""
    place = board(16, 1)
    taken: list[set[int]] = []
    for number, width in enumerate(sorted(widths, reverse=True)):
        cpus = offered(place, width)
        place.take(f"g{number}", cpus)
        for other in taken:
            assert not other & set(cpus) or other <= set(cpus) or set(cpus) <= other
        taken.append(set(cpus))


@given(widths=st.lists(st.sampled_from([1, 2, 4, 8, 16]), min_size=1, max_size=30))
def test_powers_of_two_waste_no_row(widths: list[int]) -> None:
    """Widths that are powers of two take as many rows as their columns need, and no more."""
    place = board(16, 1)
    for number, width in enumerate(sorted(widths, reverse=True)):
        place.take(f"g{number}", offered(place, width))
    rows = max(len(place.gangs(cpu)) for cpu in place.cache.cpus)
    assert rows == -(-sum(widths) // 16)


def test_the_hole_that_fits_best_is_taken() -> None:
    """A small guest goes where a small one left, and a large block stays whole."""
    place = board(8, 1)
    place.take("a", (0, 1))
    assert offered(place, 2) == (2, 3)
    assert offered(place, 4) == (4, 5, 6, 7)


def test_the_odd_vcpu_goes_where_one_thread_is_left() -> None:
    """No second core is broken."""
    place = board(4)
    place.take("a", (0, 1, 2))
    assert offered(place, 3) == (4, 5, 3)
    assert offered(place, 1) == (3,)


def test_a_strict_gang_leaves_no_thread() -> None:
    """A strict gang's last core is taken whole."""
    place = board(2)
    place.take("a", (0,), whole_cores=True)
    assert offered(place, 1) == (2,)


def test_a_gang_that_leaves_makes_room() -> None:
    """The CPUs of the other gang stay taken."""
    place = board(2, 1)
    place.take("a", (0,))
    place.take("b", (0, 1))
    place.leave("b")
    assert (place.gangs(0), place.gangs(1)) == ({"a"}, frozenset())
    assert offered(place, 1) == (1,)


def test_only_allowed_cpus_are_offered() -> None:
    """The board offers allowed CPUs alone, and none if they are too few."""
    place = board(4)
    assert set(offered(place, 2, frozenset({3, 4, 5}))) == {4, 5}
    assert place.offer(3, frozenset({3, 4})) is None
    assert place.offer(9) is None and place.offer(0) is None


def test_reasons_against_an_offer() -> None:
    """Numbers with their words."""
    place = board(2)
    place.take("a", (0, 2))
    texts = [offer.why_not for width in (2, 3, 4) if (offer := place.offer(width))]
    assert texts == [
        "1 core to be shared with others",
        "1 gang there already",
        "1 gang there already",
    ]
    alone = board(2).offer(2)
    assert alone
    assert alone.why_not == "leaves 2 CPUs unused beside it"
