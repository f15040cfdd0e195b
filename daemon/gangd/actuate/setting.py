# SPDX-License-Identifier: Apache-2.0
"""A setting's values are compared and put into words by what its actuator can do (base.py)."""

from __future__ import annotations

import contextlib
from collections.abc import Set

from gangd.actuate.base import Change, Describes, Masks, Parts, Toggle, Wanted, Widens
from gangd.actuate.journal import Entry
from gangd.errors import FAILURES


def reads_as(actuator: Toggle, key: str, now: str | None, value: str) -> bool:
    """True if a setting that reads `now` may have the value."""
    return now == value or (isinstance(actuator, Masks) and now == actuator.shows(key, value))


def is_ours(actuator: Toggle, key: str, entry: Entry, now: str | None) -> bool:
    """True if gangd may have made the setting read `now`."""
    if entry.ours(now or "") or not isinstance(actuator, Masks):
        return entry.ours(now or "")
    return any(actuator.shows(key, value) in (now, "") for value in (entry.prior, entry.written) if value)


def is_ours_still(actuator: Toggle, key: str, entry: Entry, now: str | None) -> bool:
    """True if gangd may have made any part of the setting read as it does; the whole reads `now`."""
    values = actuator.values(key) if isinstance(actuator, Parts) else {now}
    return not values or any(is_ours(actuator, key, entry, value) for value in values)


def others(actuator: Toggle, key: str, entry: Entry) -> frozenset[str]:
    """Return what those parts of the setting read as that somebody else changed since gangd did."""
    values = actuator.values(key) if isinstance(actuator, Parts) else frozenset[str]()
    return frozenset(value for value in values if not is_ours(actuator, key, entry, value))


def read_but(actuator: Toggle, key: str, kept: Set[str]) -> str | None:
    """Return what the setting reads as, without its parts that read as one of `kept`."""
    return actuator.read_but(key, kept) if isinstance(actuator, Parts) else actuator.read(key)


def write_but(actuator: Toggle, key: str, value: str, kept: Set[str]) -> None:
    """Set it, but not its parts that read as one of `kept`."""
    if isinstance(actuator, Parts):
        actuator.write_but(key, value, kept)
    else:
        actuator.write(key, value)


def to_write(actuator: Toggle, key: str, now: str | None, want: Wanted) -> str:
    """Return the text to write to a setting that reads `now`."""
    if now is not None and isinstance(actuator, Widens):
        return actuator.widened(key, now, want.value)
    return want.value


def change(actuator: Toggle, key: str, now: str | None, wanted: str, reason: str) -> Change:
    """The change of a setting that reads `now`, None: it cannot be read."""
    shown = actuator.show if isinstance(actuator, Describes) else str
    text = f"{describe(actuator, key)}: {'unknown' if now is None else shown(now)} -> {shown(wanted)}"
    return Change(actuator.name, key, now, wanted, reason, text)


def describe(actuator: Toggle, key: str) -> str:
    """Return the setting as a noun: by name and key where that is none of the actuator's keys, but another
    version's."""
    with contextlib.suppress(*FAILURES):
        if isinstance(actuator, Describes):
            return actuator.describe(key)
    return f"{actuator.name} {key}"


def changed_by_hand(actuator: Toggle, key: str, value: str) -> str:
    """The sentence that somebody else set it to `value`."""
    if isinstance(actuator, Describes):
        return actuator.changed(key, value)
    return f"{actuator.name} {key} was changed by hand to {value}"
