# SPDX-License-Identifier: Apache-2.0
"""Boots each VM of the table once."""

import pytest

from vm.boots import run


@pytest.fixture(scope="session")
def boots(tmp_path_factory: pytest.TempPathFactory) -> run.Boots:
    """The boots by name: the first test that asks for one makes it."""
    return run.Boots(lambda name: tmp_path_factory.mktemp(name))
