# SPDX-License-Identifier: Apache-2.0
"""The page for people: its figures, its order and size, hostile text, and the frame around it."""

from __future__ import annotations

import re
from base64 import b64decode
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from fakes import counters, guest, snapshot
from gangd.export.frame import absent, index
from gangd.export.http import GUARDED
from gangd.export.overview import MOST, overview
from gangd.model.domain import Domain, Mark
from gangd.model.refused import Refused
from gangd.model.snapshot import DomainStats, Part, Snapshot, VcpuStats
from gangd.trace.kept import Picture

EMPTY = {"meta", "rect", "img"}  # elements that have no end
# All that the page is made of: no script, no form and no frame.
ELEMENTS = {
    *("html", "head", "title", "style", "body", "h1", "h2", "nav", "a", "p", "small", "span", "code", "svg"),
    *("dl", "dt", "dd", "div", "table", "thead", "tbody", "tr", "th", "td", "ul", "li"),
}
DRAWINGS = (b"<svg/>", '<svg>"><script>alert(1)</script> \u6771'.encode(), b"\xff\0'\">")
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</style><style>*{display:none}",
    "&lt;b&gt;",
    "a\n\x1b[31m\u202eb\0c\udc80",
    "javascript:alert(1)",
    "x" * 5000,
)


class Page(HTMLParser):
    """A page as a browser reads it: rows of its tables, elements, attributes, and elements left open."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.elements: set[str] = set()
        self.attributes: set[str] = set()
        self.links: list[str] = []
        self.pictures: list[str] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin an element; a row and a cell begin a list and a text."""
        self.elements.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.links += [value or "" for name, value in attrs if name == "href"]
        self.pictures += [value or "" for name, value in attrs if name == "src"]
        if tag not in EMPTY:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        """End the element that was begun last, and no other."""
        if tag not in EMPTY:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Add to the text of the page and of the cell."""
        self.text += data
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data


def waiting(domain: Domain, share: float) -> DomainStats:
    """Counters of a guest that waited for this share of 200 s."""
    made = counters(domain)
    some = {"cpu_seconds": 200 * (1 - share), "run_delay_seconds": 200 * share}
    return replace(made, vcpus=tuple(vcpu._replace(**some) for vcpu in made.vcpus))


def told(shares: dict[str, float]) -> Snapshot:
    """A snapshot of running guests that wait for these shares."""
    guests = [guest(name, number, 1) for number, name in enumerate(shares, 1)]
    stats = {vm.uuid: waiting(vm, shares[vm.name]) for vm in guests}
    return snapshot(*guests, stats=stats)


def row(page: Page, name: str) -> list[str]:
    """The last row of that guest: that of the guests' table."""
    return [cells for cells in page.rows if cells[0] == name][-1]


def test_it_says_how_a_guest_fares() -> None:
    """The shares are those of the counters, and a guest that is no gang has no share of time apart."""
    page = Page(overview(snapshot(guest("web", 3, mark=Mark()), guest("db", 4), guest("off"))))
    assert row(page, "web")[3:] == ["2", "20.0 %", "80.0 %", "50.0 %"]
    assert row(page, "db")[3:] == ["2", "20.0 %", "80.0 %", "-"]
    assert (
        row(page, "web")[1].startswith("relaxedmarked with policy") and row(page, "db")[1] == "not by gangd"
    )
    assert "2 running of 3 known, 1 planned as gangs, 0 refused" in page.text
    assert "4 online, 4 vCPUs of running guests: 1.00 a CPU" in page.text
    assert not [cells for cells in page.rows if cells[0] == "off"]


def test_a_bar_is_as_long_as_its_share() -> None:
    text = overview(told({"a": 0.375}))
    assert '37.5 %<svg viewBox="0 0 100 8"' in text and '<rect class="less" width="37.5"' in text


def test_unknown_is_no_bar() -> None:
    vm = guest("new", 3)
    unread = DomainStats(vm.uuid, (VcpuStats(0, cpu_seconds=1.0), VcpuStats(1)))
    for stats in ({}, {vm.uuid: unread}):
        text = overview(snapshot(vm, stats=stats))
        assert row(Page(text), "new")[3:] == ["2", "-", "-", "-"] and "<rect" not in text


def test_guests_that_wait_most_come_first() -> None:
    page = Page(overview(told({"a": 0.1, "b": 0.9, "c": 0.6, "d": 0.1})))
    assert [cells[0] for cells in page.rows[1:]] == ["b", "c", "a", "d"]
    assert "2 of 4 running guests waited for more than half of the CPU time" in page.text


@pytest.mark.parametrize("count", [MOST, MOST + 1, 3 * MOST])
def test_its_size_is_bounded(count: int) -> None:
    """The page shows the guests that wait most, and says how many guests, refusals, failures it omits."""
    snap = told({f"g{number:03}": number / 1000 for number in range(count)})
    page = Page(overview(snap))
    assert [cells[0] for cells in page.rows[1:]] == [f"g{count - 1 - n:03}" for n in range(MOST)]
    out = f"{count - MOST} more guests are left out." if count > MOST else ""
    assert page.text.count("left out") == bool(out) and out in page.text
    refused = {uuid: Refused(uuid, "affinity", "Io", uuid + "no" * 500) for uuid in snap.state.domains}
    marked = [replace(d, mark=Mark("balance")) for d in snap.state.domains.values()]
    worse = snapshot(*marked, refused=refused, failures=("cannot write x: " + "y" * 999,) * count)
    assert len(overview(worse).encode()) < 250_000
    page = Page(overview(worse))
    assert page.text.count("left out") == 3 * bool(out)
    assert page.text.count("cannot write x") == MOST
    assert len(page.rows) == 2 * (1 + MOST)  # each table with its head


