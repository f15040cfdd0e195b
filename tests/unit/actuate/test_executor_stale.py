# SPDX-License-Identifier: Apache-2.0
"""The settings that a pass reads when some guests alone are stale."""

from __future__ import annotations

import uuid
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from fakes import guest
from gangd.actuate.executor import Executor
from gangd.actuate.journal import Journal
from gangd.model.plan import Plan
from gangd.model.stale import StaleGuests
from unit.actuate.test_executor import OTHER, UUID, Fake, fresh, plan


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal")


def test_only_stale_guests_and_new_wishes_are_looked_at(journal: Journal) -> None:
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


def test_executor_writes_settings_again_after_an_undo(journal: Journal) -> None:
    pin = Fake("pin", fresh())
    executor = Executor([pin], journal)
    executor.reconcile(plan(1, 2))
    executor.undo(UUID)
    assert executor.reconcile(plan(1, 2), frozenset()).writes == 2


def test_executor_retries_a_failed_setting_for_a_stale_guest_alone(journal: Journal) -> None:
    """The failure stays in the report until then and counts once; another wanted value is tried at once."""
    pin = Fake("pin", fresh(), refuse="1")
    executor = Executor([pin], journal)
    first = executor.reconcile(plan(1, 2))
    pin.refuse = None
    rested = executor.reconcile(plan(1, 2), frozenset())
    assert (first.failed, first.again, rested.failed, rested.again) == (1, {UUID}, 0, {UUID})
    assert rested.failures == first.failures and rested.refused == first.refused and first.refused
    again = executor.reconcile(plan(1, 2), {UUID})
    assert (again.writes, again.failures, again.refused, again.again) == (1, (), (), frozenset())
    pin.refuse = "3"
    assert executor.reconcile(plan(3, 2), frozenset()).failed == 1
    assert executor.reconcile(plan(0, 2), frozenset()).writes == 1


def test_executor_retries_a_failed_undo_for_a_stale_guest_alone(journal: Journal) -> None:
    """The guest need not be planned any more."""
    pin = Fake("pin", fresh(vcpus=1))
    executor = Executor([pin], journal)
    executor.reconcile(plan(1))
    pin.refuse = "0-3"
    first = executor.reconcile(Plan())
    pin.refuse = None
    assert first.again == {UUID} and executor.reconcile(Plan(), frozenset()).failures == first.failures
    assert executor.reconcile(Plan(), {UUID}).undone == 1
    assert executor.reconcile(Plan(), frozenset()).failures == ()


def test_left_alone_and_missing_are_not_stale(journal: Journal) -> None:
    """Neither is another the next time; both are said until they are over."""
    pin, scope = Fake("pin", fresh()), Fake("scope", fresh("scope"))
    executor = Executor([pin, scope], journal)
    executor.reconcile(plan(1, 2))
    pin.host[f"{UUID}/pin/1"] = "3"
    scope.missing = "no systemd"
    for stale in (None, frozenset(), {UUID}):
        report = executor.reconcile(plan(1, 2), stale)
        assert report.troubles == (
            "scope: no systemd",
            f"pin {UUID}/pin/1 was changed by hand to 3: left alone",
        )
        assert (report.failed, report.again) == (0, frozenset())
    scope.missing = None
    scope.host[f"{UUID}/scope/0"] = "0-3"  # what a part did may be gone by the time it is back
    assert executor.reconcile(plan(1, 2), frozenset()).writes == 1


class Counting(Fake):
    """Counts what is read of each guest."""

    def read(self, key: str) -> str | None:
        self.log.append(key.partition("/")[0])
        return super().read(key)


@pytest.mark.parametrize("how", ["fails", "is left alone", "has no part"])
def test_one_guest_of_a_hundred(journal: Journal, how: str) -> None:
    """A lasting trouble of one guest has no other read again, and that guest ever less often, if at all."""
    uuids = [str(uuid.UUID(int=number)) for number in range(1, 101)]
    pin = Counting("pin", {key: value for one in uuids for key, value in fresh(uuid=one).items()})
    helper = Counting("helper", {}, missing="not here" if how == "has no part" else None)
    executor, stale = Executor([pin, helper], journal), StaleGuests(5.0)
    cpus = dict.fromkeys(uuids, (1, 2)) | {uuids[0]: (3, 2)}
    if how == "fails":
        pin.refuse = "3"
    whole = Plan(gangs=sum((plan(*cpus[one], uuid=one).gangs for one in uuids), ()))

    def turn(now: float, memory: int) -> Counter[str]:
        """Return the number of reads of each guest after an event of the last one."""
        pin.log.clear()
        known = {one: guest(one, 7, uuid=one) for one in uuids}
        known[uuids[-1]] = replace(known[uuids[-1]], memory_kib=memory)
        report = executor.reconcile(whole, stale.take(known, now))
        stale.failed(report.again, now)
        if how != "fails":
            assert not report.failed
        return Counter(one for one in pin.log if one in cpus)

    assert set(turn(0.0, 0)) >= set(uuids)
    if how == "is left alone":
        pin.host[f"{uuids[0]}/pin/0"] = "0"
        executor.reconcile(whole, {uuids[0]})
    turns = [turn(0.1 * number, number) for number in range(1, 50)]
    assert all(found[uuids[-1]] == 2 for found in turns)
    assert all(set(found) <= {uuids[0], uuids[-1]} for found in turns)
    again = [number for number, found in enumerate(turns, 1) if uuids[0] in found]
    assert again == ([3, 8, 18, 38] if how == "fails" else [])
