# SPDX-License-Identifier: Apache-2.0
"""The readings that gangd takes of a guest before a mark is in force: what it is compared with since. Pure.

A reading belongs to one life of a guest, its process: one that was started anew has none. There is one per
guest at most, of guests that exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gangd.model.domain import Domain
from gangd.model.snapshot import DomainStats, VcpuTotals

UNWATCHED = VcpuTotals()
NOTHING_YET = VcpuTotals(0.0, 0.0, 0, {}, 0, 0)


@dataclass(frozen=True)
class Reading:
    """A guest just before a mark, and as soon as its policy was in force.

    life_seconds: from the start of its vCPUs until the mark, None = not known. before, policy: the policy
    chosen for it until then (None = none), and since. stats: its counters before the mark; watched: those
    when the probes began to count; a counter that is None is not known. began: those when the policy was in
    force: gangd may have loaded the scheduler meanwhile. read_at: when, in seconds on the monotonic clock;
    time: the same since the epoch.
    """

    pid: int
    life_seconds: float | None
    before: str | None
    policy: str
    stats: DomainStats
    began: DomainStats
    read_at: float
    time: float
    watched: VcpuTotals = NOTHING_YET


class Readings:
    """The reading of each guest, by UUID; and the first counters of guests that ran before gangd did."""

    def __init__(self) -> None:
        self._kept: dict[str, Reading] = {}
        self._first: dict[str, tuple[int | None, VcpuTotals]] | None = None  # None: not read yet

    def begin(self, guests: Mapping[str, Domain], stats: Mapping[str, DomainStats]) -> None:
        """Remember the counters of these guests, as they were when gangd began to count."""
        known = {uuid: guests[uuid].pid for uuid in stats if uuid in guests}
        self._first = {uuid: (pid, stats[uuid].total) for uuid, pid in known.items()}

    def watched(self, domain: Domain) -> VcpuTotals:
        """The counters of a guest when gangd began to count: none yet, if it started later."""
        if self._first is None:
            return UNWATCHED
        pid, first = self._first.get(domain.uuid, (None, NOTHING_YET))
        return first if pid == domain.pid else NOTHING_YET

    def keep(self, uuid: str, reading: Reading, guests: Mapping[str, Domain]) -> None:
        """Keep the reading of one guest instead of the last; forget those of guests that are gone."""
        self._kept[uuid] = reading
        self._kept = {known: kept for known, kept in self._kept.items() if _lives(guests, known, kept.pid)}
        first = (self._first or {}).items()
        if self._first is not None:
            self._first = {known: one for known, one in first if _lives(guests, known, one[0])}

    def forget(self, uuid: str) -> None:
        """There is nothing to compare this guest with any more."""
        self._kept.pop(uuid, None)

    def of(self, domain: Domain) -> Reading | None:
        """The reading of this life of a guest."""
        kept = self._kept.get(domain.uuid)
        return kept if kept and kept.pid == domain.pid else None


def _lives(guests: Mapping[str, Domain], uuid: str, pid: int | None) -> bool:
    return uuid in guests and guests[uuid].pid == pid