def test_it_gives_reasons() -> None:
    """A failure, and a guest that is not scheduled as it is to be, have their sentences."""
    page = Page(overview(snapshot(guest("big", 3, 64, Mark()), failures=("cannot write cpu.weight: EIO",))))
    assert ["big", "refused", "more vCPUs than CPUs in any cacheNotPlanned"] in page.rows
    assert "cannot write cpu.weight: EIO" in page.text and "nothing failed" not in page.text
    assert "nothing failed" in Page(overview(snapshot(guest("web", 3, mark=Mark())))).text


def test_guests_that_are_refused_alike_have_a_row_in_common() -> None:
    """Ten of them are named, and the reason of most guests comes first."""
    many = [guest(f"g{number:02}", number, 64, Mark()) for number in range(1, 13)]
    page = Page(overview(snapshot(guest("a", 99, mark_error="policy is not a word"), *many)))
    names = ", ".join(f"g{number:02}" for number in range(1, 11)) + "and 2 more"
    assert page.rows[1] == [names, "refused", "more vCPUs than CPUs in any cacheNotPlanned"]
    assert page.rows[2] == ["a", "invalid mark", "policy is not a wordInvalidMark"]


def test_parts_that_do_not_work_are_seen() -> None:
    snap = snapshot(
        backend=Part("none", False, False, "the kernel has no sched_ext"),
        state_fields={"connected": False, "reason": "cannot connect: <refused>"},
    )
    text = Page(overview(snap)).text
    assert "none: the kernel has no sched_ext (not in use)" in text
    assert "does not answer: cannot connect: <refused>" in text


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_stays_text(name: str) -> None:
    """A name, a policy and each sentence come back as text; no element, attribute or link is added."""
    quiet = snapshot(guest("web", 3, 64, Mark()), failures=("x",))
    known = Page(overview(quiet))
    vm, bad = guest(name, 3, 64, Mark(name)), guest("b", 4, mark_error=name)
    part = Part(name, True, True, name)
    uri = {"uri": name}
    text = overview(
        snapshot(vm, bad, failures=(name,), backend=part, probes=part, state_fields=uri, kernel=name)
    )
    page = Page(text)
    assert page.open == [] and page.elements <= ELEMENTS | EMPTY
    assert page.attributes == known.attributes and page.links == known.links
    shown = page.rows[-1][0] if page.rows[-1][0] != "b" else page.rows[-2][0]
    assert shown == name or (
        len(shown) <= 64 and (shown.endswith("...") or "\\x1b[31m\\xe2\\x80\\xaeb" in shown)
    )
    assert text.encode() and all(char.isprintable() or char == "\n" for char in text)


def test_it_stands_alone() -> None:
    """The page loads nothing, and what it links to is the exporter's; a browser is told to load nothing."""
    shown = overview(told({"a": 0.5}), Picture(b"<svg/>", 1.0))
    for text in (shown, overview(told({"a": 0.5})), absent(), index(["GangdDown.md"])):
        page = Page(text)
        assert all(picture.startswith("data:image/svg+xml;base64,") for picture in page.pictures)
        assert page.open == [] and page.elements <= ELEMENTS | EMPTY
        assert set(page.links) <= {"metrics", "runbooks/", "../", "GangdDown.md"}
        assert not re.search(r"url\(|@import|https?:", text)
    allowed = "default-src 'none'; style-src 'unsafe-inline'; img-src data:;"
    assert GUARDED["Content-Security-Policy"].startswith(allowed)


@pytest.mark.parametrize("drawn", DRAWINGS)
def test_the_last_trace_is_a_picture_within_the_page(drawn: bytes) -> None:
    """A picture's bytes come back from the image's own address, none is part of the page; it has its date."""
    page = Page(overview(told({"a": 0.5}), Picture(drawn, 1_800_000_000.9)))
    (address,) = page.pictures
    assert b64decode(address.removeprefix("data:image/svg+xml;base64,")) == drawn
    assert page.open == [] and page.elements <= ELEMENTS | EMPTY and "alert" not in page.text
    assert "Recorded 2027-01-15 08:00:00 UTC" in page.text


def test_without_a_picture_the_page_says_why() -> None:
    """There was no trace, or its picture cannot be shown for a reason, which is a stranger's text."""
    page = Page(overview(told({"a": 0.5})))
    assert page.pictures == [] and "None is kept: gangctl trace, as root, records one." in page.text
    page = Page(overview(told({"a": 0.5}), Picture(reason="cannot show <b>: it is a symbolic link")))
    assert page.pictures == [] and "cannot show <b>: it is a symbolic link" in page.text


def test_runbooks_are_listed() -> None:
    assert Page(index(["b.md", "a.md"])).links == ["../", "a.md", "b.md"]
    assert "not installed" in Page(index([])).text
