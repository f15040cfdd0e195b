# SPDX-License-Identifier: Apache-2.0
"""Where the vCPUs of all gangs go, given where they are. Pure.

In this order: guests that an operator pinned, who are taken as they are; guests that have their
place, who keep it; newcomers, those with the fewest CPUs to choose from first, then the widest, packed;
newcomers again, spread, while there are cores for all; and then, as far as `moves` reaches, those who
would have it better elsewhere now. What is better is the board's business (board.py).

A pin by hand names a CPU for each vCPU. A wider cpuset, equal for all vCPUs, is a limit, as what the
guest's cgroup allows: within it the guest is placed as any other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import cycle
from typing import Literal

from gangd.model.board import Board
from gangd.model.columns import gang_domains
from gangd.model.cpulist import format_cpulist
from gangd.model.domain import Domain, Vcpu
from gangd.model.plan import Basis, GangDomain, GangPlan, HelperPlace, Offer, Placement, Plan
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
    while there are as many cores as vCPUs.
    """

    plan: Plan = Plan()
    moves: int = 0
    roams: bool = False
    strategy: Strategy = "auto"


@dataclass(frozen=True)
class Seating:
    """The place of one guest; gang_domain: None = it needs none. rejected: the best of the others."""

    gang_domain: int | None
    placements: tuple[Placement, ...]
    rejected: tuple[Offer, ...] = ()
    helpers: tuple[HelperPlace, ...] = ()
    basis: Basis | None = None


@dataclass(frozen=True)
class Seatings:
    """By UUID: a place, or in one sentence why there is none. moved: vCPUs that have to leave theirs. rows:
    by CPU, how many gangs have it."""

    gang_domains: tuple[GangDomain, ...]
    of: Mapping[str, Seating | str]
    moved: int = 0
    rows: Mapping[int, int] = field(default_factory=dict)


def place(requests: Sequence[Request], topology: Topology, standing: Standing | None = None) -> Seatings:
    """A place for every guest that can have one. Costs O(guests x (gang domains + cores of one))."""
    return _Hall(requests, topology, standing or Standing()).seat()


