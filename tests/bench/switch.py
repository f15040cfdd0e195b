# SPDX-License-Identifier: Apache-2.0
"""Puts the running guests under a variant, and takes them out again.

Affinity is set on the vCPU threads themselves: the same call that libvirt makes in the end, without
sixteen questions to a libvirtd that waits for a CPU. A loaded full-switch scheduler schedules everything,
also with no gang in it, so whatever is not its own is measured with it unloaded.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.backends import load
from bench.variants import Variant
from gangd.actuate.backend import Loaded
from gangd.actuate.gang_setting import CacheSetting, GangSetting, Member
from gangd.model.cpulist import parse_cpulist
from lab.guests.domains import Guest


@dataclass(frozen=True)
class Gang:
    """A guest as a backend has it."""

    number: int
    setting: GangSetting


def cores(cpus: Sequence[int]) -> list[int]:
    """Return for each CPU the lowest one on the same core."""
    found = []
    for cpu in cpus:
        siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text()
        found.append(min(parse_cpulist(siblings)))
    return found


class Switch:
    """The backend that is loaded now and the guests that are gangs in it. cpus: how many there are.

    The first guest has the first CPUs, the next guest the next ones, and after the last CPU comes the first
    again: each guest's vCPU i and its neighbours' compete for one CPU. A guest that is not pinned may run on
    all of them.
    """

    def __init__(self, slot_us: int, cpus: int) -> None:
        self._slot_us = slot_us
        self._cpus = list(range(cpus))
        self._columns = {cpu: column for column, cpu in enumerate(self._cpus)}
        self._backend: str | None = None  # what is loaded
        self._loaded: Loaded | None = None
        self._gangs: list[Gang] = []

    def enter(self, variant: Variant, guests: Sequence[Guest]) -> None:
        """Schedule `guests` so. Raises Missing when it is not to be had here, GangError when refused."""
        self._drop_gangs()
        if variant.backend != self._backend:
            self.close()
        for number, guest in enumerate(guests):
            for vcpu, tid in guest.threads().items():
                cpu = self._cpu(number, vcpu, len(guest.threads()), variant)
                os.sched_setaffinity(tid, {cpu} if variant.pinned else set(self._cpus))
        if variant.backend is None:
            return
        if self._loaded is None:
            self._loaded, self._backend = load(variant.backend), variant.backend
        self._loaded.set_cache(0, CacheSetting(tuple(self._cpus), self._slot_us, tuple(cores(self._cpus))))
        for number, guest in enumerate(guests, 1):
            gang = Gang(number, self._setting(number - 1, guest, variant))
            self._loaded.set_gang(number, gang.setting, self._columns)
            self._gangs.append(gang)

    def start_skew(self) -> list[int]:
        """The backend's histogram: how many turns started within 2^b us; empty where it has none."""
        return self._loaded.histograms().get("start_skew", []) if self._loaded else []

    def stats(self) -> list[Any]:
        """The counters of every gang now (gang_abi.h, gang_stats); none under the default class."""
        return [self._loaded.gang_stats(gang.number) for gang in self._gangs] if self._loaded else []

    def ejected(self) -> str | None:
        """Return why the kernel ejected the backend, None while it is loaded or none was."""
        found = self._loaded.ejected() if self._loaded else None
        return found.sentence if found else None

    def close(self) -> None:
        """Put the guests back into the default class."""
        self._drop_gangs()
        if self._loaded:
            self._loaded.close()
        self._loaded, self._backend = None, None

    def _drop_gangs(self) -> None:
        gangs, self._gangs = self._gangs, []
        for gang in gangs:
            if self._loaded and not self._loaded.ejected():
                self._loaded.drop_gang(gang.number, gang.setting)

    def _cpu(self, number: int, vcpu: int, width: int, variant: Variant) -> int:
        first = number * width
        turn = first // len(self._cpus) if variant.turned else 0
        return self._cpus[(first + (vcpu + turn) % width) % len(self._cpus)]

    def _setting(self, number: int, guest: Guest, variant: Variant) -> GangSetting:
        """Return the gang's setting as the actuator writes it."""
        threads = sorted(guest.threads().items())
        members = (Member(vcpu, tid, self._cpu(number, vcpu, len(threads), variant)) for vcpu, tid in threads)
        return GangSetting(0, tuple(members), variant.mode, guest.pid)
