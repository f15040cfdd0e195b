# SPDX-License-Identifier: Apache-2.0
"""The source of a guest's profile: mark, selector, default, none."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes import guest
from gangd.model.domain import KVM, Domain, Mark
from gangd.model.profile import BUILT_IN, Choice, Profile, Selector, rules

OWN = Profile("db", "strict", 300, "f:1")
SAID = rules(
    [OWN],
    [
        Selector("off", "f:3", name="db-old*"),
        Selector("db", "f:6", name="db-*"),
        Selector("dense", "f:9", tag="batch"),
        Selector("balance", "f:12", name="lone", marked=False),
        Selector("latency", "f:15", name="web?", marked=True),
        Selector("dense", "f:18", cgroup="qemu.slice/*"),
    ],
    "adaptive",
)


@pytest.mark.parametrize(
    ("domain", "choice"),
    [
        (guest("db-1"), Choice("strict", 300, "db", "f:6")),
        (guest("db-old-1"), Choice("off", None, None, "f:3")),
        (guest("db-1", mark=Mark("relaxed", 7)), Choice("relaxed", 7, None, "mark")),
        (guest("db-1", mark=Mark("off")), Choice("off", None, None, "mark")),
        (guest("db-1", mark=Mark(None, 7)), Choice("strict", 7, "db", "f:6")),
        (guest("x", mark=Mark("latency")), Choice("relaxed", 400, "latency", "mark")),
        (guest("x", mark=Mark(None, tag="batch")), Choice("adaptive", None, "dense", "f:9")),
        (guest("x", mark=Mark("strict", tag="batch")), Choice("strict", None, None, "mark")),
        (guest("lone"), Choice("balance", None, None, "f:12")),
        (guest("lone", mark=Mark(None)), Choice("adaptive", None, None, "default")),
        (guest("web1", mark=Mark(None)), Choice("relaxed", 400, "latency", "f:15")),
        (guest("web1"), None),
        (guest("DB-1"), None),
        (
            replace(guest("vm"), source=KVM, cgroup="qemu.slice/100.scope"),
            Choice("adaptive", None, "dense", "f:18"),
        ),
        (replace(guest("vm"), source=KVM, cgroup="user.slice/qemu.slice/a"), None),
        (guest("qemu.slice/100.scope"), None),
        (guest("my-db-1"), None),
        (guest("db-1", mark_error="nonsense"), None),
    ],
)
def test_the_mark_comes_before_selector_and_default(domain: Domain, choice: Choice | None) -> None:
    """The mark chooses, then the first selector, then the default of marks; otherwise there is no choice."""
    assert SAID.choice(domain) == choice


def test_an_own_profile_replaces_a_built_in_one_and_hides_a_policy() -> None:
    """A name means what the operator says it means."""
    said = rules([Profile("latency", "strict"), Profile("relaxed", "balance")])
    assert said.policy_of("latency") == "strict"
    assert said.choice(guest("x", mark=Mark("relaxed"))) == Choice("balance", None, "relaxed", "mark")
    assert set(said.profiles) == {"relaxed", *(profile.name for profile in BUILT_IN)}


@given(st.text(), st.none() | st.booleans())
def test_without_a_selector_only_marked_guests_are_touched(name: str, running: bool | None) -> None:
    """An unmarked guest has no profile, whatever its name is."""
    assert rules().choice(guest(name, 1 if running else None)) is None


@given(st.text(max_size=40), st.text(max_size=12))
def test_any_name_and_any_pattern_can_be_compared(name: str, pattern: str) -> None:
    """Names are a stranger's, patterns an operator's: neither makes the comparison fail."""
    said = rules([], [Selector("dense", "f:1", name=pattern)])
    assert said.choice(guest(name)) in (None, Choice("adaptive", None, "dense", "f:1"))


def test_a_selector_in_words() -> None:
    """A selector's text is that of the configuration file."""
    assert Selector("x", "f:1", "a*", "b", False).text == "name = 'a*', tag = 'b', marked = false"
