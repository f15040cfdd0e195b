# SPDX-License-Identifier: Apache-2.0
"""Which CPUs are a cache to gangd: those over which gangs are co-scheduled, columns of one slot matrix. Pure.

They share a last-level cache, a node and a kind of core: sub-NUMA clusters (SNC) are several nodes below
one cache. A cache of one CPU has no room for a gang, so all such caches of a node count as one; CPUs that
guests may not have (isolcpus=, partitions, AllowedCPUs= of machine.slice) count as caches apart. A gang
with CPUs in several caches joins them. Too large a cache is cut at core borders, near the gang, where no
other gang is on both sides. The cache says what that costs.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence, Set

from gangd.model.cpulist import format_cpulist
from gangd.model.plan import Cache
from gangd.model.topology import Cpu, Topology

CACHE_CPUS = 64  # columns of a cache: GANG_CACHE_CPUS of gang_abi.h
CACHES = 64  # GANG_MAX_CACHES
NOBODY: Mapping[int, Set[str]] = {}
THEIRS = ""  # beside the UUIDs of gangs: of those who are to be in one cache
Piece = tuple[Cpu, ...]
Cpus = frozenset[int]


class Columns:
    """All CPUs of a host that guests may have by cache, while a plan is made. rooms: CPUs that are set
    apart, with guests in them."""

    def __init__(self, topology: Topology, rooms: Cpus = frozenset()) -> None:
        self._topology = topology
        found = host_caches(topology)
        self._number = {cpu.id: number for number, piece in enumerate(found) for cpu in piece}
        ours = topology.usable | rooms
        cut = [tuple(cpu for cpu in piece if cpu.id in ours) for piece in found]
        self._set(piece for piece in cut if piece)
        self._kinds = sorted({cpu.kind for cpu in topology.cpus}, key=_slowness)

    def caches(self) -> tuple[Cache, ...]:
        """The caches as they are now. Each has the index of the first of host_caches() in it; what
        was cut off has one that no other has."""
        free = iter(sorted(set(range(CACHES)) - {self._number[piece[0].id] for piece in self._pieces}))
        found: dict[int, Piece] = {}
        for piece in self._pieces:
            first = self._number[piece[0].id]
            found[next(free) if first in found else first] = piece
        return tuple(self._cache(*one) for one in sorted(found.items()))

    def join(self, span: Iterable[int], gangs: Mapping[int, Set[str]] = NOBODY) -> bool:
        """Make the caches that have CPUs of `span` one; False: no cache can have them all. gangs: by CPU
        those of others, who keep theirs in one cache."""
        wanted = frozenset(span)
        touched = sorted({self._at[cpu] for cpu in wanted})
        if len(touched) < 2:
            return True
        kept = {at: self._pieces[at] for at in touched}
        while sum(map(len, kept.values())) > CACHE_CPUS:
            halves = ((len(piece), at, _near_half(piece, wanted, gangs)) for at, piece in kept.items())
            found = max((one for one in halves if one[2]), default=None)
            if found is None:
                return False
            kept[found[1]] = found[2]
        near = frozenset(cpu.id for piece in kept.values() for cpu in piece)
        rest = [tuple(cpu for cpu in piece if cpu.id not in near) if at in kept else piece
                for at, piece in enumerate(self._pieces)]  # fmt: skip
        if len(rest := [piece for piece in rest if piece]) >= CACHES:
            return False
        self._set([*rest, tuple(cpu for piece in kept.values() for cpu in piece)])
        return True

    def _set(self, pieces: Iterable[Piece]) -> None:
        """The caches are these, in the order of their first CPUs' numbers."""
        self._pieces = sorted(pieces, key=lambda piece: (self._number[piece[0].id], piece[0].id))
        self._at = {cpu.id: at for at, piece in enumerate(self._pieces) for cpu in piece}

    def _cache(self, index: int, piece: Piece) -> Cache:
        return Cache(
            index=index,
            cpus=tuple(cpu.id for cpu in piece),
            reason=_reason(piece, self._topology),
            cores=tuple(cpu.core for cpu in piece),
            slower=tuple(self._kinds.index(cpu.kind) for cpu in piece) if len(self._kinds) > 1 else (),
        )


def caches(topology: Topology) -> tuple[Cache, ...]:
    """The caches of a host without guests."""
    return Columns(topology).caches()


