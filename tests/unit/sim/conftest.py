# SPDX-License-Identifier: Apache-2.0
"""The simulator, compiled once."""

from __future__ import annotations

import pytest

from gangsim.engine import Engine


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """A compiler that is missing or unhappy is a failure."""
    return Engine(tmp_path_factory.mktemp("sim"))
