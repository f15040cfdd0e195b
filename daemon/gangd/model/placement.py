# SPDX-License-Identifier: Apache-2.0
"""Choose where the vCPUs of all gangs go, given where they are. Pure.

In this order: guests that an operator pinned, which are taken as they are; guests that have their
place, which keep it; newcomers, those with the fewest CPUs to choose from first, then the widest, packed;
newcomers again, spread, while there are cores for all; and then, as far as `moves` reaches, those that
would have it better elsewhere now. What is better is the board's business (board.py). A guest that finds
CPUs that fewer gangs have only in several caches makes them one (columns.py).

A pin by hand names CPUs for some vCPUs; the others go beside those. A wider cpuset, equal for all vCPUs, is
a limit, as what the guest's cgroup allows: within it the guest is placed as any other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cache
from heapq import merge
from itertools import cycle, islice
from typing import Literal

from gangd.model.board import Board
from gangd.model.columns import CACHE_CPUS, Columns
from gangd.model.cpulist import format_cpulist
from gangd.model.domain import Domain, Vcpu
from gangd.model.matching import match
from gangd.model.plan import Basis, Cache, GangPlan, HelperPlace, Offer, Placement, Plan
from gangd.model.runs import Runs
from gangd.model.topology import Topology

Strategy = Literal["auto", "pack", "spread"]
OWN_CORES = (0, 1, 0)  # less is the Offer.cost of CPUs on whose cores nobody else is
REJECTED = 3  # offers that are remembered beside the one taken


@dataclass(frozen=True)
class Request:
    """A guest to be placed. whole_cores: nobody else may run on its cores in its turns. roams: its scheduler
    moves it, and nobody else has to."""

    domain: Domain
    whole_cores: bool = False
    roams: bool = False


@dataclass(frozen=True)
class Standing:
    """The state that a placement starts from, and its settings.

    plan: the last one. moves: the number of vCPUs that may be moved now, of guests that have
    a place. roams: the scheduler of gangs chooses CPUs for their members. strategy: guests
    fill whole cores (pack) or have a core for each vCPU while cores idle (spread); auto: they are spread
    while there are as many cores as vCPUs. paused: UUIDs of the guests that are paused for long (pauses.py).
    """

    plan: Plan = Plan()
    moves: int = 0
    roams: bool = False
    strategy: Strategy = "auto"
    paused: Set[str] = frozenset()


@dataclass(frozen=True)
class Seating:
    """The place of one guest; cache: None = it needs none. rejected: the best of the others."""

    cache: int | None
    placements: tuple[Placement, ...]
    rejected: tuple[Offer, ...] = ()
    helpers: tuple[HelperPlace, ...] = ()
    basis: Basis | None = None


@dataclass(frozen=True)
class Seatings:
    """By UUID: a place, or in one sentence why there is none. moved: vCPUs that have to leave theirs. rows:
    by CPU, how many gangs have it."""

    caches: tuple[Cache, ...]
    of: Mapping[str, Seating | str]
    moved: int = 0
    rows: Mapping[int, int] = field(default_factory=dict)


def place(requests: Sequence[Request], topology: Topology, standing: Standing | None = None) -> Seatings:
    """A place for every guest that can have one. Costs O(guests x (caches + cores of one))."""
    return _Hall(requests, topology, standing or Standing()).seat()


@dataclass
class _Guest:
    """A guest on its way to a place. hand: by vCPU where an operator wants it, None = anywhere.
    room: the CPUs that all of its vCPUs may have, None = all. last: its last plan. same: as long as that
    place is there it is good."""

    request: Request
    hand: tuple[frozenset[int] | None, ...]
    room: frozenset[int] | None = None
    last: GangPlan | None = None
    same: Basis | None = None
    cpus: tuple[int, ...] = ()
    board: Board | None = None
    rejected: tuple[Offer, ...] = ()
    refusal: str = ""

    @property
    def uuid(self) -> str:
        return self.request.domain.uuid

    @property
    def vcpus(self) -> tuple[Vcpu, ...]:
        return self.request.domain.vcpus

    @property
    def width(self) -> int:
        return len(self.vcpus)

    @property
    def by_hand(self) -> bool:
        """True if the guest's vCPUs are pinned one by one, or to no more CPUs than they are."""
        return any(self.hand) and (len(set(self.hand)) > 1 or len(self.hand[0] or ()) <= self.width)

    def space(self, board: Board) -> tuple[int, ...]:
        """The board's CPUs that are its to have."""
        if self.room is None:
            return board.cache.cpus
        return tuple(cpu for cpu in board.cache.cpus if cpu in self.room)

    def sit(self, board: Board, cpus: Sequence[int]) -> None:
        self.board, self.cpus = board, tuple(cpus)
        board.take(self.uuid, cpus, self.request.whole_cores)


