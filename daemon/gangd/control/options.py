# SPDX-License-Identifier: Apache-2.0
"""Checks of callers' arguments: references to domains and the options of a method (a{sv}).

Callers are untrusted: type, size and content of a value are checked before gangd acts on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gangd.control.text import shortened
from gangd.errors import InvalidArgument
from gangd.model.affect import Affect
from gangd.model.mark_change import MarkChange

REF_MAX = 1024  # libvirt's names end as file names: 255 bytes; the rest is slack
POLICY_MAX = 128
WEIGHT_RANGE = range(1, 10001)  # cgroup v2 cpu.weight
# Every option there is, by the D-Bus type of its value.
SIGNATURES = {"policy": "s", "weight": "u", "config": "b", "live": "b", "all": "b", "interactive": "b"}

Variants = Mapping[str, tuple[str, Any]]


def quoted(ref: object) -> str:
    """A caller's text as part of a sentence."""
    return f"'{shortened(ref, 80)}'" if isinstance(ref, str) else "''"


def domain_ref(ref: object) -> str:
    """An id, name or UUID. Raises InvalidArgument for what cannot be one."""
    return _text("domain", ref, REF_MAX)


def options(given: Variants, *known: str) -> dict[str, Any]:
    """The values of the options by name. Unknown ones are refused rather than ignored:
    a caller who asks for something must not believe to have got it. Every method knows `interactive`
    (gangd.control.server)."""
    known = (*known, "interactive")
    checked: dict[str, Any] = {}
    for key, (signature, value) in given.items():
        if key not in known:
            raise InvalidArgument(f"unknown option {quoted(key)} (known: {', '.join(known)})")
        if signature != SIGNATURES[key]:
            raise InvalidArgument(f"option {key} has D-Bus type {shortened(signature, 40)!r}")
        checked[key] = value
    if "policy" in checked:
        _text("policy", checked["policy"], POLICY_MAX)
    if "weight" in checked:
        _weight(checked["weight"])
    return checked


def mark_change(checked: Mapping[str, Any]) -> MarkChange:
    """The options of a change of a mark."""
    return MarkChange(checked.get("policy"), checked.get("weight"), affect(checked))


def affect(checked: Mapping[str, Any]) -> Affect | None:
    """The options config and live as libvirt's flags; None when neither was given."""
    if "config" not in checked and "live" not in checked:
        return None
    return Affect(checked.get("config", False), checked.get("live", False))


def _text(what: str, value: object, limit: int) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InvalidArgument(f"{what} must be a name and not empty")
    if len(value) > limit:
        raise InvalidArgument(f"{what} is longer than {limit} characters")
    if "\0" in value or any("\ud800" <= char <= "\udfff" for char in value):
        raise InvalidArgument(f"{what} is not text")
    return value


def _weight(value: int) -> None:
    if value not in WEIGHT_RANGE:
        raise InvalidArgument(f"weight {value} is not in {WEIGHT_RANGE[0]} to {WEIGHT_RANGE[-1]}")
