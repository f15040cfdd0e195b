# SPDX-License-Identifier: Apache-2.0
"""What the BPF scheduler is asked for; the rest of it is tested in the lab."""

from __future__ import annotations

import pytest

from gangd.actuate.sched_ext import asked_weight


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
