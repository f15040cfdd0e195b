# SPDX-License-Identifier: Apache-2.0
"""What gangd did to the pins of threads, to tell its own hand from an operator's. Pure.

A guest is read now and pinned then: a reading that began before gangd's last write to a pin may hold what
was there before it. Taken at its word, gangd's last pin but one would be an operator's wish.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from gangd.model.domain import Domain


@dataclass(frozen=True)
class OwnPin:
    """What gangd made of a thread's pin.

    found: what was there first. written: what gangd wrote, None = nothing yet, or `found` is back.
    at: when that last changed (seconds, monotonic).
    """

    found: frozenset[int]
    written: frozenset[int] | None
    at: float = -math.inf

    def wish(self, cpus: frozenset[int], since: float) -> frozenset[int]:
        """Where others than gangd want the thread, whose pin was `cpus` in a reading begun at `since`."""
        return self.found if since < self.at or cpus in (self.found, self.written) else cpus


OwnPins = Mapping[tuple[str, str], OwnPin]  # by UUID and thread ("vcpu/0", "emulator")


def renewed(before: OwnPins, now: OwnPins, domains: Mapping[str, Domain], at: float) -> OwnPins:
    """`now` with times: that of `before` where it is the same, else `at`.

    A pin that was undone is remembered for as long as its guest, of `domains` by UUID, was not read since.
    """
    pins = {key: _renewed(before.get(key), pin, at) for key, pin in now.items()}
    for key, pin in before.items():
        undone = pin if pin.written is None else replace(pin, written=None, at=at)
        domain = domains.get(key[0])
        if key not in now and domain and domain.since < undone.at:
            pins[key] = undone
    return pins


def _renewed(before: OwnPin | None, pin: OwnPin, at: float) -> OwnPin:
    same = before and (before.found, before.written) == (pin.found, pin.written)
    return before if before and same else replace(pin, at=at)
