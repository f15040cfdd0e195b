# SPDX-License-Identifier: Apache-2.0
"""How long cpu.max held guests off: the kernel counts that as run delay, too, and it is no contention."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from pathlib import Path

from gangd.model.bandwidth import limited_groups, throttled_seconds
from gangd.model.domain import Domain
from gangd.model.snapshot import VcpuStats

LITTLE = 0.01  # seconds: a guest whose run delay grew by less was not held off for long
LOOK_AGAIN = 60.0  # seconds: limits may be set at any time, by anybody


@dataclass
class _Guest:
    """threads: PID and vCPU threads whose groups were looked for at the moment `looked`, and found to be
    `groups`. delay: the run delay of all vCPUs, seconds, when `seconds` were read, by group."""

    threads: tuple[int | None, ...]
    looked: float
    groups: Set[str]
    delay: float = 0.0
    seconds: Mapping[str, float] | None = None


class Throttling:
    """Remembers which guests are limited, and reads no file of a guest that hardly waits."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._guests: dict[str, _Guest] = {}

    def keep(self, uuids: Set[str]) -> None:
        """Forget all guests but these."""
        self._guests = {uuid: one for uuid, one in self._guests.items() if uuid in uuids}

    def read(self, domain: Domain, vcpus: Iterable[VcpuStats]) -> Mapping[str, float]:
        """Seconds for which each limited group has held its tasks off, added up over CPUs, by its folder.

        Of a group that limits other guests as well nobody can say whose time that was: it is left out.
        """
        delay = sum(vcpu.run_delay_seconds or 0.0 for vcpu in vcpus)
        threads = (domain.pid, *(vcpu.tid for vcpu in domain.vcpus))
        guest = self._guests.get(domain.uuid)
        known = guest if guest and guest.threads == threads else None
        if known and known.seconds is not None and delay - known.delay < LITTLE:
            return known.seconds
        if known is None or time.monotonic() - known.looked > LOOK_AGAIN:
            known = _Guest(threads, time.monotonic(), self._limited(domain))
            self._guests[domain.uuid] = known
        known.delay = delay
        known.seconds = self._seconds(known.groups) if known.groups else {}
        return known.seconds

    def _seconds(self, groups: Set[str]) -> Mapping[str, float]:
        users = Counter(group for guest in self._guests.values() for group in guest.groups)
        read = {group: throttled_seconds(group) for group in groups if users[group] == 1}
        return {group: seconds for group, seconds in read.items() if seconds is not None}

    def _limited(self, domain: Domain) -> Set[str]:
        pid, tids = domain.pid, [vcpu.tid for vcpu in domain.vcpus]
        return {g for tid in tids if pid and tid for g in limited_groups(self._root, pid, tid)}
