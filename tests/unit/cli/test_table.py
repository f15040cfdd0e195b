# SPDX-License-Identifier: Apache-2.0
"""Tables and the words for values."""

from __future__ import annotations

import pytest

from gangd.cli import table


def test_a_table_looks_like_virsh() -> None:
    assert table.table(("Id", "Name"), [(1, "web"), (None, "database")]) == (
        " Id   Name\n"
        "----------------\n"
        " 1    web\n"
        " -    database"
    )  # fmt: skip


def test_without_header_and_without_rows() -> None:
    assert table.table(("Id", "Name"), [(1, "web")], header=False) == " 1   web"
    assert table.table(("Id", "Name"), [], header=False) == ""
    assert table.table(("Id",), []) == " Id\n-----"


def test_wide_and_combining_letters_keep_columns() -> None:
    lines = table.table(("N", "X"), [("東京", 1), ("e\u0301", 2), ("a\nb", 3)]).split("\n")
    assert [table.width(line[: line.rindex(d)]) for line, d in zip(lines[2:], "123", strict=True)] == [10] * 3


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0, "0 s"),
        (12.34, "12.3 s"),
        (1234.5, "1,234.5 s"),
        (0.00456, "4.56 ms"),
        (5e-6, "5.0 us"),
    ],
)
def test_seconds(value: float | None, text: str) -> None:
    assert table.seconds(value) == text


def test_other_words() -> None:
    assert (table.share(None), table.share(0.5), table.count(1234567)) == ("-", "50.0 %", "1,234,567")
    assert (table.count(1.25), table.count(None), table.size(2048)) == ("1.2", "-", "2 KiB")


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0.0, "     0.0 %"), (0.5, "██   50.0 %"), (0.28, "█▏   28.0 %"), (1.2, "████ 120.0 %")],
)
def test_bars(value: float | None, text: str) -> None:
    """A bar is as long as the ratio says, to an eighth of a cell, and never longer than its place."""
    assert table.bar(value, 4) == text


def test_terminals_without_blocks() -> None:
    """They get letters, where one character of a line has no place in their encoding."""
    assert table.typed("█░· 東", "utf-8") == "█░· 東"
    assert table.typed("█░·", "latin-1") == "#.-"
    assert table.typed("plain", None) == "plain"
