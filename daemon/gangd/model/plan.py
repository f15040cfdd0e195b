# SPDX-License-Identifier: Apache-2.0
"""The plan: the host as gangd wants it, with a reason for every line. Pure values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from gangd.model.domain import WEIGHT_DEFAULT, Domain, Helper, Mode, Vcpu
from gangd.model.profile import Choice
from gangd.model.topology import Topology


@dataclass(frozen=True)
class Placement:
    """vCPU `vcpu` (host thread `tid`) belongs on host CPU `cpu`, because of `reason`."""

    vcpu: int
    tid: int | None
    cpu: int
    reason: str


@dataclass(frozen=True)
class HelperPlace:
    """The emulator or I/O threads `name` of a guest belong on `cpus`, because of `reason`."""

    name: str
    cpus: frozenset[int]
    reason: str


@dataclass(frozen=True, order=True)
class Offer:
    """The columns that a cache offers a guest; the least offer is the best.

    rows: gangs on the fullest of the columns, before this guest. missed: cores the guest could fill, but does
    not get; of a guest that is spread, cores it shares with others. slower: kinds of core that are faster
    than its slowest. paired: vCPUs of a guest that is spread beside another of its own on one core. meets:
    gangs that share a column with the guest. left: columns that stay as empty.
    """

    rows: int
    missed: int
    slower: int
    paired: int
    meets: int
    left: int
    cache: int
    cpus: tuple[int, ...] = field(compare=False)

    @property
    def cost(self) -> tuple[int, int, int]:
        """Return the part of the offer that has to get less for a guest to be moved."""
        return self.rows, self.missed, self.paired

    @property
    def why_not(self) -> str:
        """Return the reasons against this offer, beside a better one."""
        found = [f"{self.rows} gang{'s'[: self.rows != 1]} there already"] if self.rows else []
        if self.missed:
            found += [f"{self.missed} core{'s'[: self.missed != 1]} to be shared with others"]
        found += ["slower cores"] if self.slower else []
        if self.paired:
            found += [f"{self.paired} vCPU{'s'[: self.paired != 1]} more than cores"]
        return ", ".join(found) or f"leaves {self.left} CPUs unused beside it"


@dataclass(frozen=True)
class Cache:
    """The CPUs over which gangs are co-scheduled; a gang never spans two.

    cores: for each CPU the lowest one on the same core; empty: every CPU is a core by itself.
    slower: for each CPU how many kinds of core of this host are faster; empty: none.
    """

    index: int
    cpus: tuple[int, ...]
    reason: str
    cores: tuple[int, ...] = ()
    slower: tuple[int, ...] = ()


class Basis(NamedTuple):
    """All that a guest's placements and helpers follow from; what its plan holds of them is good as long as
    this is the same. hand: by vCPU where an operator wants it, None = anywhere. room:
    the CPUs that all of its vCPUs may have, None = all."""

    topology: Topology
    vcpus: tuple[Vcpu, ...]
    helpers: tuple[Helper, ...]
    allowed: frozenset[int]
    hand: tuple[frozenset[int] | None, ...]
    room: frozenset[int] | None
    cache: Cache
    cpus: tuple[int, ...]

    def is_of(self, domain: Domain, topology: Topology) -> bool:
        """True if nothing changed but, maybe, where the guest is."""
        mine = domain.vcpus, domain.helpers, domain.allowed, topology
        return (self.vcpus, self.helpers, self.allowed, self.topology) == mine


@dataclass(frozen=True)
class GangPlan:
    """A guest to be scheduled as a gang in cache `cache`, None = it is left alone for now.

    placements: seats of its vCPUs; a scheduler that chooses CPUs itself goes by the cache alone.
    weight: in all, 1 to 10000; asked: what its mark or profile says of it, None = nothing. rejected: what
    the other caches had to offer when it was placed. policy: whose decision this is; memory, again:
    what it said beside (model/policy.py). still: the guest is paused or has crashed. basis: all that
    placements and helpers follow from (placement.py).
    """

    uuid: str
    name: str
    pid: int | None
    mode: Mode
    cache: int | None
    placements: tuple[Placement, ...]
    reason: str
    weight: int = WEIGHT_DEFAULT
    rejected: tuple[Offer, ...] = ()
    helpers: tuple[HelperPlace, ...] = ()
    policy: str = ""
    memory: object = field(default=None, compare=False)
    again: float | None = None
    asked: int | None = None
    still: bool = False
    basis: Basis | None = field(default=None, compare=False, repr=False)

    @property
    def needs_scheduler(self) -> bool:
        """True if the guest's mode has turns."""
        return self.mode.has_slots

    @property
    def has_turns(self) -> bool:
        """True if the guest has turns now: one that stands still keeps its place, and wants no CPU."""
        return self.needs_scheduler and not self.still

    def learned(self, now: GangPlan) -> GangPlan:
        """Return the gang in the same place, with what its policy knows `now`."""
        return replace(self, reason=now.reason, memory=now.memory, again=now.again)


@dataclass(frozen=True)
class Refusal:
    """A marked guest that is not scheduled as a gang, and why."""

    uuid: str
    name: str
    reason: str


@dataclass(frozen=True)
class Plan:
    """Everything wanted. An empty plan leaves the host alone.

    moved: vCPUs that leave the place they had, though it is still there. choices: by UUID, what was chosen
    for every domain that anybody spoke of, running or not. rows: by CPU, how many gangs have it as a column.
    asked: by UUID, what its policy was told and said (planner.py).
    """

    caches: tuple[Cache, ...] = ()
    gangs: tuple[GangPlan, ...] = ()
    refused: tuple[Refusal, ...] = ()
    moved: int = 0
    choices: Mapping[str, Choice] = field(default_factory=dict, compare=False)
    rows: Mapping[int, int] = field(default_factory=dict, compare=False)
    asked: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def why(self, place: Placement) -> str:
        """The reason for a place, and who else has the CPU: that changes with every guest that comes or goes,
        and the plans of the others do not."""
        others = self.rows.get(place.cpu, 1) - 1
        shared = f"shared in time with {others} other gang{'s'[: others > 1]}" if others > 0 else "free"
        return f"{place.reason}; {shared}"

    def gang(self, uuid: str) -> GangPlan | None:
        """The plan of one guest, None when it is not a gang."""
        return self._by_uuid.get(uuid)

    def refusal(self, uuid: str) -> Refusal | None:
        """Why one guest is no gang, None when it is one or is not to be."""
        return self._refused_by_uuid.get(uuid)

    @cached_property
    def scheduled(self) -> tuple[GangPlan, ...]:
        """Return the gangs, without the guests that are left alone for now."""
        return tuple(gang for gang in self.gangs if gang.mode is not Mode.OFF)

    @cached_property
    def again(self) -> float | None:
        """Seconds until the first of the policies wants another reading, None if none does."""
        return min((gang.again for gang in self.gangs if gang.again is not None), default=None)

    @cached_property
    def _by_uuid(self) -> dict[str, GangPlan]:
        return {gang.uuid: gang for gang in self.gangs}

    @cached_property
    def _refused_by_uuid(self) -> dict[str, Refusal]:
        return {refusal.uuid: refusal for refusal in self.refused}
