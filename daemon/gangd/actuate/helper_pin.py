# SPDX-License-Identifier: Apache-2.0
"""Pins a guest's emulator and I/O threads through libvirt, live only, off the CPUs of its own gang.

Key `UUID/emulator` or `UUID/iothread/N`, value a kernel CPU list, with " (inherited)" for threads
that were never pinned, as for vCPUs (libvirt_pin.py). The vhost threads are in the emulator's group
and go with it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import libvirt

from gangd import virt
from gangd.actuate.base import Wanted
from gangd.actuate.cpuset import inherit, prepare
from gangd.actuate.libvirt_pin import INHERITED, cpu_map, cpu_set, no_cpuset, plain
from gangd.errors import GangError, InvalidArgument, NotRunning
from gangd.model.plan import Plan
from gangd.model.topology import format_cpulist

LIVE = libvirt.VIR_DOMAIN_AFFECT_LIVE
EMULATOR, IOTHREAD = "emulator", "iothread"


class HelperPin:
    """connection: gives the current virConnect or raises NoLibvirt.

    cpuset: finds the cpuset.cpus file of a group of threads by domain name, UUID and the group's name
    ("emulator", "iothread1"), None where there is none.
    """

    name = "helper-pin"

    def __init__(
        self, connection: Callable[[], Any], cpuset: Callable[[str, str, str], Path | None] = no_cpuset
    ) -> None:
        self._connection = connection
        self._cpuset = cpuset

    def probe(self) -> str | None:
        """None: where vCPUs can be pinned so can these, and what cannot is not in a plan."""
        return None

    def wanted(self, plan: Plan) -> dict[str, Wanted]:
        """One setting per helper of the plan."""
        return {
            f"{gang.uuid}/{helper.name}": Wanted(format_cpulist(helper.cpus), helper.reason)
            for gang in plan.gangs
            for helper in gang.helpers
        }

    def read(self, key: str) -> str | None:
        """The CPUs the threads may run on now; None when they are gone or the domain does not run."""
        uuid, kind, number = _parse(key)
        try:
            dom = self._connection().lookupByUUIDString(uuid)
            if not dom.isActive():
                return None
            if kind == EMULATOR:
                cpus = cpu_set(dom.emulatorPinInfo(LIVE))
            else:
                pins = {thread: cpu_set(flags) for thread, flags in dom.ioThreadInfo(LIVE)}
                if number not in pins:
                    return None
                cpus = pins[number]
            own = self._group(dom, kind, number)
        except libvirt.libvirtError as error:
            if virt.is_gone(error):
                return None
            raise virt.translate(error).during(f"failed to read the pin of {self._object(key)}")
        return format_cpulist(cpus) + (INHERITED if own and not own.read_text().strip() else "")

    def write(self, key: str, value: str) -> None:
        """Pin the threads to the CPU list `value`.

        Raises NoSuchDomain or NotRunning when they are gone, InvalidArgument for a value that is no CPU
        list, GangError with libvirt's cause otherwise.
        """
        uuid, kind, number = _parse(key)
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
            own = self._group(dom, kind, number)
            if own:
                prepare(own, cpus, action)
            if kind == EMULATOR:
                dom.pinEmulator(cpu_map(conn, cpus), LIVE)
            else:
                dom.pinIOThread(number, cpu_map(conn, cpus), LIVE)
        except libvirt.libvirtError as error:
            raise virt.translate(error).during(action)
        if own and value.endswith(INHERITED):
            inherit(own)

    def _group(self, dom: Any, kind: str, number: int) -> Path | None:
        return self._cpuset(dom.name(), dom.UUIDString(), kind if kind == EMULATOR else f"{kind}{number}")

    def describe(self, key: str) -> str:
        """The setting in words."""
        return f"the pin of {self._object(key)}"

    def changed(self, key: str, value: str) -> str:
        """The sentence that says somebody else set `key` to `value`."""
        return f"somebody pinned {self._object(key)} by hand to {value}"

    def show(self, value: str) -> str:
        """A CPU list is readable as it is."""
        return f"CPU {value}"

    def _object(self, key: str) -> str:
        """ "the emulator threads of 'vm'"; the UUID stands in for a name that cannot be had."""
        uuid, kind, number = _parse(key)
        try:
            name = self._connection().lookupByUUIDString(uuid).name()
        except (GangError, libvirt.libvirtError):
            name = uuid
        return f"the emulator threads of '{name}'" if kind == EMULATOR else f"I/O thread {number} of '{name}'"


def _parse(key: str) -> tuple[str, str, int]:
    uuid, _, rest = key.partition("/")
    kind, _, number = rest.partition("/")
    if rest == EMULATOR or (kind == IOTHREAD and number.isdecimal()):
        return uuid, kind, int(number or 0)
    raise InvalidArgument(f"'{key}' names no helper threads")
