# SPDX-License-Identifier: Apache-2.0
"""The readings of vCPUs that were unplugged, so that a guest's total never falls while the guest lives."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

from gangd.model.domain import Domain
from gangd.model.snapshot import VcpuStats


@dataclass
class _Account:
    """A guest since its start as process `pid`. last: the newest reading of each vCPU whose thread was known;
    gone: the last readings of threads that were unplugged."""

    pid: int | None
    last: Sequence[VcpuStats] = ()
    gone: tuple[VcpuStats, ...] = ()

    def read(self, vcpus: Sequence[VcpuStats]) -> None:
        """Take a reading up. A vCPU whose thread is not known just now is not gone."""
        if [(old.vcpu, old.tid) for old in self.last] == [(vcpu.vcpu, vcpu.tid) for vcpu in vcpus]:
            self.last = vcpus
            return
        now = {vcpu.vcpu: vcpu for vcpu in vcpus}
        kept = {
            old.vcpu: old for old in self.last if old.vcpu in now and now[old.vcpu].tid in (None, old.tid)
        }
        self.gone += tuple(old for old in self.last if old.vcpu not in kept)
        kept |= {number: vcpu for number, vcpu in now.items() if vcpu.tid is not None}
        self.last = tuple(kept.values())


class Totals:
    """Remembers the last reading of each guest, for the vCPUs that the next one lacks."""

    def __init__(self) -> None:
        self._accounts: dict[str, _Account] = {}

    def gone(self, domain: Domain, vcpus: Sequence[VcpuStats]) -> tuple[VcpuStats, ...]:
        """The last readings of the vCPUs that a guest had, and has not in the new reading `vcpus`."""
        account = self._accounts.get(domain.uuid)
        if account is None or account.pid != domain.pid:
            account = self._accounts[domain.uuid] = _Account(domain.pid)
        if vcpus:
            account.read(vcpus)
        return account.gone

    def keep(self, uuids: Set[str]) -> None:
        """Forget all guests but these."""
        self._accounts = {uuid: one for uuid, one in self._accounts.items() if uuid in uuids}
