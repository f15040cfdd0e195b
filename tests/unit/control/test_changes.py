# SPDX-License-Identifier: Apache-2.0
"""Two snapshots, and what happened between them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from fakes import guest, snapshot
from gangd.control.changes import _BY_SCHEDULE, changes
from gangd.control.schema import EVENTS
from gangd.control.structs import plain, text
from gangd.model.domain import Domain, Mark, Mode
from gangd.model.refused import Refused
from gangd.model.snapshot import Part, Snapshot

MARK = Mark()
IDLE = Part("sched_ext", False, True, "not loaded", {"ejections": 0})
LOADED = Part("sched_ext", True, True, "loaded", {"ejections": 0})


def snap(*domains: Domain, backend: Part = LOADED, **state: Any) -> Snapshot:
    return snapshot(*domains, backend=backend, state_fields=state)


def kinds(before: Snapshot, after: Snapshot) -> list[tuple[str, str | None]]:
    """Event and domain or backend of each."""
    return [(e.event, e.name or e.backend) for e in changes(before, after)]


@pytest.mark.parametrize(
    ("before", "after", "events"),
    [
        (guest("web", 3), guest("web", 3, mark=MARK), ["marked", "scheduled"]),
        (guest("web", 3, mark=MARK), guest("web", 3), ["unmarked", "released"]),
        (guest("web", mark=None), guest("web", mark=MARK), ["marked"]),
        (guest("web", mark=MARK), guest("web", 3, mark=MARK), ["scheduled"]),
        (guest("web", 3, mark=MARK), guest("web", mark=MARK), ["released"]),
        (guest("web", 3, mark=MARK), guest("web", 3, mark=Mark("strict")), ["marked", "scheduled"]),
        (guest("web", 3, mark=MARK), guest("web", 3, mark=Mark(weight=5)), ["marked"]),
        (guest("web", 3, 9), guest("web", 3, 9, mark=MARK), ["marked", "refused"]),
        (guest("web", 3, mark=MARK), guest("web", 3, mark_error="bad"), ["invalid-mark"]),
        (guest("web", 3, mark_error="bad"), guest("web", 3), ["released"]),
        (guest("web", 3), guest("web", 3), []),
        (guest("web", 3, mark=MARK), guest("web", 4, mark=MARK), []),
    ],
)  # fmt: skip
def test_one_domain(before: Domain, after: Domain, events: list[str]) -> None:
    """A domain's mark is told first, then how it is scheduled."""
    assert kinds(snap(before), snap(after)) == [(event, "web") for event in events]


def test_off_is_left_alone_like_no_mark() -> None:
    """`off` ends a schedule, with what said so, and is no news of a domain that had none."""
    off = guest("web", 3, mark=Mark("off"))
    found = changes(snap(guest("web", 3, mark=MARK)), snap(off))
    assert [(e.event, e.schedule, e.reason) for e in found] == [
        ("marked", None, None),
        ("released", "off", "left alone: mark"),
    ]
    assert kinds(snap(off), snap(guest("web", 3))) == [("unmarked", "web")]
    assert kinds(snap(), snap(off)) == kinds(snap(off), snap()) == []


def test_an_undo_is_an_event_of_its_domain() -> None:
    """The event comes although the domain did not change, and ends when the domain is scheduled again."""
    before = snap(guest("web", 3, mark=MARK))
    undone = replace(before, undone=frozenset({guest("web").uuid}))
    (event,) = changes(before, undone)
    assert (event.event, event.name, event.schedule) == ("undone", "web", "undone")
    assert event.policy == "relaxed" and "gangctl undo" in event.reason
    assert kinds(undone, before) == [("scheduled", "web")]
    assert kinds(undone, snap(guest("web", 3))) == [("unmarked", "web"), ("released", "web")]


