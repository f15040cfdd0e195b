# SPDX-License-Identifier: Apache-2.0
"""Tests of what the checks of intel.py read from the kernel's tracer, without a VM."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

import pytest

PAUSE = "   CPU 0/KVM-{tid}    [000] d..2. {time:.6f}: kvm_exit: vcpu 0 reason PAUSE_INSTRUCTION rip 0x100"


@pytest.fixture
def intel(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script; it reads its environment when it is imported."""
    monkeypatch.setenv("GANGD_MODEL", "intel")
    before = set(sys.modules)
    module = importlib.import_module("vm.checks.intel")
    for name in set(sys.modules) - before:
        monkeypatch.delitem(sys.modules, name)
    return module


def test_a_pause_is_lhp_while_a_sibling_waits(intel: ModuleType) -> None:
    """By the tracer a PAUSE exit is LHP from the moment a sibling was preempted or woken until it is on CPU,
    and not while the sibling sleeps."""
    event, host = intel.host.Event, intel.host
    events = [
        event(1.0, 11, host.RUNNING),
        event(1.0, 12, host.RUNNING),
        event(2.0, 12, host.WAITING),
        event(3.0, 12, host.RUNNING),
        event(4.0, 12, host.BLOCKED),
        event(5.0, 12, host.WOKEN),
    ]
    text = "\n".join(PAUSE.format(tid=11, time=time) for time in (1.5, 2.5, 3.5, 4.5, 5.5))
    assert list(intel.pauses_of(text, (11, 12), events)) == [False, True, False, False, True]


def test_the_histogram_is_read(intel: ModuleType) -> None:
    """Lines of a hist trigger, with the spaces they have."""
    text = (
        "{ exit_reason:         48 } hitcount:          2\n{ exit_reason:         40 } hitcount:         20\n"
    )
    assert intel._HIT.findall(text) == [("48", "2"), ("40", "20")]
