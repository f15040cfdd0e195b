# SPDX-License-Identifier: Apache-2.0
"""Where the vCPUs of all gangs go, given where they are. Pure.

In this order: guests that an operator pinned, who are taken as they are; guests that have their
place, who keep it; newcomers, widest first; and then, as far as `moves` reaches, those who would
have it better elsewhere now. What is better is the board's business (board.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle

from gangd.model.board import Board
from gangd.model.columns import gang_domains
from gangd.model.cpulist import format_cpulist
from gangd.model.domain import Domain, Vcpu
from gangd.model.own_pin import OwnPins
from gangd.model.plan import GangDomain, HelperPlace, Offer, Placement, Plan
from gangd.model.topology import Topology

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
    """What is there already.

    plan: the last one. pins: what gangd pinned. moves: how many vCPUs of guests that have a place may be
    given another one now. roams: the scheduler of gangs chooses CPUs for their members.
    """

    plan: Plan = Plan()
    pins: OwnPins = field(default_factory=dict)
    moves: int = 0
    roams: bool = False


@dataclass(frozen=True)
class Seating:
    """The place of one guest. rejected: the best that other gang domains had to offer."""

    gang_domain: int
    placements: tuple[Placement, ...]
    rejected: tuple[Offer, ...] = ()
    helpers: tuple[HelperPlace, ...] = ()


@dataclass(frozen=True)
class Seatings:
    """By UUID: a place, or in one sentence why there is none. moved: vCPUs that have to leave theirs."""

    gang_domains: tuple[GangDomain, ...]
    of: Mapping[str, Seating | str]
    moved: int = 0


def place(requests: Sequence[Request], topology: Topology, standing: Standing | None = None) -> Seatings:
    """A place for every guest that can have one. Costs O(guests x (gang domains + cores of one))."""
    return _Hall(requests, topology, standing or Standing()).seat()


@dataclass
class _Guest:
    """One guest on its way to a place. hand: by vCPU where an operator wants it, None = anywhere."""

    request: Request
    hand: tuple[frozenset[int] | None, ...]
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
        return any(cpus is not None for cpus in self.hand)

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
        self._guests = [_Guest(request, self._hands(request.domain)) for request in requests]
        domains = gang_domains(topology)
        self._boards = [Board(domain) for domain in domains]
        if wide := [guest for guest in self._guests if not self._fits(guest)]:
            widths = [(guest.width, None) for guest in wide if not guest.by_hand]
            spans = [_union(guest.hand) for guest in wide if guest.by_hand]
            self._boards = [Board(domain) for domain in gang_domains(topology, widths, spans)]
        self._board_of = {cpu: board for board in self._boards for cpu in board.domain.cpus}
        self._reasons: dict[int, dict[int, str]] = {}  # by gang domain

    def seat(self) -> Seatings:
        """Everybody, in the order of this file's header."""
        before = {gang.uuid: {p.vcpu: p.cpu for p in gang.placements} for gang in self._standing.plan.gangs}
        kept = []
        for guest in sorted(self._guests, key=lambda guest: not guest.by_hand):
            if self._keep(guest, before.get(guest.uuid, {})):
                kept += [guest] * (not guest.by_hand and not guest.request.roams)
            elif guest.by_hand:
                self._seat_by_hand(guest)
        free = [guest for guest in self._guests if not guest.by_hand]
        for guest in sorted(free, key=lambda guest: -guest.width):
            if not guest.board:
                self._seat(guest)
        for guest in kept:
            if self._moves > 0:
                self._improve(guest)
        return Seatings(
            tuple(board.domain for board in self._boards),
            {guest.uuid: self._seating(guest) for guest in self._guests},
            self._moved,
        )

    # ---- what an operator said ---------------------------------------------------

    def _hands(self, domain: Domain) -> tuple[frozenset[int] | None, ...]:
        return tuple(self._hand(domain, f"vcpu/{vcpu.index}", vcpu.affinity) for vcpu in domain.vcpus)

    def _hand(self, domain: Domain, thread: str, cpus: frozenset[int]) -> frozenset[int] | None:
        """Where somebody else than gangd wants a thread; None when he does not mind."""
        if own := self._standing.pins.get((domain.uuid, thread)):
            cpus = own.wish(cpus, domain.since)
        return None if not cpus or cpus >= self._topology.usable else cpus

    def _seat_by_hand(self, guest: _Guest) -> None:
        """One CPU for each vCPU out of those it may use, several vCPUs on one only if need be."""
        found = [(board, cpus) for board in self._boards if (cpus := _match(guest.hand, board))]
        if not found:
            guest.refusal = (
                f"its vCPUs are pinned by hand to CPUs {format_cpulist(_union(guest.hand))}, "
                f"which no gang domain has all of"
            )
            return
        best = min(found, key=lambda one: (guest.width - len(set(one[1])), _crowd(*one), one[0].domain.index))
        guest.sit(*best)

    # ---- everybody else ----------------------------------------------------------

    def _fits(self, guest: _Guest) -> bool:
        if guest.by_hand:
            return any(_match(guest.hand, board) for board in self._boards)
        return any(len(board.domain.cpus) >= guest.width for board in self._boards)

    def _keep(self, guest: _Guest, before: Mapping[int, int]) -> bool:
        """Stay, if all of its CPUs are still there, in one gang domain, and no operator wants others."""
        cpus = [before.get(vcpu.index, -1) for vcpu in guest.vcpus]
        board = self._board_of.get(cpus[0])
        if board is None or any(self._board_of.get(cpu) is not board for cpu in cpus):
            return False
        if any(hand and cpu not in hand for cpu, hand in zip(cpus, guest.hand, strict=True)):
            return False
        if len(set(cpus)) < guest.width <= len(board.domain.cpus):
            return False  # they take turns, and need not any more
        last = self._standing.plan.gang(guest.uuid)
        guest.rejected = last.rejected if last else ()
        guest.sit(board, cpus)
        return True

    def _offers(self, width: int) -> list[Offer]:
        return sorted(offer for board in self._boards if (offer := board.offer(width)))

    def _seat(self, guest: _Guest) -> None:
        if not self._boards:
            guest.refusal = "no CPU of the host is free for gangs"
            return
        offers = self._offers(guest.width)
        if offers:
            guest.accept(offers, self._board_of)
            return
        board = max(self._boards, key=lambda board: (len(board.domain.cpus), -board.domain.index))
        turns = zip(guest.vcpus, cycle(board.domain.cpus), strict=False)
        guest.sit(board, [cpu for _, cpu in turns])

    def _improve(self, guest: _Guest) -> None:
        """Move a guest that needs fewer rows, or gets more whole cores, elsewhere."""
        assert guest.board
        guest.board.leave(guest.uuid)
        offers = self._offers(guest.width)
        steps = sum(a != b for a, b in zip(guest.cpus, offers[0].cpus, strict=True)) if offers else 0
        if offers and steps <= self._moves and _goodness(offers[0]) < _crowding(guest):
            guest.accept(offers, self._board_of)
            self._moves -= steps
            self._moved += steps
        else:
            guest.sit(guest.board, guest.cpus)

    # ---- the answer ----------------------------------------------------------------

    def _seating(self, guest: _Guest) -> Seating | str:
        if guest.board is None:
            return guest.refusal
        reasons = self._reasons_of(guest.board)
        seen: set[int] = set()
        placements = []
        for vcpu, cpu, hand in zip(guest.vcpus, guest.cpus, guest.hand, strict=True):
            turns = "; takes turns with another vCPU of this guest" if cpu in seen else ""
            pinned = f"; pinned by hand to {format_cpulist(hand)}" if hand else ""
            placements.append(Placement(vcpu.index, vcpu.tid, cpu, reasons[cpu] + turns + pinned))
            seen.add(cpu)
        return Seating(guest.board.domain.index, tuple(placements), guest.rejected, self._helpers(guest))

    def _reasons_of(self, board: Board) -> dict[int, str]:
        """By CPU; once everybody sits they are the same for all guests of a board."""
        if board.domain.index not in self._reasons:
            self._reasons[board.domain.index] = _reasons(board)
        return self._reasons[board.domain.index]

    def _helpers(self, guest: _Guest) -> tuple[HelperPlace, ...]:
        """Emulator and I/O threads go where the gang is not; nowhere else if it is everywhere."""
        elsewhere = self._topology.usable - set(guest.cpus)
        if not elsewhere:
            return ()
        return tuple(
            HelperPlace(helper.name, elsewhere, "off the CPUs of the gang")
            for helper in guest.request.domain.helpers
            if helper.affinity and self._hand(guest.request.domain, helper.name, helper.affinity) is None
        )


