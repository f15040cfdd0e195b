# SPDX-License-Identifier: Apache-2.0
"""Where the vCPUs of a gang go: whole cores of one last-level cache, least crowded first. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import cycle

from gangd.model.domain import Domain
from gangd.model.plan import GangDomain, Placement
from gangd.model.topology import Topology, format_cpulist

DOMAIN_CPUS = 64  # columns of a gang domain: GANG_DOMAIN_CPUS of gang_abi.h


def gang_domains(topology: Topology) -> tuple[GangDomain, ...]:
    """One gang domain for each last-level cache; a larger cache is cut at core borders."""
    found: list[GangDomain] = []
    core_of = {cpu: core[0] for core in topology.cores() for cpu in core}
    for llc in topology.llcs():
        usable = [cpu for cpu in llc if cpu not in topology.isolated]
        for cpus in _cut(topology, usable):
            reason = f"CPUs {format_cpulist(cpus)} share a last-level cache"
            found.append(GangDomain(len(found), cpus, reason, tuple(core_of[cpu] for cpu in cpus)))
    return tuple(found)


def _cut(topology: Topology, cpus: list[int]) -> Iterable[tuple[int, ...]]:
    """The CPUs of one cache, core by core, in pieces of at most DOMAIN_CPUS."""
    piece: list[int] = []
    for core in topology.cores():
        mine = [cpu for cpu in core if cpu in cpus]
        if len(piece) + len(mine) > DOMAIN_CPUS:
            yield tuple(piece)
            piece = []
        piece += mine
    if piece:
        yield tuple(piece)


class Crowd:
    """How many gang members each CPU already has, while a plan is being made."""

    def __init__(self) -> None:
        self.members: Counter[int] = Counter()

    def of(self, cpus: Iterable[int]) -> int:
        """Members on some CPUs, added up."""
        return sum(self.members[cpu] for cpu in cpus)


def place(
    domain: Domain, topology: Topology, candidates: tuple[GangDomain, ...], crowd: Crowd
) -> tuple[GangDomain, tuple[Placement, ...]] | str:
    """Put a guest on the least crowded gang domain that holds it, one vCPU a CPU.

    Siblings of a core go to neighbouring vCPUs (0 and 1, 2 and 3, ...), so that
    no other guest of the same slot shares a core, save the last core of an odd
    guest. A guest with more vCPUs than any gang domain has CPUs gets the largest;
    there some of its vCPUs take turns. Returns a sentence when there is no CPU.
    """
    largest = max((len(found.cpus) for found in candidates), default=0)
    if not largest:
        return "no gang domain has a CPU"
    width = min(len(domain.vcpus), largest)
    wide = [found for found in candidates if len(found.cpus) >= width]
    cores = {found.index: _cores_of(found, topology) for found in wide}
    best = min(wide, key=lambda found: (_cost(cores[found.index], domain, crowd), found.index))
    chosen = _choose(cores[best.index], width, crowd)
    placements = tuple(
        Placement(vcpu.index, vcpu.tid, cpu, _reason(cpu, topology, crowd, number >= width))
        for number, (vcpu, cpu) in enumerate(zip(domain.vcpus, cycle(chosen), strict=False))
    )
    crowd.members.update(chosen)
    return best, placements


def _cores_of(found: GangDomain, topology: Topology) -> list[tuple[int, ...]]:
    return [mine for core in topology.cores() if (mine := tuple(c for c in core if c in found.cpus))]


def _choose(cores: list[tuple[int, ...]], count: int, crowd: Crowd) -> list[int]:
    """`count` CPUs, whole cores first, least crowded cores first, in CPU order."""
    ranked = sorted(cores, key=lambda core: (crowd.of(core) / len(core), core))
    chosen = [cpu for core in ranked for cpu in core][:count]
    order = {cpu: at for at, cpu in enumerate(cpu for core in cores for cpu in core)}
    return sorted(chosen, key=order.__getitem__)


def _cost(cores: list[tuple[int, ...]], domain: Domain, crowd: Crowd) -> int:
    """The members already where this guest would go."""
    return crowd.of(_choose(cores, len(domain.vcpus), crowd))


def _reason(cpu: int, topology: Topology, crowd: Crowd, again: bool) -> str:
    core = next(core for core in topology.cores() if cpu in core)
    thread = f", thread {core.index(cpu) + 1} of {len(core)}" if len(core) > 1 else ""
    others = crowd.members[cpu]
    shared = "free" if not others else f"shared in time with {others} other gang{'s'[: others > 1]}"
    turns = "; takes turns with another vCPU of this guest" if again else ""
    return f"core {core[0]}{thread}; {shared}{turns}"
