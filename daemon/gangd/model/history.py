# SPDX-License-Identifier: Apache-2.0
"""The guests as policies see them: the change between two readings, and each guest's mode meanwhile.

Moments are seconds on a clock that only grows; the caller reads it.
"""

from __future__ import annotations

from collections.abc import Mapping

from gangd.model.domain import Mode
from gangd.model.evidence import Evidence, compare
from gangd.model.plan import Plan
from gangd.model.snapshot import DomainStats


class History:
    """evidence: by UUID, from the last two readings."""

    def __init__(self) -> None:
        self.evidence: Mapping[str, Evidence] = {}
        self._stats: Mapping[str, DomainStats] = {}
        self._read_at = 0.0
        self._modes: dict[str, tuple[Mode, float]] = {}  # and since when

    def read(self, stats: Mapping[str, DomainStats], now: float) -> None:
        """Counters as they were at the moment `now`."""
        last = self._read_at
        self.evidence = {
            uuid: compare(self._stats.get(uuid), found, now - last, now, self._mode_since(uuid, last))
            for uuid, found in stats.items()
        }
        self._stats, self._read_at = stats, now

    def in_force(self, plan: Plan, now: float) -> None:
        """From `now` on guests are scheduled as `plan` says."""
        self._modes = {
            gang.uuid: known
            if (known := self._modes.get(gang.uuid)) and known[0] is gang.mode
            else (gang.mode, now)
            for gang in plan.gangs
        }

    def _mode_since(self, uuid: str, moment: float) -> Mode | None:
        """The mode in which a guest has been since `moment`, None if it was not in one for all that time."""
        mode, since = self._modes.get(uuid, (None, 0.0))
        return mode if since <= moment else None
