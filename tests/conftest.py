# SPDX-License-Identifier: Apache-2.0
"""The rules that hold for every test: see judge.py."""

from judge import pytest_collection_modifyitems, pytest_configure

__all__ = ["pytest_collection_modifyitems", "pytest_configure"]
