# SPDX-License-Identifier: Apache-2.0
"""README's block is the demo's own words about the sources as they are."""

from __future__ import annotations

import re
from pathlib import Path

from bench.demo import outcome

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


def block() -> str:
    """Return README's text between the markers."""
    return README[README.index(outcome.BEGIN) : README.index(outcome.END)]


def test_block_is_of_these_sources() -> None:
    """The files that decide who runs (project.py) have not moved on since the figures were taken."""
    found = re.search(r"who runs: ([0-9a-f]+)\)", block().splitlines()[0])
    assert found and found[1] == outcome.sources(), "run `make demo DEMO=--write`"


def test_block_is_whole() -> None:
    """Every check of every run that a demonstration has by default, whatever became of it."""
    from bench.demo.phases import Run
    from bench.demo.report import checks
    from bench.demo.report import document as made
    from bench.demo.settings import PLANNED, planned
    from bench.demo.table import views

    empty = made([Run(*run) for run in planned(PLANNED)], None, None, None, None, {})
    assert [check["name"] for check in checks(empty) if check["name"] not in block()] == []
    assert [view["title"] for view in views(empty["runs"]) if view["title"] not in block()] == []
