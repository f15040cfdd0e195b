# SPDX-License-Identifier: Apache-2.0
"""Puts the probes' counters and the kernel's own accounts together, guest by guest."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from gangd.measure.probes import GuestCount, Probes, VcpuCount
from gangd.measure.proc import Threads, ThreadTimes, last_cpu
from gangd.measure.throttling import Throttling
from gangd.model.counters import GangStats
from gangd.model.domain import Domain, Vcpu
from gangd.model.snapshot import DomainStats, VcpuStats
from gangd.model.totals import Totals
from gangd.trouble import FAILURES, Trouble


class Sampler:
    """gang_stats: the backend's counters of one guest, by UUID. `gangs`: whether they can be read."""

    def __init__(
        self, probes: Probes, gang_stats: Callable[[str], GangStats | None], root: Path = Path("/")
    ) -> None:
        self._probes = probes
        self._gang_stats = gang_stats
        self._root = root
        self._totals = Totals()
        self._threads = Threads(root)
        self._throttling = Throttling(root)
        self.gangs = Trouble("read the counters of gangs")

    def sample(self, domains: Iterable[Domain]) -> dict[str, DomainStats]:
        """Read every running guest once, by UUID. Blocking; raises nothing."""
        counts = self._probes.read()
        running = [domain for domain in domains if domain.running]
        gangs = self._read_gangs(running)
        uuids = {domain.uuid for domain in running}
        self._totals.keep(uuids)
        self._throttling.keep(uuids)
        self._threads.keep({(d.pid or 0, vcpu.tid or 0) for d in running for vcpu in d.vcpus})
        return {d.uuid: self._one(d, counts.get(d.uuid), gangs.get(d.uuid)) for d in running}

    def _read_gangs(self, running: Iterable[Domain]) -> dict[str, GangStats | None]:
        """Read the counters of gangs, leaving out those that cannot be read."""
        found, failure = {}, None
        for domain in running:
            try:
                found[domain.uuid] = self._gang_stats(domain.uuid)
            except FAILURES as error:
                failure = error
        self.gangs.note(failure)
        return found

    def _one(self, domain: Domain, count: GuestCount | None, gang: GangStats | None) -> DomainStats:
        known = count.vcpus if count else {}
        vcpus = tuple(self._vcpu(domain, vcpu, known.get(vcpu.index, VcpuCount())) for vcpu in domain.vcpus)
        return DomainStats(
            domain.uuid,
            vcpus,
            run_seconds=count.run_seconds if count else None,
            corun_seconds=count.corun_seconds if count else None,
            costop_seconds=count.costop_seconds if count else None,
            gang=gang,
            throttled=self._throttling.read(domain, vcpus),
            gone=self._totals.gone(domain, vcpus),
        )

    def _vcpu(self, domain: Domain, vcpu: Vcpu, count: VcpuCount) -> VcpuStats:
        pid, tid = domain.pid or 0, vcpu.tid or 0
        times = self._threads.read(pid, tid) if pid and tid else ThreadTimes()
        cpu = last_cpu(pid, tid, self._root) if count.cpu is None and pid and tid else count.cpu
        return VcpuStats(
            vcpu=vcpu.index,
            tid=vcpu.tid,
            cpu_seconds=times.cpu_seconds,
            run_delay_seconds=times.run_delay_seconds,
            switches=times.switches,
            exits=count.exits,
            pause_exits=count.pause_exits,
            lhp_exits=count.lhp_exits,
            cpu=cpu,
        )