def host_caches(topology: Topology) -> list[Piece]:
    """Return all CPUs by cache, core by core, as they are without guests.

    The scheduler numbers its caches so. A larger cache is cut at core borders; neighbours are joined where
    there would be more than CACHES.
    """
    found = [piece for cores in _shared(topology) for piece in _cut(cores)]
    while len(found) > CACHES and len(paired := _paired(found)) < len(found):
        found = paired
    return found


def _shared(topology: Topology) -> list[list[Piece]]:
    """Return the cores by cache, node and kind; CPUs that are alone there by node, and then by kind.

    CPUs that are set apart, or not for guests, are never with others, and if their core's other threads
    are: a gang's turns are in whole caches.
    """
    apart = [topology.usable, topology.guests or topology.usable]
    cores: dict[tuple[int, ...], list[Cpu]] = defaultdict(list)
    for cpu in topology.cpus:
        cores[cpu.core, *(cpu.id in some for some in apart)].append(cpu)
    alone = [tuple(core) for core in cores.values()]
    found: list[list[Piece]] = []
    for shared in (("llc", "node", "kind"), ("node", "kind"), ("kind",)):
        together = defaultdict(list)
        for core in alone:
            theirs = [core[0].id in some for some in apart]
            together[(*theirs, *(getattr(core[0], name) for name in shared))].append(core)
        found += [cores for cores in together.values() if len(cores) > 1 or len(cores[0]) > 1]
        alone = [cores[0] for cores in together.values() if len(cores) == len(cores[0]) == 1]
    return sorted([*found, *([core] for core in alone)], key=lambda cores: cores[0][0].id)


def _cut(cores: Iterable[Piece]) -> Iterable[Piece]:
    """Yield the CPUs of these cores, CACHE_CPUS at most at a time."""
    piece: Piece = ()
    for core in cores:
        if len(piece) + len(core) > CACHE_CPUS:
            yield piece
            piece = ()
        piece += core
    yield piece


def _paired(pieces: Sequence[Piece]) -> list[Piece]:
    """Return them with neighbours of one kind made one, where they fit."""
    paired: list[Piece] = []
    left = deque(pieces)
    while left:
        one = left.popleft()
        fits = left and left[0][0].kind == one[0].kind and len(one) + len(left[0]) <= CACHE_CPUS
        paired.append(one + left.popleft() if fits else one)
    return paired


def _near_half(piece: Piece, span: Cpus, gangs: Mapping[int, Set[str]]) -> Piece:
    """The part of a piece that has its CPUs of `span`, cut off at the core border nearest to its middle that
    goes through no gang; empty: there is none."""
    there = [gangs.get(cpu.id, frozenset()) | ({THEIRS} if cpu.id in span else set()) for cpu in piece]
    last = {gang: at for at, some in enumerate(there) for gang in some}
    borders = []
    reach = -1  # the last CPU of those who have one before the border
    for at in range(1, len(piece)):
        reach = max([reach, *(last[gang] for gang in there[at - 1])])
        if reach < at and piece[at].core != piece[at - 1].core:
            borders.append(at)
    if not borders:
        return ()
    at = min(borders, key=lambda at: abs(2 * at - len(piece)))
    return piece[at:] if last[THEIRS] >= at else piece[:at]


def _slowness(kind: str) -> tuple[int, str]:
    """Sorts the fastest kind of core first."""
    capacity = kind.removeprefix("capacity ")
    if capacity.isdecimal():
        return -int(capacity), kind
    return ("core", "atom", "lowpower").index(kind) if kind in ("core", "atom", "lowpower") else 9, kind


def _reason(cpus: Sequence[Cpu], topology: Topology) -> str:
    """Return the sentence that names what the CPUs share, and its cost where that is not a cache."""
    named = f"CPUs {format_cpulist(cpu.id for cpu in cpus)}"
    llcs = len({cpu.llc for cpu in cpus})
    nodes = sorted({cpu.node for cpu in cpus})
    if llcs == 1 and len(nodes) == 1:
        apart = any(cpu.llc == cpus[0].llc and cpu.node != nodes[0] for cpu in topology.cpus)
        return f"{named} share a last-level cache" + f" and node {nodes[0]}" * apart
    if len(nodes) == 1:
        return f"{named} span {llcs} last-level caches of node {nodes[0]}: no cache has room for a guest"
    far = max((topology.distance(a, b) or 0 for a in nodes for b in nodes), default=0)
    cost = f" at up to {far / 10:g} times the distance" if far else ""
    return f"{named} span nodes {format_cpulist(nodes)}: memory of one is{cost} away for the rest"
