# SPDX-License-Identifier: Apache-2.0
"""Guests as gangd sees them: libvirt domains, their vCPUs and their marks. Pure values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

NAMESPACE = "urn:gangd:domain:1"
WEIGHT_DEFAULT = 100


class Mode(StrEnum):
    """How a gang is scheduled, loosest first (docs/glossary.md)."""

    OFF = "off"
    BALANCE = "balance"
    RELAXED = "relaxed"
    STRICT = "strict"

    @property
    def has_slots(self) -> bool:
        """Needs a scheduler in the kernel; balance is placement alone."""
        return self in (Mode.RELAXED, Mode.STRICT)


@dataclass(frozen=True)
class Mark:
    """An operator's request for a domain, stored in the domain's own metadata (see `gangd.model.mark`).

    policy: name of the policy (entry point group gangd.policies) or profile that schedules the guest; `off`:
        gangd leaves it alone; None = the operator's selectors and default decide (`gangd.model.profile`).
    weight: 1 to 10000 on the cgroup v2 scale, None = the profile's, else the domain's own CPU shares.
    tag: a word for selectors to look for.
    """

    policy: str | None = "relaxed"
    weight: int | None = None
    tag: str | None = None

    def __str__(self) -> str:
        """Return the parts that are set, as in "policy relaxed, weight 300"."""
        parts = {"policy": self.policy, "weight": self.weight, "tag": self.tag}
        return ", ".join(f"{name} {value}" for name, value in parts.items() if value is not None)


LIBVIRT, KVM = "libvirt", "kvm"  # who tells of a guest
STILL = frozenset({"paused", "crashed", "pmsuspended"})  # of events/domain_reader.py's states


@dataclass(frozen=True)
class Vcpu:
    """A vCPU of a running guest.

    tid: the host thread, None while it cannot be found; with `starttime`
        (/proc/PID/stat field 22, clock ticks) it identifies one thread for ever.
    affinity: host CPUs libvirt lets it run on now (the live pin). actual: those the kernel lets it
        run on, empty = unknown. real_time: it is a real-time task (`vcpusched`), or gang.ko has made it one.
    """

    index: int
    tid: int | None = None
    starttime: int | None = None
    affinity: frozenset[int] = frozenset()
    actual: frozenset[int] = frozenset()
    real_time: bool = False


@dataclass(frozen=True)
class Helper:
    """Threads of a running guest beside its vCPUs, by libvirt's names: "emulator" (the vhost threads among
    them), "iothread/1". affinity: host CPUs that somebody pinned them to, empty = nobody did."""

    name: str
    affinity: frozenset[int] = frozenset()


@dataclass(frozen=True)
class ThreadGroup:
    """Threads of a guest in a cgroup of their own. room: CPUs that it leaves them; empty: not known."""

    tids: tuple[int, ...]
    room: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Domain:
    """A guest: a libvirt domain, or a virtual machine of KVM's.

    id: libvirt's number while it runs, or the PID of one that KVM tells of, else None. pid: its process.
    mark: None = not marked. mark_error: why present metadata could not be used.
    weight: CPU weight on the cgroup v2 scale from the domain's scheduler
        parameters (`virsh schedinfo`), None = unknown.
    allowed: host CPUs that the cgroups around its threads leave them (`cpuset.cpus.effective`), empty = no
        limit is known.
    busy: why it is observed and not touched now, "" = it is not busy; what libvirt does not tell is as it was
        known last.
    hidden: why nobody is sure of the threads of its vCPUs, "" = everybody is, or the reason is not known.
    source, cgroup: who tells of it, and the cgroup of one that KVM tells of; libvirt's have names instead.
    """

    uuid: str
    name: str
    id: int | None = None
    pid: int | None = None
    state: str = "shut off"
    vcpus: tuple[Vcpu, ...] = ()
    helpers: tuple[Helper, ...] = ()
    mark: Mark | None = None
    mark_error: str | None = None
    weight: int | None = None
    memory_kib: int | None = None
    allowed: frozenset[int] = frozenset()
    busy: str = ""
    hidden: str = ""
    source: str = LIBVIRT
    cgroup: str = ""

    @property
    def running(self) -> bool:
        """True while the guest has vCPU threads (also when paused)."""
        return self.id is not None

    @property
    def stands_still(self) -> bool:
        """True while none of its vCPUs runs until somebody says so."""
        return self.state in STILL
