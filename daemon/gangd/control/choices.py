# SPDX-License-Identifier: Apache-2.0
"""Profiles and selectors as a document (docs/json.md). Pure."""

from __future__ import annotations

from collections import Counter

from gangd.control import structs
from gangd.model.profile import Rules
from gangd.model.snapshot import Snapshot


def profiles(snapshot: Snapshot, said: Rules) -> structs.Profiles:
    """`gangctl profile-list`: what can be named beside policies, and who is chosen without a mark."""
    choices = snapshot.plan.choices.values()
    named = Counter(choice.profile for choice in choices)
    selected = Counter(choice.source for choice in choices)
    return structs.Profiles(
        profiles=[
            structs.Profile(
                profile=profile.name,
                policy=profile.policy,
                weight=profile.weight,
                source=profile.source,
                domains=named[profile.name],
            )
            for profile in sorted(said.profiles.values(), key=lambda profile: profile.name)
        ],
        selectors=[
            structs.Selector(
                source=selector.source,
                name=selector.name,
                cgroup=selector.cgroup,
                tag=selector.tag,
                marked=selector.marked,
                text=selector.text,
                chooses=selector.chooses,
                domains=selected[selector.source],
            )
            for selector in said.selectors
        ],
        default=said.default,
    )
