# SPDX-License-Identifier: Apache-2.0
"""The plan that one gangd leaves to the next."""

from __future__ import annotations

from pathlib import Path

import pytest

from gang_policies.adaptive import POLICY, Memory
from gangd import handover
from gangd.guard import Guarded
from gangd.model.domain import Mode
from gangd.model.plan import Cache, GangPlan, HelperPlace, Offer, Placement, Plan

HOME = Cache(0, (4, 6), "one cache", (4, 6))
SEATS = (Placement(0, 811, 4, "free"), Placement(1, 812, 6, "free"))
HELPERS = (HelperPlace("emulator", frozenset({4, 6}), "beside its vCPUs"),)
PLAN = GangPlan(
    "u", "vm", 810, Mode.RELAXED, 0, SEATS, "crowded", 300, (Offer(1, 0, 0, 0, 1, 2, 1, (8, 9)),), HELPERS
)
MEMORY = Memory(Mode.RELAXED, entered=12.5, seen=20.0, parts=(None, 0.25), why="a gang")


def gang(memory: object, policy: str = "adaptive") -> GangPlan:
    return GangPlan(**{**vars(PLAN), "memory": memory, "policy": policy, "again": 5.0})


def test_places_and_memories_arrive(tmp_path: Path) -> None:
    """All of a gang's plan, with what `adaptive` learned of it; the next but one begins anew."""
    policies = {"adaptive": Guarded("adaptive", lambda: POLICY)}
    handover.leave(tmp_path, Plan((HOME,), (gang(MEMORY),)))
    found = handover.take(tmp_path, policies)
    assert found == Plan((HOME,), (gang(MEMORY),))
    assert found.gangs[0].memory == MEMORY and isinstance(found.gangs[0].memory, Memory)
    assert handover.take(tmp_path, policies) is None


@pytest.mark.parametrize("memory", [object(), {"mode": "none of these"}, 17])
@pytest.mark.parametrize("policy", ["adaptive", "theirs", "gone"])
def test_a_memory_of_another_kind_is_none(tmp_path: Path, memory: object, policy: str) -> None:
    """A policy may have changed, not say what it remembers, or not be installed any more."""

    class Theirs:
        name = "theirs"

        def decide(self, *_: object) -> None: ...

    policies = {"adaptive": Guarded("adaptive", lambda: POLICY), "theirs": Guarded("theirs", Theirs)}
    handover.leave(tmp_path, Plan((HOME,), (gang(memory, policy),)))
    found = handover.take(tmp_path, policies)
    assert found and found.gangs[0].memory is None and found.gangs[0].placements == SEATS


@pytest.mark.parametrize("data", [b"", b"\xff", b"\x80", b"{}"])
def test_a_plan_of_another_version_is_none(
    tmp_path: Path, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """A plan of another version is removed, and the log says so."""
    (tmp_path / handover.NAME).write_bytes(data)
    assert handover.take(tmp_path, {}) is None and not list(tmp_path.iterdir())
    assert "begin anew" in caplog.text
