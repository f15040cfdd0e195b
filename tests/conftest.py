# SPDX-License-Identifier: Apache-2.0
"""The rules that hold for every test (session_rules.py), and how processes share them (parallel.py)."""

from hypothesis import settings

from parallel import pytest_collection_modifyitems, pytest_xdist_make_scheduler
from session_rules import pytest_configure

__all__ = ["pytest_collection_modifyitems", "pytest_configure", "pytest_xdist_make_scheduler"]

# How long an example takes is the machine's affair: its deadline is no assertion of ours.
settings.register_profile("gangd", deadline=None)
settings.load_profile("gangd")
