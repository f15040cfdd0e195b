# SPDX-License-Identifier: Apache-2.0
"""docs/policies.md has every key of profiles and selectors, and the built-in profiles as they are."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from gangd.config import PLACE, Profile, Select
from gangd.model.profile import BUILT_IN

PAGE = (Path(__file__).resolve().parents[2] / "docs/policies.md").read_text()


def keys(table: type[msgspec.Struct], name: str) -> set[str]:
    """Return the keys as they stand on the page."""
    return {f"{name}.{f.encode_name}" for f in msgspec.structs.fields(table) if f.encode_name != PLACE}


def test_every_key_is_documented() -> None:
    """Every key has one row on the page, and there is no row more."""
    rows = re.findall(r"^\| `((?:profile\.NAME|select)\.[a-z_]+)` \|", PAGE, re.MULTILINE)
    assert sorted(rows) == sorted(keys(Profile, "profile.NAME") | keys(Select, "select"))


def test_built_in_profiles_are_documented() -> None:
    """Name, policy and weight."""
    rows = re.findall(r"^\| `([a-z]+)` \| `([a-z]+)`(?:, weight (\d+))? \|", PAGE, re.MULTILINE)
    found = {(name, policy, int(weight) if weight else None) for name, policy, weight in rows}
    assert found == {(profile.name, profile.policy, profile.weight) for profile in BUILT_IN}
