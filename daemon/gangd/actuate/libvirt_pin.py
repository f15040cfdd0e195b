# SPDX-License-Identifier: Apache-2.0
"""Pins vCPUs to host CPUs through libvirt, live only: the domain's configuration is never touched.

Key `UUID/vcpu/N`, value a kernel CPU list ("3", "0-1"). libvirt sets both the
vcpuN cpuset and the thread's own affinity, and remembers the pin itself, so a
restart of libvirtd does not undo it.

What is read is libvirt's pin, unless the thread really may run outside it: then
somebody used taskset (possible where libvirt has no cpuset controller), and what
is read is where the thread may really run. With cgroup v2 a vCPU that was never
pinned has an empty cpuset of its own: it inherits the guest's. libvirt cannot make
it empty again, so that state has a value of its own, "0-3 (inherited)", and is put
back by gangd (cpuset.py). A thread that taskset confined to
*part* of its pin reads as its pin, because a narrower cpuset of the guest's slice
looks the same from here; such a narrowing does not survive a pin and its undo.
So does a thread whose pin names only CPUs that are offline: the kernel lets it run
elsewhere until one of them is back, and nobody has changed the pin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import libvirt

from gangd import virt
from gangd.actuate.base import Wanted
from gangd.actuate.cpuset import inherit, prepare
from gangd.errors import GangError, InvalidArgument, NotRunning
from gangd.model.plan import Plan
from gangd.model.topology import format_cpulist, parse_cpulist

INHERITED = " (inherited)"
CPUSET = "cpuset.cpus"


@dataclass(frozen=True)
class _Pins:
    """What libvirt says of one domain: where its threads may run, and its pins.

    groups: the folder of its threads' cgroups, None where libvirt made none.
    """

    actual: dict[int, frozenset[int]]
    pinned: list[frozenset[int]]
    groups: Path | None


def no_cpuset(_name: str, _uuid: str, _group: str) -> Path | None:
    """For tests, and where libvirt uses no cgroups."""
    return None


class LibvirtPin:
    """connection: gives the current virConnect or raises NoLibvirt.

    cpuset: finds the cpuset.cpus file of a vCPU by domain name, UUID and the name of its group ("vcpu0"),
    None where there is none.
    """

    name = "pin"

    def __init__(
        self, connection: Callable[[], Any], cpuset: Callable[[str, str, str], Path | None] = no_cpuset
    ) -> None:
        self._connection = connection
        self._cpuset = cpuset
        self._seen: dict[str, _Pins] | None = None  # in a pass: by UUID

    def begin(self) -> None:
        """From now on libvirt is asked once for all vCPUs of a guest, and after each write."""
        self._seen = {}

    def end(self) -> None:
        """From now on it is asked at every read."""
        self._seen = None

    def probe(self) -> str | None:
        """None when vCPUs can be pinned, else what is missing."""
        try:
            driver = self._connection().getType()
        except GangError as error:
            return error.cause
        except libvirt.libvirtError as error:
            return virt.translate(error).cause
        return None if driver == "QEMU" else f"libvirt's {driver} driver cannot pin running vCPUs"

    def wanted(self, plan: Plan) -> dict[str, Wanted]:
        """One setting per placement of the plan."""
        return {
            f"{gang.uuid}/vcpu/{place.vcpu}": Wanted(str(place.cpu), place.reason)
            for gang in plan.gangs
            for place in gang.placements
        }

    def read(self, key: str) -> str | None:
        """The CPUs the vCPU may run on now; None when domain or vCPU is gone or not running."""
        uuid, index = _parse(key)
        try:
            last = self._pins(uuid, index)
        except libvirt.libvirtError as error:
            if virt.is_gone(error):
                return None
            raise virt.translate(error).during(f"failed to read the pin of {self._object(key)}")
        if index not in last.actual:
            return None
        actual = last.actual[index]
        pinned = last.pinned[index] if index < len(last.pinned) else actual
        value = format_cpulist(pinned if actual <= pinned or not pinned & self._online() else actual)
        inherited = last.groups and not (last.groups / f"vcpu{index}" / CPUSET).read_text().strip()
        return value + INHERITED if inherited else value

    def write(self, key: str, value: str) -> None:
        """Pin the vCPU to the CPU list `value`.

        Raises NoSuchDomain or NotRunning when it is gone, InvalidArgument for a
        value that is no CPU list, GangError with libvirt's cause otherwise.
        """
        uuid, index = _parse(key)
        if self._seen:
            self._seen.pop(uuid, None)
        action = f"failed to pin {self._object(key)} to {value}"
        try:
            cpus = plain(value)
        except ValueError:
            raise InvalidArgument(f"'{value}' is not a list of CPUs", action)
        try:
            conn = self._connection()
            dom = conn.lookupByUUIDString(uuid)
            if not dom.isActive():
                raise NotRunning("domain is not running", action)
            own = self._cpuset(dom.name(), uuid, f"vcpu{index}")
            if own:
                prepare(own, cpus, action)
            dom.pinVcpuFlags(index, cpu_map(conn, cpus), libvirt.VIR_DOMAIN_AFFECT_LIVE)
        except libvirt.libvirtError as error:
            raise virt.translate(error).during(action)
        if own and value.endswith(INHERITED):
            inherit(own)

    def _pins(self, uuid: str, index: int) -> _Pins:
        seen = {} if self._seen is None else self._seen
        if uuid not in seen:
            seen[uuid] = self._ask(uuid, index)
        return seen[uuid]

    def _ask(self, uuid: str, index: int) -> _Pins:
        dom = self._connection().lookupByUUIDString(uuid)
        info, real = dom.vcpus()
        pins = dom.vcpuPinInfo(libvirt.VIR_DOMAIN_AFFECT_LIVE)
        own = self._cpuset(dom.name(), uuid, f"vcpu{index}")
        return _Pins(
            {entry[0]: cpu_set(cpus) for entry, cpus in zip(info, real, strict=False)},
            [cpu_set(cpus) for cpus in pins],
            own.parent.parent if own else None,
        )

    def _online(self) -> frozenset[int]:
        return cpu_set(self._connection().getCPUMap()[1])

    def describe(self, key: str) -> str:
        """The setting in words."""
        return f"the pin of {self._object(key)}"

    def changed(self, key: str, value: str) -> str:
        """The sentence that says somebody else set `key` to `value`."""
        return f"{self._object(key)} was pinned by hand to {value}"

    def show(self, value: str) -> str:
        """A CPU list is readable as it is."""
        return f"CPU {value}"

    def _object(self, key: str) -> str:
        """ "vCPU 1 of 'vm'"; the UUID stands in for a name that cannot be had."""
        uuid, index = _parse(key)
        try:
            name = self._connection().lookupByUUIDString(uuid).name()
        except (GangError, libvirt.libvirtError):
            name = uuid
        return f"vCPU {index} of '{name}'"


def plain(value: str) -> frozenset[int]:
    """The CPUs of a pin's value, whoever they were inherited from."""
    return parse_cpulist(value.removesuffix(INHERITED))


def _parse(key: str) -> tuple[str, int]:
    uuid, _, index = key.partition("/vcpu/")
    if not index.isdecimal():
        raise InvalidArgument(f"'{key}' does not name a vCPU")
    return uuid, int(index)


def cpu_map(conn: Any, cpus: frozenset[int]) -> tuple[bool, ...]:
    """For libvirt-python, which refuses a map that does not name every host CPU."""
    return tuple(cpu in cpus for cpu in range(max(conn.getCPUMap()[0], max(cpus, default=0) + 1)))


def cpu_set(flags: Iterable[bool]) -> frozenset[int]:
    """The CPUs of a map of libvirt-python."""
    return frozenset(cpu for cpu, allowed in enumerate(flags) if allowed)