@pytest.mark.parametrize("mode", [None, Mode.RELAXED])
def test_a_refusal_of_the_kernel_is_an_event(mode: Mode | None) -> None:
    """A refusal is no schedule, also where the guest stays as it was; the guest is scheduled when it ends."""
    web = guest("web", 3, mark=Mark("strict"))
    before = snap(web)
    after = replace(before, refused={web.uuid: Refused(web.uuid, "gang", "NotSupported", "no kick", mode)})
    (event,) = changes(before, after)
    assert (event.event, event.schedule, event.reason) == ("refused", mode or "refused", "no kick")
    assert kinds(after, before) == [("scheduled", "web")]


def test_domains_come_and_go() -> None:
    """A mark that a domain came with was made at another time; a domain that left is released."""
    marked = guest("web", 3, mark=MARK)
    assert kinds(snap(), snap(marked, guest("db", 4))) == [("scheduled", "web")]
    (event,) = changes(snap(marked, guest("db", 4)), snap())
    assert (event.event, event.reason) == ("released", "the domain is gone")


def test_the_scheduler_comes_and_goes() -> None:
    """The scheduler takes along the gangs that need it, and no others."""
    web, plain = guest("web", 3, mark=MARK), guest("plain", 4, mark=Mark("balance"))
    before, after = snap(web, plain), snap(web, plain, backend=IDLE)
    assert kinds(before, after) == [("backend-unloaded", "sched_ext"), ("waiting", "web")]
    assert kinds(after, before) == [("backend-loaded", "sched_ext"), ("scheduled", "web")]
    other = replace(LOADED, name="module")
    assert kinds(before, snap(web, plain, backend=other)) == [
        ("backend-unloaded", "sched_ext"), ("backend-loaded", "module"),
    ]  # fmt: skip


def test_an_ejection_is_seen_even_when_it_is_over() -> None:
    back = replace(LOADED, detail={"ejections": 1})
    out = replace(IDLE, detail={"ejections": 1})
    assert kinds(snap(), snap(backend=back)) == [
        ("backend-ejected", "sched_ext"),
        ("backend-loaded", "sched_ext"),
    ]
    assert kinds(snap(), snap(backend=out)) == [("backend-ejected", "sched_ext")]
    never = Part("sched_ext", False, False, "not asked yet")
    assert kinds(snap(backend=never), snap(backend=out)) == []


def test_libvirt_is_lost_and_found() -> None:
    """The loss of libvirt takes no guest away; a first connection that fails is no loss."""
    web = guest("web", 3, mark=MARK)
    lost = snap(web, connected=False, reason="it closed")
    (event,) = changes(snap(web), lost)
    assert (event.event, event.uri, event.reason) == ("libvirt-lost", "qemu:///system", "it closed")
    (event,) = changes(lost, snap(web))
    assert (event.event, event.uri, event.reason) == ("libvirt-found", "qemu:///system", None)
    assert changes(snap(connected=None), snap(connected=False)) == []


def test_every_event_is_a_whole_document() -> None:
    """Each has the time of the later snapshot, and nothing that is not JSON."""
    before = snap(guest("a", 1, mark=MARK), guest("b", 2, 9), guest("c\ud800", 3), connected=False)
    after = replace(
        snap(guest("a", 1), guest("b", 2, 9, mark=MARK), guest("c\ud800", 3, mark=MARK), backend=IDLE),
        time=42.5,
    )
    found = changes(before, after)
    assert {e.event for e in found} == {
        "libvirt-found", "backend-unloaded", "unmarked", "released", "marked", "refused", "waiting",
    }  # fmt: skip
    assert set(_BY_SCHEDULE.values()) <= set(EVENTS)
    for event in found:
        assert event.event in EVENTS
        assert set(plain(event)) == set(plain(found[0]))
        assert (plain(event)["schema"], event.time_seconds) == (1, 42.5)
        assert json.loads(text(event)) == plain(event)


def test_nothing_is_compared_when_nothing_was_replaced() -> None:
    """The daemon asks every few seconds: what is the same object is the same."""
    one = snap(guest("web", 3, mark=MARK))

    class Untouchable(dict[str, Domain]):
        def values(self) -> Any:
            raise AssertionError("looked at every domain")

    same = replace(one, state=replace(one.state, domains=Untouchable(one.state.domains)))
    assert changes(same, replace(same, time=one.time + 5)) == []