@dataclass
class _Guest:
    """One guest on its way to a place. hand: by vCPU where an operator wants it, None = anywhere.
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
        """Its vCPUs are pinned one by one, or to no more CPUs than they are."""
        return any(self.hand) and (len(set(self.hand)) > 1 or len(self.hand[0] or ()) <= self.width)

    def space(self, board: Board) -> tuple[int, ...]:
        """The board's CPUs that are its to have."""
        if self.room is None:
            return board.domain.cpus
        return tuple(cpu for cpu in board.domain.cpus if cpu in self.room)

    def accept(self, offers: Sequence[Offer], board_of: Mapping[int, Board]) -> None:
        """Take the first, and remember the next."""
        self.rejected = tuple(offers[1 : 1 + REJECTED])
        self.sit(board_of[offers[0].cpus[0]], offers[0].cpus)

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
        self._guests = [self._guest(request) for request in requests]
        self._rooms = {guest.room for guest in self._guests if guest.room and not guest.by_hand}
        self._boards = [Board(domain) for domain in gang_domains(topology)]
        if wide := [guest for guest in self._guests if not self._fits(guest)]:
            self._boards = self._joined(wide)
        self._board_of = {cpu: board for board in self._boards for cpu in board.domain.cpus}
        self._reasons: dict[int, dict[int, str]] = {}  # by gang domain, and by CPU
        ours = topology.guests or topology.usable
        cores = sum(not ours.isdisjoint(core) for board in self._boards for core in board.cores)
        vcpus = sum(guest.width for guest in self._guests)
        self._spreads = standing.strategy == "spread" or (standing.strategy == "auto" and vcpus <= cores)

    def seat(self) -> Seatings:
        """Everybody, in the order of this file's header."""
        kept = []
        for guest in sorted(self._guests, key=lambda guest: not guest.by_hand):
            if self._keep(guest):
                kept += [guest] * (not guest.by_hand and not guest.request.roams)
            elif guest.by_hand:
                self._seat_by_hand(guest)
        usable = len(self._topology.usable)
        free = [guest for guest in self._guests if not guest.by_hand and not guest.board]
        free.sort(key=lambda guest: (usable if guest.room is None else len(guest.room), -guest.width))
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
            tuple(board.domain for board in self._boards),
            {guest.uuid: self._seating(guest) for guest in self._guests},
            self._moved,
            {cpu: len(board.gangs(cpu)) for cpu, board in self._board_of.items()},
        )

    def _joined(self, wide: Sequence[_Guest]) -> list[Board]:
        """Boards of which each of these guests has one: the one that it has now, if that is all there."""
        widths = [(guest.width, guest.room) for guest in wide if not guest.by_hand]
        spans = [_union(guest.hand) for guest in wide if guest.by_hand]
        last = {gang.uuid: frozenset(p.cpu for p in gang.placements) for gang in self._standing.plan.gangs}
        now = [last.get(guest.uuid, frozenset()) for guest in wide if not guest.by_hand]
        spans += [cpus for cpus in now if cpus and cpus <= self._topology.usable]
        return [Board(domain) for domain in gang_domains(self._topology, widths, spans)]

    # ---- what an operator said ---------------------------------------------------

    def _guest(self, request: Request) -> _Guest:
        domain = request.domain
        last = self._standing.plan.gang(domain.uuid)
        if last and last.basis and last.basis.is_of(domain, self._topology):
            return _Guest(request, last.basis.hand, last.basis.room, last=last, same=last.basis)
        hand = tuple(self._hand(vcpu.affinity) for vcpu in domain.vcpus)
        guest = _Guest(request, hand, last=last)
        limits = [cpus for cpus in (self._allowed(domain), None if guest.by_hand else hand[0]) if cpus]
        if limits:
            guest.room = self._topology.usable.intersection(*limits)
        return guest

    def _allowed(self, domain: Domain) -> frozenset[int] | None:
        """Return the CPUs that the domain's cgroup allows; None when that is no limit."""
        return None if not domain.allowed or domain.allowed >= self._topology.usable else domain.allowed

    def _hand_of(self, cpus: frozenset[int]) -> frozenset[int] | None:
        """Where an operator wants a thread; None when he does not mind."""
        return None if not cpus or cpus >= self._topology.usable else cpus

    def _seat_by_hand(self, guest: _Guest) -> None:
        """One CPU for each vCPU out of those it may use, several vCPUs on one only if need be."""
        found = [(board, cpus) for board in self._boards if (cpus := _match(guest, board))]
        if not found:
            pins = f"its vCPUs are pinned by hand to CPUs {format_cpulist(_union(guest.hand))}"
            guest.refusal = f"{pins}, which no gang domain has all of"
            if guest.room is not None and not _union(guest.hand) <= guest.room:
                guest.refusal = f"{pins}, and its cgroup has only {_named(guest.room)} for gangs"
            return
        best = min(found, key=lambda one: (guest.width - len(set(one[1])), _crowd(*one), one[0].domain.index))
        guest.sit(*best)

    # ---- everybody else ----------------------------------------------------------

    def _fits(self, guest: _Guest) -> bool:
        if guest.by_hand:
            most = min(guest.width, len(_union(guest.hand) & self._topology.usable))
            return any(len(set(_match(guest, board) or ())) >= most > 0 for board in self._boards)
        return any(len(guest.space(board)) >= guest.width for board in self._boards)

    def _keep(self, guest: _Guest) -> bool:
        """Stay, if all of its CPUs are still there, in one gang domain, and no operator wants others."""
        cpus = self._standing_on(guest)
        if not cpus:
            return False
        different = len(set(cpus))
        if different < guest.width and different < max(len(guest.space(one)) for one in self._boards):
            return False  # they take turns, and fewer of them need to
        guest.rejected = guest.last.rejected if guest.last else ()
        guest.sit(self._board_of[cpus[0]], cpus)
        return True

    def _standing_on(self, guest: _Guest) -> tuple[int, ...]:
        """The CPUs that it had, if it may have them; none: it may not, or had no place."""
        if not guest.last or not guest.last.placements:
            return ()
        board = self._board_of.get(guest.last.placements[0].cpu)
        if guest.same and board and board.domain == guest.same.gang_domain:
            return guest.same.cpus
        before = {place.vcpu: place.cpu for place in guest.last.placements}
        cpus = tuple(before.get(vcpu.index, -1) for vcpu in guest.vcpus)
        board = self._board_of.get(cpus[0])
        if board is None or any(self._board_of.get(cpu) is not board for cpu in cpus):
            return ()
        if any(hand and cpu not in hand for cpu, hand in zip(cpus, guest.hand, strict=True)):
            return ()
        return cpus if guest.room is None or guest.room.issuperset(cpus) else ()

    def _offers(self, guest: _Guest, *, spread: bool = False) -> list[Offer]:
        """All boards' offers, best first: off the CPUs of guests with less choice, if that costs nothing."""
        found = self._offered(guest.width, guest.room, spread)
        usable = self._topology.usable if guest.room is None else guest.room
        others = _union(room for room in self._rooms if len(room) < len(usable))
        apart = self._offered(guest.width, usable - others, spread) if others else []
        if apart and (apart[0].cost, apart[0].slower) == (found[0].cost, found[0].slower):
            return apart
        return found

    def _offered(self, width: int, room: frozenset[int] | None, spread: bool) -> list[Offer]:
        return sorted(filter(None, (board.offer(width, room, spread=spread) for board in self._boards)))

    def _seat(self, guest: _Guest) -> None:
        if not self._boards:
            guest.refusal = "no CPU of the host is free for gangs"
            return
        offers = self._offers(guest)
        if offers:
            guest.accept(offers, self._board_of)
            return
        board = max(self._boards, key=lambda one: (len(guest.space(one)), -_crowd(one, guest.space(one))))
        if not (space := guest.space(board)):
            guest.refusal = "no CPU that it is limited to is free for gangs"
            return
        turns = zip(guest.vcpus, cycle(space), strict=False)
        guest.sit(board, [cpu for _, cpu in turns])

    def _improve(self, guest: _Guest, moves: int, below: tuple[int, int, int] | None = None) -> int:
        """Move a guest that has it better elsewhere, for a cost `below` that, if given, and if that takes no
        more than `moves`; how many it took."""
        assert guest.board
        spread = self._spreads and not guest.request.roams
        guest.board.leave(guest.uuid)
        now = guest.board.cost(guest.cpus, spread=spread)
        rows = [found for board in self._boards if (found := board.rows(guest.width, guest.room)) is not None]
        offers = self._offers(guest, spread=spread) if rows and (min(rows), 0, 0) < now else []
        steps = sum(a != b for a, b in zip(guest.cpus, offers[0].cpus, strict=True)) if offers else 0
        if offers and steps <= moves and offers[0].cost < min(now, below or now):
            guest.accept(offers, self._board_of)
            return steps
        guest.sit(guest.board, guest.cpus)
        return 0

    # ---- the answer ----------------------------------------------------------------

    def _seating(self, guest: _Guest) -> Seating | str:
        if guest.board is None:
            return guest.refusal
        board, last, same = guest.board.domain, guest.last, guest.same
        if last and same and (same.gang_domain, same.cpus) == (board, guest.cpus):
            return Seating(last.gang_domain, last.placements, guest.rejected, last.helpers, same)
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
        if board.domain.index not in self._reasons:
            self._reasons[board.domain.index] = _reasons(board)
        return self._reasons[board.domain.index]

    def _helpers(self, guest: _Guest) -> tuple[HelperPlace, ...]:
        """Emulator and I/O threads go where the gang is not, on its node as far as that has other CPUs."""
        cpus, reason = self._near(frozenset(guest.cpus), self._allowed(guest.request.domain))
        if not cpus:
            return ()
        return tuple(
            HelperPlace(helper.name, cpus, reason)
            for helper in guest.request.domain.helpers
            if self._hand(helper.affinity) is None
        )

    def _near_to(self, gang: frozenset[int], allowed: frozenset[int] | None) -> tuple[frozenset[int], str]:
        """The CPUs for threads that belong to a gang on these, and why."""
        elsewhere = self._topology.usable - gang
        if allowed:
            elsewhere &= allowed
        nodes = {cpu.node for cpu in self._topology.cpus if cpu.id in gang}
        near = elsewhere & {cpu.id for cpu in self._topology.cpus if cpu.node in nodes}
        told = ", on its node" * (bool(near) and near != elsewhere)
        return near or elsewhere, f"off the CPUs of the gang{told}"