def _union(sets: Iterable[frozenset[int] | None]) -> frozenset[int]:
    return frozenset().union(*filter(None, sets))


def _goodness(offer: Offer) -> tuple[int, int]:
    return offer.rows, offer.missed


def _crowding(guest: _Guest) -> tuple[int, int]:
    """The rows and missed cores of where a guest was, once it has left."""
    assert guest.board
    filled = sum(
        len(core) == guest.board.threads and set(core) <= set(guest.cpus) for core in guest.board.cores
    )
    return _crowd(guest.board, guest.cpus), guest.width // guest.board.threads - filled


def _crowd(board: Board, cpus: Sequence[int]) -> int:
    return max(len(board.gangs(cpu)) for cpu in cpus)


def _match(hand: Sequence[frozenset[int] | None], board: Board) -> tuple[int, ...] | None:
    """A CPU of the board for every vCPU, out of `hand`; no CPU twice if that can be had.

    Kuhn's augmenting paths, narrow wishes first and empty columns before others. None when a vCPU may
    use none of the board's CPUs.
    """
    order = sorted(board.domain.cpus, key=lambda cpu: len(board.gangs(cpu)))
    wishes = [[cpu for cpu in order if wish is None or cpu in wish] for wish in hand]
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

    for vcpu in sorted(range(len(hand)), key=lambda vcpu: len(wishes[vcpu])):
        settle(vcpu, set())
    found = {vcpu: cpu for cpu, vcpu in holder.items()}
    return tuple(found.get(vcpu, wishes[vcpu][0]) for vcpu in range(len(hand)))


def _reasons(board: Board) -> dict[int, str]:
    """Of every CPU of the board what it is and who else is there."""
    reasons = {}
    for core in board.cores:
        for number, cpu in enumerate(core, 1):
            others = len(board.gangs(cpu)) - 1
            thread = f", thread {number} of {len(core)}" if len(core) > 1 else ""
            shared = f"shared in time with {others} other gang{'s'[: others > 1]}" if others > 0 else "free"
            reasons[cpu] = f"core {core[0]}{thread}; {shared}"
    return reasons
