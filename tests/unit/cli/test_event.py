# SPDX-License-Identifier: Apache-2.0
"""How events are shown, and when waiting for them ends."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType

import pytest

from fakes import FakeService, guest, local_client, snapshot
from gangd.cli.event import shown
from gangd.cli.main import main
from gangd.control import client as control
from gangd.control import schema
from gangd.control.changes import changes
from gangd.control.schema import Document
from gangd.control.structs import plain
from gangd.errors import NoDaemon
from gangd.model.domain import Mark
from gangd.model.snapshot import Part

EVIL = "evil\x1b[31m\n"
BEFORE = snapshot(guest("web", 3), guest(EVIL, 4), backend=Part("sched_ext", False, True, "idle"))
AFTER = replace(
    snapshot(guest("web", 3, mark=Mark("strict", 200)), guest(EVIL, 4, mark=Mark())),
    state=replace(
        snapshot(guest("web", 3, mark=Mark("strict", 200)), guest(EVIL, 4, mark=Mark())).state,
        connected=False,
        reason="it went\x1b away",
    ),
)
EVENTS = [*map(plain, changes(BEFORE, AFTER))]
LINES = [
    "event 'libvirt-lost': it went\\x1b away",
    "event 'backend-loaded' for backend 'sched_ext': loaded, full switch",
    "event 'marked' for domain 'evil\\x1b[31m\\x0a': policy relaxed",
    "event 'scheduled' for domain 'evil\\x1b[31m\\x0a': relaxed, marked with policy relaxed",
    "event 'marked' for domain 'web': policy strict, weight 200",
    "event 'scheduled' for domain 'web': strict, marked with policy strict",
]


def test_a_mark_that_names_nothing() -> None:
    """A mark that names no policy may have a weight or a tag alone."""
    bare = changes(snapshot(guest("web")), snapshot(guest("web", mark=Mark(None, tag="batch"))))
    heavy = changes(snapshot(guest("web")), snapshot(guest("web", mark=Mark(None, 200))))
    assert [*map(shown, map(plain, bare + heavy))] == [
        "event 'marked' for domain 'web'",
        "event 'marked' for domain 'web': weight 200",
    ]


class Source:
    """A gangd.control.listen that hears `events` and then does what a test wants."""

    def __init__(self) -> None:
        self.events: list[Document] = list(EVENTS)
        self.then: BaseException | None = None
        self.asked: list[tuple[str | None, float | None]] = []

    def listen(self, bus: str | None, timeout: float | None) -> Iterator[Document]:
        self.asked.append((bus, timeout))
        yield from self.events
        if self.then is not None:
            raise self.then


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Source:
    service = FakeService(AFTER)
    service.now = replace(AFTER, state=replace(AFTER.state, connected=True))
    monkeypatch.setattr(control, "connect", lambda bus=None, timeout=0, **others: local_client(service))
    module, made = ModuleType("listen"), Source()
    module.listen = made.listen  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "gangd.control.listen", module)
    return made


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[str], str]:
    code = main(["event", *words])
    out, err = capsys.readouterr()
    return code, out.splitlines(), err


def test_events_in_words() -> None:
    assert [shown(event) for event in EVENTS] == LINES
    assert (
        shown({**EVENTS[0], "time_seconds": 1.25}, timestamp=True)
        == f"1970-01-01 00:00:01.250+0000: {LINES[0]}"
    )


def test_one_event_is_enough(source: Source, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys) == (0, [LINES[0], "events received: 1"], "")
    assert run(capsys, "-q", "--timeout", "5", "--bus", "session") == (0, LINES[:1], "")
    assert source.asked == [(None, None), ("session", 5.0)]


def test_a_loop_ends_with_its_time(source: Source, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "--loop", "--timeout", "5")
    assert (code, err) == (0, "")
    assert out == [*LINES, "event loop timed out", "events received: 6"]


def test_of_one_domain(source: Source, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "web", "--loop", "--timeout", "5", "-q")
    assert (code, out) == (0, LINES[4:])
    assert run(capsys, "nope")[2].startswith("error: failed to show domain 'nope'\nerror: Domain not")


def test_of_one_kind(source: Source, capsys: pytest.CaptureFixture[str]) -> None:
    """Events of other kinds do not count; --all is what holds without it."""
    assert run(capsys, "--event", "marked", "-q") == (0, LINES[2:3], "")
    assert run(capsys, "--event", "scheduled", "--loop", "--timeout", "5", "-q")[1] == [LINES[3], LINES[5]]
    assert run(capsys, "--domain", "web", "--event", "marked", "-q") == (0, LINES[4:5], "")
    assert run(capsys, "--event", "released", "--loop", "--timeout", "5")[0] == 1
    assert run(capsys, "--all") == run(capsys)
    assert "invalid choice: 'x\\x1b'" in run(capsys, "--event", "x\x1b")[2]


def test_the_kinds(source: Source, capsys: pytest.CaptureFixture[str]) -> None:
    """They are listed without a daemon."""
    assert run(capsys, "--list") == (0, list(schema.EVENTS), "")
    assert json.loads("".join(run(capsys, "--list", "--json")[1])) == {
        "schema": 1, "events": list(schema.EVENTS),
    }  # fmt: skip
    assert source.asked == []


@pytest.mark.parametrize("words", [("--all", "--event"), ("--list", "--all"), ("--list", "--event")])
def test_event_refuses_options_that_exclude_each_other(
    capsys: pytest.CaptureFixture[str], words: tuple[str, str]
) -> None:
    code, out, err = run(capsys, *words, *["marked"][: words[1] == "--event"])
    assert (code, out) == (1, [])
    assert err.endswith(f"event\nerror: Options {words[0]} and {words[1]} are mutually exclusive\n")


def test_no_event_in_time(source: Source, capsys: pytest.CaptureFixture[str]) -> None:
    source.events = []
    assert run(capsys, "--timeout", "5") == (
        1, [], "error: failed to wait for an event\nerror: nothing happened in 5 seconds\n",
    )  # fmt: skip
    assert json.loads("".join(run(capsys, "--timeout", "5", "--json")[1]))["error"]["code"] == "TimedOut"


def test_ctrl_c_and_a_daemon_that_ends(source: Source, capsys: pytest.CaptureFixture[str]) -> None:
    source.then = KeyboardInterrupt()
    assert run(capsys, "--loop")[:2] == (0, [*LINES, "event loop interrupted", "events received: 6"])
    source.then = NoDaemon("gangd is not running")
    code, out, err = run(capsys, "--loop")
    assert (code, out) == (1, LINES) and err.endswith("error: gangd is not running\n")


def test_as_documents(source: Source, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--json", "--loop", "--timeout", "1")
    assert code == 0 and [json.loads(line) for line in out] == EVENTS
    assert all(line.isascii() for line in out)
