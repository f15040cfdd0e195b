# SPDX-License-Identifier: Apache-2.0
"""The guests whose settings may have changed since gangd read them last. Pure.

A host has thousands of settings, and reading one may take a moment. An event makes the settings of its
guests stale; once an interval all are. A guest with a setting that failed is stale as well, the more rarely
the longer the setting fails.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Set

from gangd.model.domain import Domain

FIRST_SECONDS = 0.25  # from a failure to the next try; twice as long after each, up to the interval


class StaleGuests:
    """interval: seconds between looks at everything."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._whole_at = -math.inf
        self._left: Mapping[str, Domain] = {}
        self._taken: set[str] | None = None  # the last result of take()
        # By guest with a failed setting: time of the next try, the pause before it.
        self._failing: dict[str, tuple[float, float]] = {}

    def expire_all(self) -> None:
        """Make all guests stale, since settings may be gone: the next pass reads everything."""
        self._whole_at = -math.inf

    def take(self, domains: Mapping[str, Domain], now: float) -> set[str] | None:
        """Return the UUIDs of the `domains` that are stale at `now` (seconds), those included that failed()
        and are due; None: all are. From then on they are fresh."""
        before, self._left = self._left, domains
        if now - self._whole_at > self._interval:
            self._whole_at = now
            self._taken = None
        else:
            self._taken = {uuid for uuid, domain in domains.items() if before.get(uuid) != domain}
            self._taken |= {one for one, (due, _pause) in self._failing.items() if due <= now}
        return self._taken

    def failed(self, whose: Set[str], now: float) -> None:
        """Note that settings of these guests alone failed at the last pass, by `now` (seconds)."""
        self._failing = {one: self._next(one, now) for one in whose}

    def _next(self, one: str, now: float) -> tuple[float, float]:
        known = self._failing.get(one)
        if known and self._taken is not None and one not in self._taken:
            return known
        pause = min(2 * known[1] if known else FIRST_SECONDS, self._interval)
        return now + pause, pause
