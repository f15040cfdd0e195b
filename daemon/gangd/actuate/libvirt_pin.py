# SPDX-License-Identifier: Apache-2.0
"""Pins vCPUs to host CPUs (threads_pin.py). Key `UUID/vcpu/N`.

What is read is libvirt's pin, unless the thread really may run outside it: then
somebody used taskset (possible where libvirt has no cpuset controller), and what
is read is where the thread may really run. A thread that taskset confined to
*part* of its pin reads as its pin, because a narrower cpuset of the guest's slice
looks the same from here; such a narrowing does not survive a pin and its undo.
So does a thread whose pin names only CPUs that are offline: the kernel lets it run
elsewhere until one of them is back, and nobody has changed the pin.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import libvirt

from gangd import virt
from gangd.actuate.base import Wanted
from gangd.actuate.pin_value import cpu_set
from gangd.actuate.threads_pin import LIVE, Threads, ThreadsPin
from gangd.errors import GangError, InvalidArgument
from gangd.model.plan import Plan


@dataclass(frozen=True)
class _Pins:
    """By vCPU of one guest: where its thread may run, and its pin."""

    actual: dict[int, frozenset[int]]
    pinned: dict[int, frozenset[int]]


class LibvirtPin(ThreadsPin):
    """Made as its base class is. In a pass libvirt is asked once for all vCPUs of a guest, and after each
    write."""

    name = "pin"

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
            if not self._roams(gang)
            for place in gang.placements
        }

    def _threads(self, key: str) -> Threads:
        uuid, _, index = key.partition("/vcpu/")
        if not index.isdecimal():
            raise InvalidArgument(f"'{key}' does not name a vCPU")
        return Threads(uuid, f"vcpu{index}", int(index), f"vCPU {index}")

    def _cpus(self, threads: Threads) -> frozenset[int] | None:
        last = self._pins(threads.uuid)
        actual = last.actual.get(threads.number)
        if actual is None:
            return None
        pinned = last.pinned.get(threads.number, actual)
        return pinned if actual <= pinned or not pinned & self._online() else actual

    def _pin(self, dom: Any, threads: Threads, cpus: tuple[bool, ...]) -> None:
        dom.pinVcpuFlags(threads.number, cpus, LIVE)

    def _pins(self, uuid: str) -> _Pins:
        if uuid in self._asked:
            known: _Pins = self._asked[uuid]
            return known
        pins = self._recalled(uuid) or self._ask(uuid)
        if self._passing:
            self._asked[uuid] = pins
        return pins

    def _recalled(self, uuid: str) -> _Pins | None:
        guest = self._recall.guest(uuid)
        if guest is None or not all(vcpu.actual for vcpu in guest.vcpus):
            return None
        actual = {vcpu.index: vcpu.actual for vcpu in guest.vcpus}
        return _Pins(actual, {vcpu.index: vcpu.affinity for vcpu in guest.vcpus})

    def _ask(self, uuid: str) -> _Pins:
        dom = self._domain(uuid)
        info, real = dom.vcpus()
        pins = dom.vcpuPinInfo(LIVE)
        actual = {entry[0]: cpu_set(cpus) for entry, cpus in zip(info, real, strict=False)}
        return _Pins(actual, {number: cpu_set(cpus) for number, cpus in enumerate(pins)})

    def _online(self) -> frozenset[int]:
        return cpu_set(self._connection().getCPUMap()[1])
