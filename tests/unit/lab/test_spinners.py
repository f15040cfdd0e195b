# SPDX-License-Identifier: Apache-2.0
"""Tests of how the checks of gang.ko judge real-time throttling, without a VM."""

from __future__ import annotations

import itertools

import pytest

from lab.observe.machine import Quiet
from vm.checks.inside import spinners

THROTTLED = ["[    9.0] sched: RT throttling activated"]
QUIET, DISTURBED = Quiet(0.0, 0.0), Quiet(0.5, 0.0)


def test_throttling_is_judged_on_a_quiet_machine() -> None:
    """On a quiet machine it is a failure, on another no verdict; without it there is nothing to judge."""
    spinners.judge_throttling([], DISTURBED)
    with pytest.raises(AssertionError, match="throttled") as failed:
        spinners.judge_throttling(THROTTLED, QUIET)
    assert failed.type is AssertionError
    with pytest.raises(spinners.NoVerdict):
        spinners.judge_throttling(THROTTLED, DISTURBED)


def test_no_verdict_is_asked_again_and_then_a_failure() -> None:
    """A check is made until the machine was quiet. A machine that never is proves nothing, and that fails; so
    does a failure, at once."""

    def outcomes(*noise: Quiet | None) -> int:
        left = iter(noise)

        @spinners.repeated
        def check() -> None:
            found = next(left)
            spinners.judge_throttling(THROTTLED if found else [], found or QUIET)

        check()
        return len(list(left))

    assert outcomes(DISTURBED, DISTURBED, None, None) == 1
    with pytest.raises(AssertionError, match="no verdict"):
        outcomes(*itertools.repeat(DISTURBED, spinners.REPEATS))
    with pytest.raises(AssertionError, match="throttled, and"):
        outcomes(DISTURBED, QUIET, None)
