# SPDX-License-Identifier: Apache-2.0
"""Marked guests are reset, saved, restored and destroyed in mid-slot. One boot of 6.18 for all of it.

The checks are in vm_tests/lifecycle.py and run inside the VM, in their order.
"""

import pytest
from vm_tests import outside

pytestmark = pytest.mark.lab

KERNEL = "6.18"


@pytest.fixture(scope="module")
def booted(tmp_path_factory: pytest.TempPathFactory) -> outside.Boot:
    """What came of all checks."""
    return outside.boot(KERNEL, ["lifecycle"], tmp_path_factory.mktemp("lifecycle"))


@pytest.mark.parametrize("name", outside.checks("lifecycle"))
def test_lifecycle(booted: outside.Boot, name: str) -> None:
    """The sentence is the docstring of the check."""
    booted.require("lifecycle", name)
