# SPDX-License-Identifier: Apache-2.0
"""Documents that say who chose how a guest is scheduled."""

from __future__ import annotations

from dataclasses import replace

from fakes import guest, host, planned, snapshot
from gangd.control import choices, documents
from gangd.control.structs import Chosen
from gangd.model.domain import Mark
from gangd.model.profile import Profile, Selector, rules

OLD, DB, WEB, LEFT = guest("old", 1), guest("db-1", 2), guest("web", 3, mark=Mark()), guest("left", 4)
SAID = rules(
    [Profile("db", "strict", 300, "f:1")],
    [Selector("off", "f:4", name="old"), Selector("db", "f:7", name="db-*")],
)
GUESTS = (OLD, DB, WEB, LEFT)
SNAP = replace(snapshot(*GUESTS), plan=planned(GUESTS, host(), SAID))


def test_every_guest_says_who_chose_for_it() -> None:
    """A mark, a selector (by place) or nothing chooses; `off` is a schedule with a reason, no refusal."""
    found = {d.name: d for d in documents.domains(SNAP).domains}
    assert found["web"].chosen == Chosen("relaxed", None, None, "mark")
    assert found["db-1"].chosen == Chosen("strict", "db", 300, "f:7")
    assert (found["db-1"].marked, found["db-1"].policy) == (False, None)
    assert (found["old"].schedule, found["old"].schedule_reason) == ("off", "left alone: f:4")
    assert (found["left"].chosen, found["left"].schedule) == (None, None)


def test_profiles_and_selectors_in_their_order() -> None:
    """Each with the number of guests it is in force for."""
    document = choices.profiles(SNAP, SAID)
    shown = [(p.profile, p.policy, p.weight, p.domains) for p in document.profiles]
    assert ("db", "strict", 300, 1) in shown
    assert ("latency", "relaxed", 400, 0) in shown
    assert [(s.text, s.domains) for s in document.selectors] == [
        ("name = 'old'", 1),
        ("name = 'db-*'", 1),
    ]