def _named(room: frozenset[int]) -> str:
    return f"CPUs {format_cpulist(room)}" if room else "none"


def _union(sets: Iterable[frozenset[int] | None]) -> frozenset[int]:
    return frozenset().union(*filter(None, sets))


def _crowd(board: Board, cpus: Sequence[int]) -> int:
    return max((len(board.gangs(cpu)) for cpu in cpus), default=0)


def _match(guest: _Guest, board: Board) -> tuple[int, ...] | None:
    """A CPU of the board for every vCPU, where it is wanted by hand; no CPU twice if that can be had, and
    none more often than need be.

    Kuhn's augmenting paths, narrow wishes first and empty columns before others. None when a vCPU may
    use none of the board's CPUs.
    """
    order = sorted(guest.space(board), key=lambda cpu: len(board.gangs(cpu)))
    wishes = [[cpu for cpu in order if wish is None or cpu in wish] for wish in guest.hand]
    if not all(wishes):
        return None
    holder: dict[int, int] = {}

    def settle(vcpu: int, tried: set[int]) -> bool:
        for cpu in wishes[vcpu]:
            if cpu not in tried:
                tried.add(cpu)
                if cpu not in holder or settle(holder[cpu], tried):
                    holder[cpu] = vcpu
                    return True
        return False

    for vcpu in sorted(range(len(wishes)), key=lambda vcpu: len(wishes[vcpu])):
        settle(vcpu, set())
    found = {vcpu: cpu for cpu, vcpu in holder.items()}
    held = Counter(holder.keys())
    for vcpu in range(len(wishes)):
        if vcpu not in found:
            found[vcpu] = min(wishes[vcpu], key=held.__getitem__)
            held[found[vcpu]] += 1
    return tuple(found[vcpu] for vcpu in range(len(wishes)))


def _reasons(board: Board) -> dict[int, str]:
    """Return for every CPU of the board its core and thread."""
    return {
        cpu: f"core {core[0]}" + (f", thread {number} of {len(core)}" if len(core) > 1 else "")
        for core in board.cores
        for number, cpu in enumerate(core, 1)
    }
