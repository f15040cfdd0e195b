# SPDX-License-Identifier: Apache-2.0
"""The daemon on a whole system: bad input, then its life around one guest. One boot of 6.18.

The checks are in vm_tests/badinput.py and vm_tests/daemon.py and run inside the VM, in their order.
"""

import pytest
from vm_tests import outside

pytestmark = pytest.mark.lab

KERNEL = "6.18"
SCRIPTS = ("badinput", "daemon")
CASES = [(script, name) for script in SCRIPTS for name in outside.checks(script)]


@pytest.fixture(scope="module")
def booted(tmp_path_factory: pytest.TempPathFactory) -> outside.Boot:
    """What came of all checks."""
    return outside.boot(KERNEL, SCRIPTS, tmp_path_factory.mktemp("daemon"), timeout=500)


@pytest.mark.parametrize(("script", "name"), CASES, ids=[f"{script}-{name}" for script, name in CASES])
def test_daemon(booted: outside.Boot, script: str, name: str) -> None:
    """The sentence is the docstring of the check."""
    booted.require(script, name)
