# SPDX-License-Identifier: Apache-2.0
"""Guests are gang-scheduled, and what is measured of them is true. One boot of 6.18 for all of it.

Never skipped. The checks are in vm_tests/gang.py and run inside the VM, in their order.
"""

import pytest
from vm_tests import outside

pytestmark = pytest.mark.lab

KERNEL = "6.18"


@pytest.fixture(scope="module")
def booted(tmp_path_factory: pytest.TempPathFactory) -> outside.Boot:
    """What came of all checks."""
    return outside.boot(KERNEL, ["gang"], tmp_path_factory.mktemp("gang"))


@pytest.mark.parametrize("name", outside.checks("gang"))
def test_gang(booted: outside.Boot, name: str) -> None:
    """The sentence is the docstring of the check."""
    booted.require("gang", name)
