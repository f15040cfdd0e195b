# SPDX-License-Identifier: Apache-2.0
"""gangd and libvirt guests on a whole system: bad input, gangs and what is measured of them, guests that come
and go, weights, `balance`, and the daemon's own life. Never skipped; one boot of 6.18 for all of it.

The checks are in the scripts of vm_tests named here and run inside the VM, in their order.
"""

import pytest
from vm_tests import outside

pytestmark = pytest.mark.lab

KERNEL = "6.18"
SCRIPTS = ("badinput", "gang", "lifecycle", "weights", "balance", "daemon")  # the last one configures gangd
CASES = [(script, name) for script in SCRIPTS for name in outside.checks(script)]


@pytest.fixture(scope="module")
def booted(tmp_path_factory: pytest.TempPathFactory) -> outside.Boot:
    """What came of all checks."""
    return outside.boot(KERNEL, SCRIPTS, tmp_path_factory.mktemp("guests"), timeout=1500)


@pytest.mark.parametrize(("script", "name"), CASES, ids=[f"{script}-{name}" for script, name in CASES])
def test_guests(booted: outside.Boot, script: str, name: str) -> None:
    """The sentence is the docstring of the check."""
    booted.require(script, name)
