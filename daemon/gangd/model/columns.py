# SPDX-License-Identifier: Apache-2.0
"""Which CPUs form a gang domain: the columns of one slot matrix. Pure.

One domain for each last-level cache, node and kind of core: sub-NUMA clusters (SNC) are several nodes
below one cache. A cache of one CPU has no room for a gang, so all such caches of a node are one domain;
CPUs that guests may not have (isolcpus=, partitions, AllowedCPUs= of machine.slice) are domains apart.
A guest that is wider than any domain, or that an operator pinned across several, makes neighbours one:
as few caches as will do, of one node if that holds it, else of several. The domain says what that costs.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence

from gangd.model.cpulist import format_cpulist
from gangd.model.plan import GangDomain
from gangd.model.topology import Cpu, Topology

DOMAIN_CPUS = 64  # columns of a gang domain: GANG_DOMAIN_CPUS of gang_abi.h
DOMAINS = 64  # GANG_MAX_DOMAINS
Piece = tuple[Cpu, ...]


def gang_domains(
    topology: Topology,
    widths: Iterable[tuple[int, frozenset[int] | None]] = (),
    spans: Iterable[frozenset[int]] = (),
) -> tuple[GangDomain, ...]:
    """The gang domains for guests of these `widths` (vCPUs, and the CPUs they are limited to, None = no
    limit), with each of the `spans` (CPUs) in one.

    What needs more than DOMAIN_CPUS gets as much as there is. A domain has the index of the first of
    host_domains() in it.
    """
    pieces = [tuple(cpu for cpu in p if cpu.id in topology.usable) for p in host_domains(topology)]
    groups = [[number] for number, piece in enumerate(pieces) if piece]
    for span in spans:
        groups = _joined(groups, pieces, span)
    for width, room in sorted(set(widths), key=lambda wide: (-wide[0], sorted(wide[1] or ()))):
        groups = _widened(groups, pieces, width, room)
    return tuple(_domain(group[0], group, pieces, topology) for group in groups)


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

    CPUs that are set apart, or not for guests, are never with others: a gang's turns are in whole domains.
    """
    apart = [topology.usable, topology.guests or topology.usable]
    by_id = {cpu.id: cpu for cpu in topology.cpus}
    alone = [tuple(by_id[cpu] for cpu in core) for core in topology.cores()]
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


def _size(groups: Sequence[list[int]], pieces: Sequence[Piece], room: frozenset[int] | None = None) -> int:
    """How many CPUs they are, of those in `room` if given."""
    return sum(
        room is None or cpu.id in room for group in groups for number in group for cpu in pieces[number]
    )


def _joined(groups: list[list[int]], pieces: list[Piece], span: frozenset[int]) -> list[list[int]]:
    """The groups that `span` touches as one, if that is not too large."""
    touched = [group for group in groups if any(cpu.id in span for n in group for cpu in pieces[n])]
    if len(touched) < 2 or _size(touched, pieces) > DOMAIN_CPUS:
        return groups
    return _merged(groups, touched)


def _merged(groups: list[list[int]], together: Sequence[list[int]]) -> list[list[int]]:
    one = sorted(number for group in together for number in group)
    return sorted([group for group in groups if group not in together] + [one])


def _widened(
    groups: list[list[int]], pieces: list[Piece], width: int, room: frozenset[int] | None
) -> list[list[int]]:
    """With a group of at least `width` CPUs in `room`, or the widest there can be."""
    largest = max((_size([group], pieces, room) for group in groups), default=0)
    if largest >= min(width, DOMAIN_CPUS):
        return groups
    runs = [run for run in _runs(groups, pieces) if _size(run, pieces) <= DOMAIN_CPUS]
    enough = [run for run in runs if _size(run, pieces, room) >= width]
    if enough:
        best = min(enough, key=lambda run: (_nodes(run, pieces), len(run), _size(run, pieces), run))
        return _merged(groups, best)
    best = max(runs, key=lambda run: (_size(run, pieces, room), -_nodes(run, pieces), -len(run)), default=[])
    return _merged(groups, best) if best and _size(best, pieces, room) > largest else groups


def _runs(groups: list[list[int]], pieces: list[Piece]) -> Iterable[list[list[int]]]:
    """Neighbouring groups of one kind of core."""
    for first in range(len(groups)):
        for last in range(first + 1, len(groups)):
            run = groups[first : last + 1]
            if len({cpu.kind for group in run for n in group for cpu in pieces[n]}) > 1:
                break
            yield run


def _nodes(run: Sequence[list[int]], pieces: list[Piece]) -> int:
    return len({cpu.node for group in run for n in group for cpu in pieces[n]})


def _domain(index: int, group: list[int], pieces: list[Piece], topology: Topology) -> GangDomain:
    cpus = [cpu for number in group for cpu in pieces[number]]
    kinds = sorted({cpu.kind for cpu in topology.cpus}, key=_slowness)
    return GangDomain(
        index=index,
        cpus=tuple(cpu.id for cpu in cpus),
        reason=_reason(cpus, topology),
        cores=tuple(cpu.core for cpu in cpus),
        slower=kinds.index(cpus[0].kind),
    )


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
        return f"{named} span {caches} last-level caches of node {nodes[0]}: no cache is as wide as a guest"
    far = max((topology.distance(a, b) or 0 for a in nodes for b in nodes), default=0)
    cost = f" at up to {far / 10:g} times the distance" if far else ""
    return f"{named} span nodes {format_cpulist(nodes)}: memory of one is{cost} away for the rest"
