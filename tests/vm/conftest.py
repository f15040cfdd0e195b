# SPDX-License-Identifier: Apache-2.0
"""Makes `vm` importable for the tests below, and boots each VM once."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from vm.boots import run


@pytest.fixture(scope="session")
def boots(tmp_path_factory: pytest.TempPathFactory) -> run.Boots:
    """The boots by name: the first test that asks for one makes it."""
    return run.Boots(lambda name: tmp_path_factory.mktemp(name))
