# SPDX-License-Identifier: Apache-2.0
"""The limits of a guest's cgroup: room for its pins, and its weight unless its scheduler keeps that."""

from __future__ import annotations

import pytest

from gangd.actuate.limits import Limits, split, union
from gangd.errors import InvalidArgument
from gangd.model.domain import Mode
from gangd.model.plan import GangPlan, HelperPlace, Placement, Plan


def gang(uuid: str, mode: Mode = Mode.RELAXED, pid: int | None = 7, asked: int | None = None) -> GangPlan:
    places = (Placement(0, 70, 4, ""), Placement(1, 71, 5, ""))
    helpers = (HelperPlace("emulator", frozenset({6, 7}), ""),)
    return GangPlan(uuid, uuid, pid, mode, 0, places, "", helpers=helpers, asked=asked)


PLAN = Plan(
    gangs=(gang("a", asked=300), gang("b", Mode.BALANCE, 8, 200), gang("c"), gang("d", pid=None, asked=5))
)


def test_nothing_is_asked_unless_allowed() -> None:
    assert (Limits().rooms(PLAN), Limits().weights(PLAN)) == ({}, {})


def test_room_for_every_pin() -> None:
    """The room holds the pins of vCPUs and helpers, for every guest that has a process."""
    assert Limits(room=True).rooms(PLAN) == {"a/7": "4-7", "b/8": "4-7", "c/7": "4-7"}


def test_no_room_for_who_has_no_pins() -> None:
    """A gang whose scheduler chooses CPUs for it is not pinned."""
    assert Limits(room=True, roams=lambda gang: gang.needs_scheduler).rooms(PLAN) == {"b/8": "4-7"}


def test_weights_of_marks_are_their_groups() -> None:
    """Unless the scheduler of gangs weighs them itself; a mark without a weight asks for nothing."""
    assert Limits(weight=True, weighs=lambda: False).weights(PLAN) == {"a/7": 300, "b/8": 200}
    assert Limits(weight=True, weighs=lambda: True).weights(PLAN) == {"b/8": 200}


def test_the_scheduler_is_not_asked_for_nothing() -> None:
    """The scheduler looks at the kernel to answer, so it is not asked for nothing."""

    def asked() -> bool:
        raise AssertionError("not now")

    plan = Plan(gangs=(gang("b", Mode.BALANCE, asked=200), gang("c")))
    assert Limits(weight=True, weighs=asked).weights(plan) == {"b/7": 200}


@pytest.mark.parametrize(
    ("now", "value", "found"), [("", "1", ""), ("0-1", "3", "0-1,3"), ("0-3", "1-2", "0-3"), ("5", "5", "5")]
)
def test_union(now: str, value: str, found: str) -> None:
    """No limit holds everything."""
    assert union(now, value) == found


@pytest.mark.parametrize("key", ["", "a", "a/7", "a/x/cpus", "a//cpus", "a/7/"])
def test_a_key_that_names_nothing(key: str) -> None:
    with pytest.raises(InvalidArgument):
        split(key)
