# SPDX-License-Identifier: Apache-2.0
"""How many vCPUs may be moved now, for a limit a minute. Knows no clock; times are seconds."""

from __future__ import annotations

from collections import deque

MINUTE = 60.0


class Moves:
    """At most `limit` in any minute; it may be changed at any time."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._made: deque[tuple[float, int]] = deque()

    def left(self, now: float) -> int:
        """Return how many vCPUs may still be moved at `now`."""
        while self._made and self._made[0][0] <= now - MINUTE:
            self._made.popleft()
        return self.limit - sum(count for _, count in self._made)

    def spend(self, count: int, now: float) -> None:
        """Note that so many were moved at `now`."""
        if count:
            self._made.append((now, count))
