# SPDX-License-Identifier: Apache-2.0
"""What gangd wants of the host, with a reason for every line. Pure values."""

from __future__ import annotations

from dataclasses import dataclass

from gangd.model.domain import WEIGHT_DEFAULT, Mode


@dataclass(frozen=True)
class Placement:
    """vCPU `vcpu` (host thread `tid`) belongs on host CPU `cpu`, because of `reason`."""

    vcpu: int
    tid: int | None
    cpu: int
    reason: str


@dataclass(frozen=True)
class GangPlan:
    """One guest to be scheduled as a gang in gang domain `gang_domain`.

    weight: in all, 1 to 10000; shares: what the guest's own cgroup says of it (`virsh schedinfo`).
    """

    uuid: str
    name: str
    pid: int | None
    mode: Mode
    gang_domain: int
    placements: tuple[Placement, ...]
    reason: str
    weight: int = WEIGHT_DEFAULT
    shares: int = WEIGHT_DEFAULT


@dataclass(frozen=True)
class Refusal:
    """A marked guest that is not scheduled as a gang, and why."""

    uuid: str
    name: str
    reason: str


@dataclass(frozen=True)
class GangDomain:
    """The CPUs over which gangs are co-scheduled; a gang never spans two.

    cores: for each CPU the lowest one on the same core; empty: every CPU is a core by itself.
    """

    index: int
    cpus: tuple[int, ...]
    reason: str
    cores: tuple[int, ...] = ()


@dataclass(frozen=True)
class Plan:
    """Everything wanted. An empty plan leaves the host alone."""

    gang_domains: tuple[GangDomain, ...] = ()
    gangs: tuple[GangPlan, ...] = ()
    refused: tuple[Refusal, ...] = ()

    def gang(self, uuid: str) -> GangPlan | None:
        """The plan of one guest, None when it is not a gang."""
        return next((g for g in self.gangs if g.uuid == uuid), None)