class _Hall:
    """All boards while one plan is made."""

    def __init__(self, requests: Sequence[Request], topology: Topology, standing: Standing) -> None:
        self._topology = topology
        self._standing = standing
        self._moves = standing.moves
        self._moved = 0
        # Thousands of vCPUs have few affinities: sets of a large host's CPUs are compared once.
        self._hand, self._near = cache(self._hand_of), cache(self._near_to)
        self._within = cache(topology.room)
        self._guests = [self._guest(request) for request in requests]
        self._rooms = {guest.room for guest in self._guests if guest.room and not guest.by_hand}
        self._cpus = {cpu.id: cpu for cpu in topology.cpus}
        self._gangs = defaultdict[int, set[str]](set)  # by CPU
        apart = _union(guest.room for guest in self._guests) - topology.usable
        for guest in self._guests if apart else ():
            guest.room = self._room(guest)  # CPUs that are set apart are no longer none of the boards'
        self._columns = Columns(topology, apart)
        self._stood = {guest.uuid: cpus for guest in self._guests if (cpus := self._standing_on(guest))}
        stand = defaultdict[int, set[str]](set)
        for uuid, cpus in self._stood.items():
            for cpu in cpus:
                stand[cpu].add(uuid)
        for cpus in self._stood.values():
            self._columns.join(cpus, stand)
        self._set_boards()
        self._reasons: dict[int, dict[int, str]] = {}  # by cache, and by CPU
        ours = topology.guests or topology.usable
        cores = sum(not ours.isdisjoint(core) for board in self._boards for core in board.cores)
        vcpus = sum(guest.width for guest in self._guests)
        self._spreads = standing.strategy == "spread" or (standing.strategy == "auto" and vcpus <= cores)

    def seat(self) -> Seatings:
        """Everybody, in the order of this file's header."""
        stay = {guest.uuid for guest in self._guests if self._keep(guest)}
        kept = [one for one in self._guests if one.uuid in stay and not (one.by_hand or one.request.roams)]
        for guest in self._guests:
            if guest.by_hand and guest.uuid not in stay:
                self._seat_by_hand(guest)
        free = [guest for guest in self._guests if not guest.by_hand and not guest.board]
        free.sort(key=lambda guest: (len(self._room(guest)), -guest.width))
        for guest in free:
            self._seat(guest)
        spread = [guest for guest in free if self._spreads and guest.board and not guest.request.roams]
        while sum(self._improve(guest, guest.width, OWN_CORES) for guest in spread):
            pass  # who moved made room for others, and took none: each round costs somebody less
        for guest in kept:
            if self._moves > 0:
                steps = self._improve(guest, self._moves)
                self._moves -= steps
                self._moved += steps
        return Seatings(
            tuple(board.cache for board in self._boards),
            {guest.uuid: self._seating(guest) for guest in self._guests},
            self._moved,
            {cpu: len(board.gangs(cpu)) for cpu, board in self._board_of.items()},
        )

    def _set_boards(self) -> None:
        """Make a board for each cache as they are now."""
        self._boards = [Board(cache, self._gangs) for cache in self._columns.caches()]
        self._board_of = {cpu: board for board in self._boards for cpu in board.cache.cpus}
        for guest in self._guests:
            guest.board = self._board_of[guest.cpus[0]] if guest.cpus else None
        self._runs = Runs(self._boards, self._cpus)

    def _sit(self, guest: _Guest, cpus: Sequence[int]) -> bool:
        """Give a guest these CPUs; False: no cache can have all of them."""
        if len({id(self._board_of[cpu]) for cpu in cpus}) > 1:
            if not self._columns.join(cpus, self._gangs):
                return False
            self._set_boards()
        guest.sit(self._board_of[cpus[0]], cpus)
        return True

    def _room(self, guest: _Guest) -> frozenset[int]:
        """The CPUs that a guest may have."""
        return self._topology.usable if guest.room is None else guest.room

    # ---- what an operator said ---------------------------------------------------

    def _guest(self, request: Request) -> _Guest:
        domain = request.domain
        last = self._standing.plan.gang(domain.uuid)
        if last and last.basis and last.basis.is_of(domain, self._topology):
            return _Guest(request, last.basis.hand, last.basis.room, last=last, same=last.basis)
        room = self._within(domain.allowed)
        hand = tuple(self._hand(vcpu.affinity, room) for vcpu in domain.vcpus)
        guest = _Guest(request, hand, last=last)
        limits = [room, *([hand[0]] if hand[0] and not guest.by_hand else [])]
        if (limited := frozenset.intersection(*limits)) != self._topology.usable:
            guest.room = limited
        return guest

    def _hand_of(self, cpus: frozenset[int], room: frozenset[int]) -> frozenset[int] | None:
        """Return where an operator wants a thread; None if it may use all CPUs of its `room`."""
        return None if not cpus or (room and cpus >= room) else cpus

    def _seat_by_hand(self, guest: _Guest) -> None:
        """Seat each vCPU on a CPU that it may use, several vCPUs on one only if need be."""
        room = self._room(guest)
        rank = self._ranked(guest, room)
        best = match(guest.hand, room, rank)
        if best is None:
            guest.refusal = self._nomatch(guest, room)
            return
        found = [(board, cpus) for board in self._boards
                 if (cpus := match(guest.hand, room.intersection(board.cache.cpus), rank))]  # fmt: skip
        found.sort(key=lambda one: (-len(set(one[1])), _crowd(*one), one[0].cache.index))
        if found and len(set(found[0][1])) == len(set(best)):
            self._sit(guest, found[0][1])
        elif not self._sit(guest, best) and not (found and self._sit(guest, found[0][1])):
            pins = f"its vCPUs are pinned by hand to {_named(_union(guest.hand))}"
            guest.refusal = f"{pins}, which no cache can span"

    def _nomatch(self, guest: _Guest, room: frozenset[int]) -> str:
        """The sentence on a vCPU that is pinned by hand to CPUs that it cannot have."""
        wanted = _union(guest.hand)
        said = self._lost(wanted)
        if not said or not wanted & self._topology.usable <= room:
            said.append(f"its cgroup has only {_named(room)} for gangs")
        return f"its vCPUs are pinned by hand to {_named(wanted)}, and {' and '.join(said)}"

    def _lost(self, wanted: frozenset[int]) -> list[str]:
        """Why gangs cannot have these CPUs."""
        host = self._topology
        lost = [(wanted & host.isolated, "isolated (isolcpus=)"),
                (wanted & host.taken, "set apart in a cpuset of others"),
                (wanted.difference(host.ids), "not online")]  # fmt: skip
        return [f"{_named(cpus)} {'is' if len(cpus) == 1 else 'are'} {why}" for cpus, why in lost if cpus]

    def _ranked(self, guest: _Guest, room: frozenset[int]) -> dict[int, tuple[int, ...]]:
        """By CPU how good it is for a vCPU, the best is the least: CPUs of few gangs; in the caches of
        the guest's other pins, then on their nodes; a core for each vCPU before other threads of any."""
        pins = _union(hand for hand in guest.hand if hand and len(hand) <= guest.width)
        homes = {id(self._board_of[cpu]) for cpu in pins & room}
        nodes = {self._cpus[cpu].node for cpu in pins & room}
        rank: dict[int, tuple[int, ...]] = {}
        for number, board in enumerate(self._boards):
            for core in board.cores:
                busy = not pins.isdisjoint(core)
                for thread, cpu in enumerate(core):
                    far = id(board) not in homes, self._cpus[cpu].node not in nodes
                    rank[cpu] = (len(self._gangs[cpu]), *far, number, busy, thread)
        return rank

    # ---- everybody else ----------------------------------------------------------

    def _keep(self, guest: _Guest) -> bool:
        """Stay, if all of its CPUs are still there, in one cache, and no operator wants others."""
        cpus = self._stood.get(guest.uuid, ())
        if not cpus or len({id(self._board_of[cpu]) for cpu in cpus}) > 1:
            return False
        different = len(set(cpus))
        if different < guest.width and different < self._most(guest):
            return False  # they take turns, and fewer of them need to
        guest.rejected = guest.last.rejected if guest.last else ()
        guest.sit(self._board_of[cpus[0]], cpus)
        return True

    def _standing_on(self, guest: _Guest) -> tuple[int, ...]:
        """The CPUs that it had, if it may have them; none: it may not, or had no place."""
        if not guest.last or not guest.last.placements:
            return ()
        if guest.same:
            return guest.same.cpus
        before = {place.vcpu: place.cpu for place in guest.last.placements}
        cpus = tuple(before.get(vcpu.index, -1) for vcpu in guest.vcpus)
        if any(hand and cpu not in hand for cpu, hand in zip(cpus, guest.hand, strict=True)):
            return ()
        return cpus if self._room(guest).issuperset(cpus) else ()

    def _most(self, guest: _Guest) -> int:
        """How many CPUs it could have, each for one vCPU."""
        room = self._room(guest)
        if guest.by_hand:
            return len(set(match(guest.hand, room, dict.fromkeys(room, (0,))) or ()))
        return min(guest.width, CACHE_CPUS, len(room))

    def _offers(self, guest: _Guest, *, spread: bool = False) -> list[Offer]:
        """All boards' offers, best first: off the CPUs of guests with less choice, if that costs nothing."""
        found = self._offered(guest.width, guest.room, spread)
        usable = self._room(guest)
        others = _union(room for room in self._rooms if len(room) < len(usable))
        apart = self._offered(guest.width, usable - others, spread) if others else []
        if apart and (apart[0].cost, apart[0].slower) == (found[0].cost, found[0].slower):
            return apart
        return found

    def _offered(self, width: int, room: frozenset[int] | None, spread: bool) -> list[Offer]:
        return sorted(filter(None, (board.offer(width, room, spread=spread) for board in self._boards)))

    def _seat(self, guest: _Guest) -> None:
        """A place in a cache, or over several where fewer gangs are. A guest with more vCPUs than that
        lets them take turns."""
        if not self._boards:
            guest.refusal = "no CPU of the host is free for gangs"
            return
        if not self._most(guest):
            limit = _union(guest.hand) or guest.request.domain.allowed
            why = " and ".join(self._lost(limit)) or f"its cgroup and its pins have none of {_named(limit)}"
            guest.refusal = f"no CPU that it is limited to is free for gangs: {why}"
            return
        offers = self._offers(guest)
        stays = guest.request.roams and offers  # its scheduler has it in one cache
        for wider in () if stays else self._wider(guest, offers[0].rows if offers else None):
            if self._accept(guest, [wider, *offers]):
                return
        if offers:
            self._accept(guest, offers)
            return
        board = max(self._boards, key=lambda one: (len(guest.space(one)), -_crowd(one, guest.space(one))))
        turns = zip(guest.vcpus, cycle(guest.space(board)), strict=False)
        self._sit(guest, [cpu for _, cpu in turns])

    def _accept(self, guest: _Guest, offers: Sequence[Offer]) -> bool:
        """Take the first, and remember the next; False: it cannot be had."""
        turns = zip(guest.vcpus, cycle(offers[0].cpus), strict=False)
        if not self._sit(guest, [cpu for _, cpu in turns]):
            return False
        guest.rejected = tuple(offers[1 : 1 + REJECTED])
        return True

    def _wider(self, guest: _Guest, rows: int | None) -> Iterator[Offer]:
        """Offers of several caches as one, of fewer rows than `rows` (None: than there are), the least
        rows first."""
        if rows == 0:
            return
        width = self._most(guest)
        used = [found for board in self._boards if (found := board.used(guest.room))]
        fewest = next(islice(merge(*used), width - 1, None))
        for level in range(fewest, max(found[-1] for found in used) + 1 if rows is None else rows):
            run = self._runs.best(width, guest.room, level)
            if run and (not run.large or not level or rows is None):  # else nothing is worth a cut
                board = Board(self._runs.cache(run), self._gangs)
                if offer := board.offer(width, guest.room):
                    yield offer

    def _improve(self, guest: _Guest, moves: int, below: tuple[int, int, int] | None = None) -> int:
        """Move a guest that has it better elsewhere, for a cost `below` that, if given, and if that takes no
        more than `moves`; how many it took."""
        assert guest.board
        spread, cpus = self._spreads and not guest.request.roams, guest.cpus
        guest.board.leave(guest.uuid)
        now = guest.board.cost(cpus, spread=spread)
        rows = [found for board in self._boards if (found := board.rows(guest.width, guest.room)) is not None]
        offers = self._offers(guest, spread=spread) if rows and (min(rows), 0, 0) < now else []
        least = min([*rows, now[0]])
        offers = [*islice(self._wider(guest, least), 1), *offers] if least and moves else offers
        steps = sum(a != b for a, b in zip(cpus, cycle(offers[0].cpus), strict=False)) if offers else 0
        better = offers and steps <= moves and offers[0].cost < min(now, below or now)
        if better and self._accept(guest, offers):
            return steps
        guest.sit(guest.board, cpus)
        return 0

    # ---- the answer ----------------------------------------------------------------

    def _seating(self, guest: _Guest) -> Seating | str:
        if guest.board is None:
            return guest.refusal
        board, last, same = guest.board.cache, guest.last, guest.same
        if last and same and (same.cache, same.cpus) == (board, guest.cpus):
            return Seating(last.cache, last.placements, guest.rejected, last.helpers, same)
        reasons = self._reasons_of(guest.board)
        seen: set[int] = set()
        placements = []
        for vcpu, cpu, hand in zip(guest.vcpus, guest.cpus, guest.hand, strict=True):
            turns = "; takes turns with another vCPU of this guest" if cpu in seen else ""
            pinned = f"; pinned by hand to {format_cpulist(hand)}" if hand and guest.by_hand else ""
            pinned += "" if guest.room is None else f"; it may use {_named(guest.room)}"
            placements.append(Placement(vcpu.index, vcpu.tid, cpu, reasons[cpu] + turns + pinned))
            seen.add(cpu)
        found, helpers = guest.request.domain, self._helpers(guest)
        told = (found.vcpus, found.helpers, found.allowed)
        basis = Basis(self._topology, *told, guest.hand, guest.room, board, guest.cpus)
        return Seating(board.index, tuple(placements), guest.rejected, helpers, basis)

    def _reasons_of(self, board: Board) -> dict[int, str]:
        """By CPU; they are the same for all guests of a board."""
        if board.cache.index not in self._reasons:
            self._reasons[board.cache.index] = _reasons(board)
        return self._reasons[board.cache.index]

    def _helpers(self, guest: _Guest) -> tuple[HelperPlace, ...]:
        """Emulator and I/O threads go where the gang is not, on its node as far as that has other CPUs."""
        room = self._within(guest.request.domain.allowed)
        cpus, reason = self._near(frozenset(guest.cpus), room)
        if not cpus:
            return ()
        return tuple(
            HelperPlace(helper.name, cpus, reason)
            for helper in guest.request.domain.helpers
            if self._hand(helper.affinity, room) is None
        )

    def _near_to(self, gang: frozenset[int], room: frozenset[int]) -> tuple[frozenset[int], str]:
        """The CPUs of `room` for threads that belong to a gang on these, and why."""
        elsewhere = room - gang
        nodes = {cpu.node for cpu in self._topology.cpus if cpu.id in gang}
        near = elsewhere & {cpu.id for cpu in self._topology.cpus if cpu.node in nodes}
        told = ", on its node" * (bool(near) and near != elsewhere)
        return near or elsewhere, f"off the CPUs of the gang{told}"


def _named(room: frozenset[int]) -> str:
    return f"CPU{'s'[: len(room) != 1]} {format_cpulist(room)}" if room else "none"


def _union(sets: Iterable[frozenset[int] | None]) -> frozenset[int]:
    return frozenset().union(*filter(None, sets))


def _crowd(board: Board, cpus: Sequence[int]) -> int:
    return max((len(board.gangs(cpu)) for cpu in cpus), default=0)


def _reasons(board: Board) -> dict[int, str]:
    """Return for every CPU of the board its core and thread."""
    return {
        cpu: f"core {core[0]}" + (f", thread {number} of {len(core)}" if len(core) > 1 else "")
        for core in board.cores
        for number, cpu in enumerate(core, 1)
    }
