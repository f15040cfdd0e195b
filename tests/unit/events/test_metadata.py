# SPDX-License-Identifier: Apache-2.0
"""Check where a mark is written, against libvirt's own test driver."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from gangd.errors import GangError, InvalidArgument, InvalidMark, NotMarked, NotRunning
from gangd.model.affect import Affect
from gangd.model.domain import NAMESPACE, Mark
from gangd.model.mark import format_mark, parse_mark

pytest.importorskip("libvirt")

import libvirt

from gangd.events.metadata import CONFIG, LIVE, change_mark, write_mark

XML = """<domain type='test'><name>vm</name><memory>1024</memory><vcpu>2</vcpu>
<os><type>hvm</type></os></domain>"""
BOTH, ONLY_LIVE, ONLY_CONFIG, CURRENT = None, Affect(live=True), Affect(config=True), Affect()
MARK = format_mark(Mark("strict", 7))


@pytest.fixture
def conn() -> Iterator[Any]:
    connection = libvirt.open("test:///default")
    yield connection
    connection.close()


@pytest.fixture
def running(conn: Any) -> Any:
    dom = conn.defineXML(XML)
    dom.create()
    return dom


def marks(dom: Any) -> tuple[Mark | None, Mark | None]:
    """Return the marks in the live state and in the configuration, None where there is no valid one."""
    found: list[Mark | None] = []
    for flag in (LIVE, CONFIG):
        try:
            found.append(parse_mark(dom.metadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, NAMESPACE, flag)))
        except (libvirt.libvirtError, InvalidMark):
            found.append(None)
    return found[0], found[1]


@pytest.mark.parametrize(
    ("affect", "where"),
    [
        (BOTH, (True, True)),
        (ONLY_LIVE, (True, False)),
        (ONLY_CONFIG, (False, True)),
        (CURRENT, (True, False)),
        (Affect(True, True), (True, True)),
    ],
)
def test_a_running_domain(running: Any, affect: Affect | None, where: tuple[bool, bool]) -> None:
    """A running domain has two states; a mark is written to those meant, and taken from them alone."""
    write_mark(running, MARK, affect)
    assert marks(running) == tuple(Mark("strict", 7) if there else None for there in where)
    write_mark(running, MARK, BOTH)
    for _ in range(2):  # also where there is none any more
        write_mark(running, None, affect)
    assert marks(running) == tuple(None if there else Mark("strict", 7) for there in where)


def test_a_domain_that_does_not_run(conn: Any) -> None:
    """A domain that does not run has its configuration alone, which then is the current state."""
    dom = conn.defineXML(XML)
    for affect in (BOTH, CURRENT, ONLY_CONFIG):
        write_mark(dom, MARK, affect)
        assert marks(dom) == (None, Mark("strict", 7))
        write_mark(dom, None, affect)
        assert marks(dom) == (None, None)
    for affect in (ONLY_LIVE, Affect(True, True)):
        with pytest.raises(NotRunning, match="domain is not running"):
            write_mark(dom, MARK, affect)
    assert marks(dom) == (None, None)


def test_a_transient_domain(conn: Any) -> None:
    """A transient domain has no configuration."""
    dom = conn.createXML(XML)
    for affect in (ONLY_CONFIG, Affect(True, True)):
        with pytest.raises(InvalidArgument, match="transient domains do not have any persistent config"):
            write_mark(dom, MARK, affect)
    write_mark(dom, MARK, BOTH)
    change_mark(dom, lambda mark: replace(mark, weight=8), CURRENT)
    assert marks(dom)[0] == Mark("strict", 8)


def test_each_mark_is_changed_from_what_it_was(running: Any) -> None:
    """Live and configured marks may differ, and stay different in what is not changed."""
    write_mark(running, format_mark(Mark("relaxed", 5)), ONLY_LIVE)
    write_mark(running, format_mark(Mark("strict", 6)), ONLY_CONFIG)
    change_mark(running, lambda mark: replace(mark, weight=9), BOTH)
    assert marks(running) == (Mark("relaxed", 9), Mark("strict", 9))
    change_mark(running, lambda mark: replace(mark, policy="balance"), ONLY_CONFIG)
    assert marks(running) == (Mark("relaxed", 9), Mark("balance", 9))


def test_change_refuses_a_domain_without_a_mark(running: Any) -> None:
    """A mark in one state is enough without options; each state that an option names must have one."""
    never: list[Mark] = []

    def change(mark: Mark) -> Mark:
        never.append(mark)
        return mark

    for affect in (BOTH, CURRENT, ONLY_CONFIG):
        with pytest.raises(NotMarked, match="domain is not marked"):
            change_mark(running, change, affect)
    write_mark(running, MARK, ONLY_LIVE)
    with pytest.raises(NotMarked, match="not marked in its configuration"):
        change_mark(running, change, Affect(True, True))
    assert never == []
    change_mark(running, lambda mark: replace(mark, weight=3), BOTH)
    assert marks(running) == (Mark("strict", 3), None)


def test_a_bad_mark_or_a_bad_change_writes_nothing(running: Any) -> None:
    """A mark nobody understands cannot be changed in part, and the other one is not changed then."""
    write_mark(running, MARK, ONLY_LIVE)
    write_mark(running, '<gang speed="9"/>', ONLY_CONFIG)
    with pytest.raises(InvalidMark, match="speed"):
        change_mark(running, lambda mark: replace(mark, weight=3), BOTH)
    with pytest.raises(InvalidMark):
        change_mark(running, lambda mark: replace(mark, policy="No Such"), ONLY_LIVE)
    assert marks(running) == (Mark("strict", 7), None)


def test_a_domain_that_is_gone(conn: Any) -> None:
    dom = conn.defineXML(XML)
    dom.undefine()
    for affect in (BOTH, CURRENT, ONLY_CONFIG):
        with pytest.raises(GangError):
            write_mark(dom, MARK, affect)
        with pytest.raises(GangError):
            change_mark(dom, lambda mark: mark, affect)
