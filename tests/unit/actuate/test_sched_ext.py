# SPDX-License-Identifier: Apache-2.0
"""What the BPF scheduler is asked for; the rest of it is tested in the lab."""

from __future__ import annotations

import os

import pytest

from gangd.actuate.sched_ext import asked_weight, real_time
from gangd.errors import GangError


@pytest.mark.parametrize(
    ("weight", "shares", "asked"),
    [(100, 100, 100), (200, 200, 100), (300, 50, 600), (100, 10000, 1), (10000, 50, 10000), (1, 10000, 1)],
)
def test_what_the_groups_say_is_not_asked_for_again(weight: int, shares: int, asked: int) -> None:
    """The scheduler multiplies by the guest's shares; what is asked for is the rest, within the scale."""
    assert asked_weight({"weight": weight, "shares": shares}) == asked


def test_a_setting_of_an_older_daemon() -> None:
    """A journal written before there were shares is read as if the guest had the usual ones."""
    assert asked_weight({"weight": 300}) == 300


def test_the_loader_is_real_time_meanwhile() -> None:
    """And what it was before afterwards, whatever happened."""
    before = os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0)
    with pytest.raises(ValueError), real_time():
        assert os.sched_getscheduler(0) == os.SCHED_FIFO | os.SCHED_RESET_ON_FORK
        raise ValueError
    assert (os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0)) == before


def test_who_may_not_be_real_time_loads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rather than to risk a host that hangs."""

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    with pytest.raises(GangError, match="takes real-time priority: Operation not permitted"), real_time():
        raise AssertionError("it was entered")
