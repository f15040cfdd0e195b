# SPDX-License-Identifier: Apache-2.0
"""What a pass looks at when only some guests are in doubt."""

from __future__ import annotations

from pathlib import Path

import pytest

from gangd.actuate.executor import Executor
from gangd.actuate.journal import Journal
from gangd.model.plan import Plan
from unit.actuate.test_executor import OTHER, UUID, Fake, fresh, plan


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal")


def test_only_doubtful_guests_and_new_wishes_are_looked_at(journal: Journal) -> None:
    """A mark among hundreds of guests costs what that guest has; by the next whole pass all is checked."""
    pin = Fake("pin", fresh() | fresh(uuid=OTHER))
    executor = Executor([pin], journal)
    both = Plan(gangs=plan(1, 2).gangs + plan(1, 2, uuid=OTHER).gangs)
    assert executor.reconcile(both, frozenset()).writes == 4, "nothing is settled yet"
    lost = f"{OTHER}/pin/0"
    pin.host[lost] = "0-3"
    assert executor.reconcile(both, {UUID}).writes == 0
    moved = Plan(gangs=plan(3, 2).gangs + plan(1, 2, uuid=OTHER).gangs)
    assert executor.reconcile(moved, frozenset()).writes == 1
    assert executor.reconcile(moved, {OTHER}).writes == 1
    assert pin.host[lost] == "1"
    pin.host[lost] = "0-3"
    assert executor.reconcile(moved).writes == 1


def test_what_was_undone_is_not_settled(journal: Journal) -> None:
    pin = Fake("pin", fresh())
    executor = Executor([pin], journal)
    executor.reconcile(plan(1, 2))
    executor.undo(UUID)
    assert executor.reconcile(plan(1, 2), frozenset()).writes == 2


def test_what_failed_is_not_settled(journal: Journal) -> None:
    pin = Fake("pin", fresh(), refuse="1")
    executor = Executor([pin], journal)
    assert executor.reconcile(plan(1, 2)).failures
    pin.refuse = None
    assert executor.reconcile(plan(1, 2), frozenset()).writes == 1
