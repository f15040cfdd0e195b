# SPDX-License-Identifier: Apache-2.0
"""Pins a guest's emulator and I/O threads (threads_pin.py) off the CPUs of its own gang.

Key `UUID/emulator` or `UUID/iothread/N`. The vhost threads are in the emulator's group and go with it.
"""

from __future__ import annotations

from typing import Any

from gangd.actuate.base import Wanted
from gangd.actuate.pin_value import cpu_set
from gangd.actuate.threads_pin import LIVE, Threads, ThreadsPin
from gangd.errors import InvalidArgument
from gangd.model.cpulist import format_cpulist
from gangd.model.plan import Plan

EMULATOR, IOTHREAD = "emulator", "iothread"


class HelperPin(ThreadsPin):
    """Made as its base class is."""

    name = "helper-pin"

    def probe(self) -> str | None:
        """None: where vCPUs can be pinned so can these, and what cannot is not in a plan."""
        return None

    def wanted(self, plan: Plan) -> dict[str, Wanted]:
        """One setting per helper of the plan."""
        return {
            f"{gang.uuid}/{helper.name}": Wanted(format_cpulist(helper.cpus), helper.reason)
            for gang in plan.gangs
            if not self._roams(gang)
            for helper in gang.helpers
        }

    def _threads(self, key: str) -> Threads:
        uuid, _, rest = key.partition("/")
        kind, _, number = rest.partition("/")
        if kind == EMULATOR and "/" not in rest:
            return Threads(uuid, EMULATOR, 0, "the emulator threads", many=True)
        if kind == IOTHREAD and number.isdecimal():
            return Threads(uuid, f"{IOTHREAD}{number}", int(number), f"I/O thread {number}")
        raise InvalidArgument(f"'{key}' names neither emulator nor I/O threads")

    def _cpus(self, threads: Threads) -> frozenset[int] | None:
        guest = self._recall.guest(threads.uuid)
        known = {helper.name.replace("/", ""): helper.affinity for helper in guest.helpers} if guest else {}
        if threads.group in known:
            return known[threads.group]
        dom = self._domain(threads.uuid)
        if not dom.isActive():
            return None
        if threads.group == EMULATOR:
            return cpu_set(dom.emulatorPinInfo(LIVE))
        return {number: cpu_set(cpus) for number, cpus in dom.ioThreadInfo(LIVE)}.get(threads.number)

    def _pin(self, dom: Any, threads: Threads, cpus: tuple[bool, ...]) -> None:
        if threads.group == EMULATOR:
            dom.pinEmulator(cpus, LIVE)
        else:
            dom.pinIOThread(threads.number, cpus, LIVE)
