# SPDX-License-Identifier: Apache-2.0
"""Everything there is to show at one moment: what gangctl prints and /metrics exports.

Counters only grow while the thing they count lives. Unknown is None, never 0.
Times are seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, NamedTuple

from gangd.model.counters import GangStats
from gangd.model.domain import Mode
from gangd.model.plan import GangPlan, Plan
from gangd.model.refused import Refused
from gangd.model.state import State


class VcpuStats(NamedTuple):
    """A reading of a vCPU. cpu: where its thread ran last. exits: by reason name ("pause", "hlt", ...),
    None = no probe. A large host has thousands at each reading: a tuple is made in a fifth of a dataclass's
    time."""

    vcpu: int
    tid: int | None = None
    cpu_seconds: float | None = None
    run_delay_seconds: float | None = None
    switches: int | None = None
    exits: Mapping[str, int] | None = None
    pause_exits: int | None = None
    lhp_exits: int | None = None
    cpu: int | None = None


@dataclass(frozen=True)
class VcpuTotals:
    """The counters of all vCPUs of a guest added up, as in VcpuStats; None if one of them is not known. Those
    of unplugged vCPUs stay in, so that a total never falls while its guest lives."""

    cpu_seconds: float | None = None
    run_delay_seconds: float | None = None
    switches: int | None = None
    exits: Mapping[str, int] | None = None
    pause_exits: int | None = None
    lhp_exits: int | None = None

    @classmethod
    def of(cls, vcpus: Sequence[VcpuStats], gone: Sequence[VcpuStats] = ()) -> VcpuTotals:
        """The sums over vCPUs, and over what is known of those that are gone."""
        if not vcpus:
            return cls()
        numbers: dict[str, Any] = {name: _sum(vcpus, gone, name) for name in NUMBERS}
        return cls(**numbers, exits=_exits(vcpus, gone))


NUMBERS = tuple(field.name for field in fields(VcpuTotals) if field.name != "exits")


def _sum(vcpus: Sequence[VcpuStats], gone: Sequence[VcpuStats], name: str) -> int | float | None:
    values = [getattr(vcpu, name) for vcpu in vcpus]
    return None if None in values else sum(values) + sum(getattr(old, name) or 0 for old in gone)


def _exits(vcpus: Sequence[VcpuStats], gone: Sequence[VcpuStats]) -> Mapping[str, int] | None:
    if any(vcpu.exits is None for vcpu in vcpus):
        return None
    found: dict[str, int] = {}
    for vcpu in (*vcpus, *gone):
        for reason, count in (vcpu.exits or {}).items():
            found[reason] = found.get(reason, 0) + count
    return found


@dataclass(frozen=True)
class DomainStats:
    """A reading of a guest. run_seconds: at least one vCPU on CPU; corun_seconds and costop_seconds: the
    parts of it in which no runnable vCPU was off-CPU, and in which one was (gang_abi.h, lhp_guest).
    throttled: seconds for which each cgroup with a cpu.max held its vCPUs off. gone: the last readings of
    unplugged vCPUs."""

    uuid: str
    vcpus: tuple[VcpuStats, ...] = ()
    run_seconds: float | None = None
    corun_seconds: float | None = None
    costop_seconds: float | None = None
    gang: GangStats | None = None
    throttled: Mapping[str, float] = field(default_factory=dict)
    gone: tuple[VcpuStats, ...] = ()

    @cached_property
    def total(self) -> VcpuTotals:
        """All of its vCPUs together, added up for who asks."""
        return VcpuTotals.of(self.vcpus, self.gone)


@dataclass(frozen=True)
class Part:
    """A part of gangd (backend, probes): whether it works, and in one sentence why or why not.

    name: e.g. "sched_ext"; active: it is in use now; usable: it could be;
    detail: counters or versions worth showing; histograms: counts by bucket, of which bucket b is of
    times below 2^b microseconds; roams: a backend's scheduler chooses CPUs for members of gangs;
    fair: it takes nothing from tasks beside them.
    """

    name: str
    active: bool
    usable: bool
    reason: str
    detail: Mapping[str, int | float | str] = field(default_factory=dict)
    histograms: Mapping[str, Sequence[int]] = field(default_factory=dict)
    roams: bool = False
    fair: bool = False

    @property
    def news(self) -> tuple[object, ...]:
        """Return the fields that wake clients waiting for a change; the other counters grow all the time."""
        return self.name, self.active, self.usable, self.reason, self.detail.get("ejections")


@dataclass(frozen=True)
class SelfStats:
    """The cost of gangd itself, and its counters since it started."""

    pid: int
    started: float
    cpu_seconds: float
    rss_bytes: int
    resyncs: int = 0
    events: int = 0
    writes: int = 0
    write_failures: int = 0
    undone: int = 0


@dataclass(frozen=True)
class Snapshot:
    """time: seconds since the epoch; age: of `stats`, seconds; read_at: time.monotonic() at their reading;
    kernel: `uname -r`; failures: what could not be applied at the last attempt, one sentence each; undone:
    UUIDs of marked or selected domains that an operator had put back, and that are left alone since;
    refused: by UUID, what could not be applied of guests that are planned."""

    version: str
    time: float
    kernel: str
    state: State
    plan: Plan
    backend: Part
    probes: Part
    own: SelfStats
    stats: Mapping[str, DomainStats] = field(default_factory=dict)
    failures: tuple[str, ...] = ()
    undone: frozenset[str] = frozenset()
    refused: Mapping[str, Refused] = field(default_factory=dict)
    age: float = 0.0
    read_at: float | None = None

    def roams(self, gang: GangPlan) -> bool:
        """True of a gang whose members have no CPUs of their own: what is planned is its cache."""
        return gang.mode is Mode.OFF or (self.backend.roams and gang.needs_scheduler)
