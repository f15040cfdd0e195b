# SPDX-License-Identifier: Apache-2.0
"""The mark in a saved image's definition: taken out and put in, and nothing else is touched."""

from __future__ import annotations

import pytest

from gangd.errors import GangError
from gangd.model.domain import NAMESPACE, Mark
from gangd.model.mark import format_mark, parse_mark
from gangd.model.saved_mark import mark_in, with_mark

MARK = format_mark(Mark("strict", 7))
OURS = f'<gangd:gang xmlns:gangd="{NAMESPACE}" policy="relaxed"/>'
OTHERS = '<n:i xmlns:n="urn:nova">&lt;gang policy="x"/&gt;<gang policy="no"/><a><b/></a></n:i>'
DEFINITIONS = {
    "none": "<domain type='kvm'>\n  <name>R&amp;D</name>\n</domain>",
    "empty": "<domain><metadata/><name>a</name></domain>",
    "opened": "<domain>\n  <metadata>\n  </metadata>\n  <title>&lt;metadata&gt;</title></domain>",
    "a stranger's": f"<domain><metadata>{OTHERS}</metadata></domain>",
    "ours": f"<domain><metadata>{OTHERS}{OURS}</metadata></domain>",
    "ours, opened": f'<domain><metadata><x:y xmlns:x="{NAMESPACE}" tag="t"></x:y></metadata></domain>',
    "elsewhere": f"<domain><devices><metadata>{OURS}</metadata></devices><name>ü☃</name></domain>",
    "inside a stranger's": f'<domain><metadata><s:t xmlns:s="urn:s">{OURS}</s:t></metadata></domain>',
}


@pytest.mark.parametrize("name", DEFINITIONS)
def test_a_mark_is_put_in_and_taken_out(name: str) -> None:
    """A mark is read back, another one replaces it, and without it all else is what it was."""
    before = DEFINITIONS[name]
    assert (mark_in(before) is not None) == name.startswith("ours")
    marked = with_mark(before, MARK)
    found = mark_in(marked)
    assert found is not None and parse_mark(found) == Mark("strict", 7)
    assert with_mark(marked, MARK) == marked
    bare = with_mark(marked, None)
    assert mark_in(bare) is None
    without = with_mark(before, None)
    empty = "<metadata></metadata>"
    assert bare.replace(empty, "") == without.replace(empty, "").replace("<metadata/>", "")


BROKEN = ["", "<a/>", "<domain>", "<!DOCTYPE domain><domain/>", "<domain>\ud800</domain>"]


@pytest.mark.parametrize("text", BROKEN)
def test_a_text_that_is_no_definition_is_refused(text: str) -> None:
    """The error is one sentence, and nothing is written."""
    with pytest.raises(GangError, match="cannot parse it"):
        with_mark(text, MARK)
