# SPDX-License-Identifier: Apache-2.0
"""The mark is written by whoever may edit a domain: whatever they write, only InvalidMark comes out."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gangd.errors import InvalidMark
from gangd.model.domain import NAMESPACE, Mark
from gangd.model.mark import SIZE_MAX, format_mark, parse_mark

PREFIXED = f'<gangd:gang xmlns:gangd="{NAMESPACE}" policy="strict" weight="200"/>'
marks = st.builds(
    Mark,
    policy=st.none() | st.from_regex(r"[a-z][a-z0-9-]{0,31}", fullmatch=True),
    weight=st.none() | st.integers(1, 10000),
    tag=st.none() | st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True),
)


@given(marks)
def test_a_mark_reads_back_as_it_was_written(mark: Mark) -> None:
    assert parse_mark(format_mark(mark)) == mark


@pytest.mark.parametrize(
    "text",
    [
        PREFIXED,
        f'<gang xmlns="{NAMESPACE}" policy="strict" weight="200"/>',
        '<gang policy="strict" weight="200"/>',
        '\n<gang weight="200"\n  policy="strict">\n</gang>\n',
    ],
)
def test_every_form_libvirt_hands_back_is_read(text: str) -> None:
    assert parse_mark(text) == Mark("strict", 200)


def test_a_mark_that_names_nothing() -> None:
    """Leaves the choice to the operator; its tag may tell what kind of guest this is."""
    assert parse_mark("<gang/>") == Mark(None)
    assert parse_mark('<gang tag="batch"/>') == Mark(None, tag="batch")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "not well-formed"),
        ("<gang", "not well-formed"),
        ('<gang xmlns="urn:other"/>', "urn:other"),
        ("<pack/>", "'pack'"),
        ('<gang size="3"/>', "'size'"),
        ("<gang><pin/></gang>", "'pin'"),
        ("<gang>now</gang>", "text"),
        ('<gang weight="0"/>', "'0'"),
        ('<gang tag=""/>', "tag"),
        ('<gang tag="two words"/>', "'two words'"),
        ('<gang weight="10001"/>', "'10001'"),
        ('<gang weight="-5"/>', "'-5'"),
        ('<gang weight="1.5"/>', "'1.5'"),
        ('<gang weight="٣"/>', "weight"),
        ('<gang weight=""/>', "weight"),
        ('<gang policy="Relaxed"/>', "'Relaxed'"),
        ('<gang policy="../etc"/>', "'../etc'"),
        ('<gang policy="relaxed&#10;"/>', "policy"),
        ('<gang policy=""/>', "policy"),
        (f'<gang policy="{"a" * 33}"/>', "policy"),
        ("<gang><!-- hm --></gang>", "comments"),
        ('<?xml version="1.0" encoding="utf-16"?><gang/>', "processing instructions"),
        ('<!DOCTYPE g [<!ENTITY a "aaaa">]><gang policy="&a;"/>', "declarations"),
        ('<gang policy="\ud800"/>', "Unicode"),
        ('<gang policy="\0"/>', "not well-formed"),
        (f"<gang>{' ' * SIZE_MAX}</gang>", "longer"),
        (f'<gang policy="{"é" * (SIZE_MAX // 2)}"/>', "longer"),
    ],
)
def test_a_wrong_mark_is_named_in_one_line(text: str, named: str) -> None:
    with pytest.raises(InvalidMark) as caught:
        parse_mark(text)
    assert named in caught.value.cause
    assert caught.value.cause.isprintable()
    assert len(caught.value.cause) < 250


pieces = st.sampled_from(
    [
        "<gang",
        "<",
        ">",
        "/>",
        "</gang>",
        " policy=",
        " weight=",
        '"',
        "relaxed",
        "1",
        "&amp;",
        "&#0;",
        "<!",
        "xmlns=",
    ]
)


@given(st.text() | st.lists(pieces | st.text(max_size=3)).map("".join))
@example("<a>" * 1300)
@example("\udc80")
def test_nothing_but_invalid_mark_is_raised(text: str) -> None:
    try:
        mark = parse_mark(text)
    except InvalidMark:
        return
    assert parse_mark(format_mark(mark)) == mark


@pytest.mark.parametrize("mark", [Mark('x"/><evil'), Mark("relaxed", 0), Mark("relaxed", 99999)])
def test_an_impossible_mark_is_not_written(mark: Mark) -> None:
    with pytest.raises(InvalidMark):
        format_mark(mark)
