# SPDX-License-Identifier: Apache-2.0
"""Which CPUs form a gang domain: the columns of one slot matrix. Pure.

One domain for each last-level cache, node and kind of core: sub-NUMA clusters (SNC) are several nodes
below one cache. A cache of one CPU has no room for a gang, so all such caches of a node are one domain;
CPUs that guests may not have (isolcpus=, partitions, AllowedCPUs= of machine.slice) are domains apart.
A gang with CPUs in several domains makes them one. What is too large for one is cut at core borders, near
the gang, where no other gang is on both sides. The domain says what that costs.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence, Set

from gangd.model.cpulist import format_cpulist
from gangd.model.plan import GangDomain
from gangd.model.topology import Cpu, Topology

DOMAIN_CPUS = 64  # columns of a gang domain: GANG_DOMAIN_CPUS of gang_abi.h
DOMAINS = 64  # GANG_MAX_DOMAINS
NOBODY: Mapping[int, Set[str]] = {}
THEIRS = ""  # beside the UUIDs of gangs: of those who are to be in one domain
Piece = tuple[Cpu, ...]
Cpus = frozenset[int]


class Columns:
    """All CPUs of a host that guests may have by gang domain, while a plan is made. rooms: CPUs that are set
    apart, with guests in them."""

    def __init__(self, topology: Topology, rooms: Cpus = frozenset()) -> None:
        self._topology = topology
        found = host_domains(topology)
        self._number = {cpu.id: number for number, piece in enumerate(found) for cpu in piece}
        ours = topology.usable | rooms
        cut = [tuple(cpu for cpu in piece if cpu.id in ours) for piece in found]
        self._set(piece for piece in cut if piece)
        self._kinds = sorted({cpu.kind for cpu in topology.cpus}, key=_slowness)

    def domains(self) -> tuple[GangDomain, ...]:
        """The gang domains as they are now. Each has the index of the first of host_domains() in it; what
        was cut off has one that no other has."""
        free = iter(sorted(set(range(DOMAINS)) - {self._number[piece[0].id] for piece in self._pieces}))
        found: dict[int, Piece] = {}
        for piece in self._pieces:
            first = self._number[piece[0].id]
            found[next(free) if first in found else first] = piece
        return tuple(self._domain(*one) for one in sorted(found.items()))

    def join(self, span: Iterable[int], gangs: Mapping[int, Set[str]] = NOBODY) -> bool:
        """Make the domains that have CPUs of `span` one; False: no domain can have them all. gangs: by CPU
        those of others, who keep theirs in one domain."""
        wanted = frozenset(span)
        touched = sorted({self._at[cpu] for cpu in wanted})
        if len(touched) < 2:
            return True
        kept = {at: self._pieces[at] for at in touched}
        while sum(map(len, kept.values())) > DOMAIN_CPUS:
            halves = ((len(piece), at, _near_half(piece, wanted, gangs)) for at, piece in kept.items())
            found = max((one for one in halves if one[2]), default=None)
            if found is None:
                return False
            kept[found[1]] = found[2]
        near = frozenset(cpu.id for piece in kept.values() for cpu in piece)
        rest = [tuple(cpu for cpu in piece if cpu.id not in near) if at in kept else piece
                for at, piece in enumerate(self._pieces)]  # fmt: skip
        if len(rest := [piece for piece in rest if piece]) >= DOMAINS:
            return False
        self._set([*rest, tuple(cpu for piece in kept.values() for cpu in piece)])
        return True

    def _set(self, pieces: Iterable[Piece]) -> None:
        """The domains are these, in the order of their first CPUs' numbers."""
        self._pieces = sorted(pieces, key=lambda piece: (self._number[piece[0].id], piece[0].id))
        self._at = {cpu.id: at for at, piece in enumerate(self._pieces) for cpu in piece}

    def _domain(self, index: int, piece: Piece) -> GangDomain:
        return GangDomain(
            index=index,
            cpus=tuple(cpu.id for cpu in piece),
            reason=_reason(piece, self._topology),
            cores=tuple(cpu.core for cpu in piece),
            slower=tuple(self._kinds.index(cpu.kind) for cpu in piece) if len(self._kinds) > 1 else (),
        )


def gang_domains(topology: Topology) -> tuple[GangDomain, ...]:
    """The gang domains of a host without guests."""
    return Columns(topology).domains()


def host_domains(topology: Topology) -> list[Piece]:
    """Return all CPUs by gang domain, core by core, as they are without guests.

    The scheduler numbers its domains so. A larger cache is cut at core borders; neighbours are one domain
    where there would be more than DOMAINS.
    """
    found = [piece for cores in _caches(topology) for piece in _cut(cores)]
    while len(found) > DOMAINS and len(paired := _paired(found)) < len(found):
        found = paired
    return found


def _caches(topology: Topology) -> list[list[Piece]]:
    """Return the cores by cache, node and kind; CPUs that are alone there by node, and then by kind.

    CPUs that are set apart, or not for guests, are never with others, and if their core's other threads
    are: a gang's turns are in whole domains.
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
    """Yield the CPUs of these cores, DOMAIN_CPUS at most at a time."""
    piece: Piece = ()
    for core in cores:
        if len(piece) + len(core) > DOMAIN_CPUS:
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
        fits = left and left[0][0].kind == one[0].kind and len(one) + len(left[0]) <= DOMAIN_CPUS
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
    caches = len({cpu.llc for cpu in cpus})
    nodes = sorted({cpu.node for cpu in cpus})
    if caches == 1 and len(nodes) == 1:
        apart = any(cpu.llc == cpus[0].llc and cpu.node != nodes[0] for cpu in topology.cpus)
        return f"{named} share a last-level cache" + f" and node {nodes[0]}" * apart
    if len(nodes) == 1:
        return f"{named} span {caches} last-level caches of node {nodes[0]}: no cache has room for a guest"
    far = max((topology.distance(a, b) or 0 for a in nodes for b in nodes), default=0)
    cost = f" at up to {far / 10:g} times the distance" if far else ""
    return f"{named} span nodes {format_cpulist(nodes)}: memory of one is{cost} away for the rest"
