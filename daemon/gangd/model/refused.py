# SPDX-License-Identifier: Apache-2.0
"""The settings of a planned guest that an actuator or the kernel refused. Pure values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gangd.model.domain import Mode

DECIDES = ("gang", "affinity")  # actuators without whose settings a guest is not scheduled as it was planned


@dataclass(frozen=True)
class Refused:
    """uuid: the guest's; actuator: whose setting it was; code: stable text (gangd.errors).

    reason: a sentence; mode: how the guest is scheduled all the same, None = not at all.
    """

    uuid: str
    actuator: str
    code: str
    reason: str
    mode: Mode | None = None


def by_guest(found: Iterable[Refused]) -> dict[str, Refused]:
    """Return one a guest (UUID): the first that decides whether the guest is scheduled, else the first."""
    one: dict[str, Refused] = {}
    for refused in found:
        known = one.setdefault(refused.uuid, refused)
        if known.actuator not in DECIDES and refused.actuator in DECIDES:
            one[refused.uuid] = refused
    return one
