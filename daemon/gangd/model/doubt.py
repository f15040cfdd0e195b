# SPDX-License-Identifier: Apache-2.0
"""Which guests' settings have to be looked at again. Pure.

A host has thousands of settings, and reading one asks libvirt. After an event only
the guests it was about are in doubt; once an interval, and after a failure, all are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from gangd.model.domain import Domain


class Doubt:
    """interval: seconds between looks at everything."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._whole_at = -math.inf
        self._left: Mapping[str, Domain] = {}

    def of_all(self) -> None:
        """What was set may be gone: look at everything the next time."""
        self._whole_at = -math.inf

    def take(self, domains: Mapping[str, Domain], whole: bool, now: float) -> set[str] | None:
        """UUIDs of the `domains` in doubt at `now` (seconds), None: all. From then on they are not."""
        before, self._left = self._left, domains
        if whole or now - self._whole_at > self._interval:
            self._whole_at = now
            return None
        return {uuid for uuid, domain in domains.items() if before.get(uuid) != domain}
