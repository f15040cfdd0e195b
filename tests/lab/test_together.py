# SPDX-License-Identifier: Apache-2.0
"""How far KVM guests run together as gangs, and what of their pausing is lock-holder preemption: figures of
the kernel's tracer, in virtual time. One bare boot where CPUs are kicked, one where tasks are pushed to them.

The checks are in vm_tests/together.py and vm_tests/lhp.py.
"""

from pathlib import Path

import pytest
from labkit.kernels import rows
from labkit.qemu import Clock
from vm_tests import outside

pytestmark = [pytest.mark.lab, pytest.mark.long]

ROWS = ("6.18", "7.2-bpo")
SCRIPTS = ("together", "lhp")
TIMEOUT = 900


def prefixes(row: str) -> tuple[str, ...]:
    """Return the prefixes of the checks that are for this row."""
    return ("check_", "strict_") if rows()[row].features.kick_cpu else ("check_",)


CASES = [
    pytest.param(row, script, name, id=f"{row}-{script}-{name}", marks=outside.together("together", row))
    for row in ROWS
    for script in SCRIPTS
    for name in outside.checks(script, prefixes(row))
]
BOOTS = [pytest.param(row, id=row, marks=outside.together("together", row)) for row in ROWS]


@pytest.fixture
def booted(request: pytest.FixtureRequest, boots: outside.Boots) -> outside.Boot:
    """The results of the row's boot."""
    row: str = request.param

    def boot(share: Path) -> outside.Boot:
        return outside.boot(row, SCRIPTS, share, bare=True, timeout=TIMEOUT, clock=Clock.VIRTUAL)

    return boots("together", row, boot)


@pytest.mark.parametrize(("booted", "script", "name"), CASES, indirect=["booted"])
def test_together(booted: outside.Boot, script: str, name: str) -> None:
    """The sentence is the docstring of the check."""
    booted.require(script, name)


@pytest.mark.parametrize("booted", BOOTS, indirect=True)
def test_the_kernel_was_quiet(booted: outside.Boot) -> None:
    """Nothing is in its log that no check provoked, and every script came to its end."""
    booted.require_quiet()
