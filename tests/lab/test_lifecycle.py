# SPDX-License-Identifier: Apache-2.0
"""Marked guests are reset, saved, restored and destroyed in mid-slot; `virsh schedinfo` counts for them;
those of mode `balance` are never stacked. One boot of 6.18 for all of it.

The checks are in the scripts of vm_tests named here and run inside the VM, in their order.
"""

import pytest
from vm_tests import outside

pytestmark = pytest.mark.lab

KERNEL = "6.18"
SCRIPTS = ("lifecycle", "weights", "balance")
CASES = [(script, name) for script in SCRIPTS for name in outside.checks(script)]


@pytest.fixture(scope="module")
def booted(tmp_path_factory: pytest.TempPathFactory) -> outside.Boot:
    """What came of all checks."""
    return outside.boot(KERNEL, SCRIPTS, tmp_path_factory.mktemp("lifecycle"), timeout=600)


@pytest.mark.parametrize(("script", "name"), CASES, ids=[f"{script}-{name}" for script, name in CASES])
def test_lifecycle(booted: outside.Boot, script: str, name: str) -> None:
    """The sentence is the docstring of the check."""
    booted.require(script, name)
