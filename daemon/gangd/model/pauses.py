# SPDX-License-Identifier: Apache-2.0
"""The guests that are paused for long. Knows no clock; times are seconds."""

from __future__ import annotations

from collections.abc import Iterable

from gangd.model.domain import Domain

LONG = 60.0  # a snapshot or a backup pauses a guest for less; to load a scheduler takes seconds of CPU


class Pauses:
    """How long each guest has stood still."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def long(self, domains: Iterable[Domain], now: float) -> frozenset[str]:
        """Return the UUIDs of those of the `domains` that have stood still for LONG, as far as was seen."""
        self._since = {d.uuid: self._since.get(d.uuid, now) for d in domains if d.stands_still}
        return frozenset(uuid for uuid, since in self._since.items() if now - since >= LONG)
