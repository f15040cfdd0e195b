# SPDX-License-Identifier: Apache-2.0
"""A table is shown as text and as Markdown."""

from __future__ import annotations

from bench.grid import Table

ROWS = [["a", "1", "x"], ["long", "100", "y"]]


def test_text_pads_to_the_widest_cell() -> None:
    """The first column is left, all others are right, and no line ends with a blank."""
    found = Table(["", "figure", ""], ROWS, "title", notes=["note"])
    assert list(found.text()) == ["title", "      figure", "a          1  x", "long     100  y", "note"]
    assert list(Table([], ROWS, align="l").text()) == ["a     1    x", "long  100  y"]


def test_groups_have_their_title_above_their_columns() -> None:
    found = Table(["n", "1st", "2nd"], ROWS, groups=[("", 1), ("rounds", 2)], between=" | ")
    assert list(found.text()) == [
        "     |  rounds",
        "n    | 1st 2nd",
        "--------------",
        "a    |   1   x",
        "long | 100   y",
    ]


def test_markdown_has_the_same_cells() -> None:
    found = Table(["", "figure", ""], ROWS, "title", notes=["note"])
    assert list(found.markdown()) == [
        *("title", "", "|  | figure |  |", "|---|---|---|", "| a | 1 | x |", "| long | 100 | y |", ""),
        *("note", ""),
    ]
