# SPDX-License-Identifier: Apache-2.0
"""A setting's values are compared and put into words by what its actuator can do (base.py)."""

from __future__ import annotations

from gangd.actuate.base import Change, Describes, Masks, Toggle, Wanted, Widens
from gangd.actuate.journal import Entry


def reads_as(actuator: Toggle, key: str, now: str | None, value: str) -> bool:
    """True if a setting that reads `now` may have the value."""
    return now == value or (isinstance(actuator, Masks) and now == actuator.shows(key, value))


def is_ours(actuator: Toggle, key: str, entry: Entry, now: str | None) -> bool:
    """True if gangd may have made the setting read `now`."""
    if entry.ours(now or "") or not isinstance(actuator, Masks):
        return entry.ours(now or "")
    return any(actuator.shows(key, value) in (now, "") for value in (entry.prior, entry.written) if value)


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
    """The setting as a noun."""
    return actuator.describe(key) if isinstance(actuator, Describes) else f"{actuator.name} {key}"


def changed_by_hand(actuator: Toggle, key: str, value: str) -> str:
    """The sentence that somebody else set it to `value`."""
    if isinstance(actuator, Describes):
        return actuator.changed(key, value)
    return f"{actuator.name} {key} was changed by hand to {value}"
