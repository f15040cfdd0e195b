# SPDX-License-Identifier: Apache-2.0
"""Counters of vCPUs added up for each guest, so that a total never falls while the guest lives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, fields
from typing import Any

from gangd.model.domain import Domain
from gangd.model.snapshot import VcpuStats, VcpuTotals

NUMBERS = tuple(field.name for field in fields(VcpuTotals) if field.name != "exits")


@dataclass
class _Account:
    """A guest since its start as process `pid`. last: the newest reading of each vCPU whose thread was known,
    by number; gone: the last readings of threads that were unplugged."""

    pid: int | None
    last: dict[int, VcpuStats] = field(default_factory=dict)
    gone: list[VcpuStats] = field(default_factory=list)

    def read(self, vcpus: Sequence[VcpuStats]) -> None:
        """Take a reading up. A vCPU whose thread is not known just now is not gone."""
        now = {vcpu.vcpu: vcpu for vcpu in vcpus}
        for number, old in list(self.last.items()):
            if number not in now or now[number].tid not in (None, old.tid):
                self.gone.append(self.last.pop(number))
        self.last |= {number: vcpu for number, vcpu in now.items() if vcpu.tid is not None}


class Totals:
    """Remembers the last reading of each guest, for the vCPUs that the next one lacks."""

    def __init__(self) -> None:
        self._accounts: dict[str, _Account] = {}

    def add_up(self, domain: Domain, vcpus: Sequence[VcpuStats]) -> VcpuTotals:
        """The totals of a guest, of which `vcpus` is a new reading."""
        account = self._accounts.get(domain.uuid)
        if account is None or account.pid != domain.pid:
            account = self._accounts[domain.uuid] = _Account(domain.pid)
        if vcpus:
            account.read(vcpus)
        return total(vcpus, account.gone)

    def keep(self, uuids: Set[str]) -> None:
        """Forget all guests but these."""
        self._accounts = {uuid: one for uuid, one in self._accounts.items() if uuid in uuids}


def total(vcpus: Sequence[VcpuStats], gone: Sequence[VcpuStats] = ()) -> VcpuTotals:
    """The sums over vCPUs, and over what is known of those that are gone."""
    if not vcpus:
        return VcpuTotals()
    numbers: dict[str, Any] = {name: _sum(vcpus, gone, name) for name in NUMBERS}
    return VcpuTotals(**numbers, exits=_exits(vcpus, gone))


def _sum(vcpus: Sequence[VcpuStats], gone: Sequence[VcpuStats], name: str) -> int | float | None:
    values = [getattr(vcpu, name) for vcpu in vcpus]
    return None if None in values else sum(values) + sum(getattr(old, name) or 0 for old in gone)


def _exits(vcpus: Sequence[VcpuStats], gone: Sequence[VcpuStats]) -> Mapping[str, int] | None:
    if any(vcpu.exits is None for vcpu in vcpus):
        return None
    found: Counter[str] = Counter()
    for vcpu in (*vcpus, *gone):
        found.update(vcpu.exits or {})
    return found
