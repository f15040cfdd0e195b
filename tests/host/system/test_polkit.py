# SPDX-License-Identifier: Apache-2.0
"""Callers who are not root, and a polkit that decides about them, errs, lies or hangs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from gangd.control.authority import MANAGE, MONITOR
from host.system.dbus_fixtures import ENV, NOBODY, REPO, FakeDaemon, call, ended, gangctl
from host.system.fake_polkit import LATE_SECONDS, NONSENSE

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the policy lets only root own the name")

MARK = ("Mark", "sa{sv}", "db", "0")
EVERY_CHANGE = (
    MARK,
    ("Set", "sa{sv}", "web", "1", "weight", "u", "5"),
    ("Unmark", "sa{sv}", "web", "0"),
    ("Undo", "sa{sv}", "web", "0"),
    ("Resume", "sa{sv}", "web", "0"),
    ("SetSmt", "sa{sv}", "off", "0"),
    ("Refresh",),
)
DENIED = "permission denied"


class FakePolkit:
    """tests/host/system/fake_polkit.py as a process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert self._said() == "ready"

    def _said(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def asked(self) -> list[Any]:
        """Return the next question to polkit: subject, action, details, flags, cancellation."""
        return list(json.loads(self._said()))


@pytest.fixture
def polkit(address: str) -> Iterator[Callable[[str], FakePolkit]]:
    with ExitStack() as stack:

        def start(answer: str) -> FakePolkit:
            command = [sys.executable, str(Path(__file__).with_name("fake_polkit.py")), address, answer]
            started = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENV)
            return FakePolkit(stack.enter_context(ended(started)))

        yield start


def marked(address: str, name: str) -> bool:
    document = json.loads(call(address, "DomainInfo", "s", name).stdout)["data"][0]
    return bool(json.loads(document)["domain"]["marked"])


def test_without_polkit_root_changes_and_all_look(address: str, daemon: FakeDaemon) -> None:
    """Root alone changes, and all look, as with polkit's defaults and no user to ask."""
    for words in EVERY_CHANGE:
        assert f"{DENIED}, this needs root" in call(address, *words, user=NOBODY).stderr
    assert call(address, "Status", user=NOBODY).returncode == 0
    assert not marked(address, "db")
    for words in EVERY_CHANGE:
        assert call(address, *words).returncode == 0
    assert marked(address, "db")


def test_polkit_lets_others_change(
    address: str, daemon: FakeDaemon, polkit: Callable[[str], FakePolkit]
) -> None:
    """A yes is a yes for every method, and polkit is asked for the right thing."""
    asked = polkit("yes")
    for words in EVERY_CHANGE:
        assert call(address, *words, user=NOBODY).returncode == 0
        (kind, subject), action, details, flags, cancellation = asked.asked()
        assert (kind, action, details, flags, cancellation) == (
            "system-bus-name", MANAGE, {}, 0, "",
        )  # fmt: skip
        assert list(subject) == ["name"] and subject["name"][1].startswith(":")
    assert marked(address, "db")
    done = gangctl(address, "status", user=NOBODY)
    assert (done.returncode, asked.asked()[1]) == (0, MONITOR)


def test_root_is_not_asked_about(
    address: str, daemon: FakeDaemon, polkit: Callable[[str], FakePolkit]
) -> None:
    """Root's calls succeed whatever polkit would say, even while it hangs."""
    polkit("silent")
    for words in EVERY_CHANGE:
        assert call(address, *words).returncode == 0
    assert call(address, "Status").returncode == 0


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ("no", f"{DENIED} by polkit ({MANAGE})"),
        ("manage", f"{DENIED} by polkit ({MANAGE})"),
        ("challenge", f"{DENIED}: polkit asks for a password ({MANAGE})"),
        ("ask", f"{DENIED} by polkit ({MANAGE})"),
    ],
)
def test_a_no_is_a_sentence(
    address: str, daemon: FakeDaemon, polkit: Callable[[str], FakePolkit], answer: str, sentence: str
) -> None:
    polkit(answer)
    done = gangctl(address, "mark", "db", user=NOBODY)
    assert (done.returncode, done.stderr.splitlines()) == (
        1,
        ["error: failed to mark domain 'db'", f"error: {sentence}"],
    )
    assert not marked(address, "db")
    assert (gangctl(address, "list", user=NOBODY).returncode == 0) == (answer == "manage")


def test_a_password_is_asked_for_only_if_the_caller_says_so(
    address: str, daemon: FakeDaemon, polkit: Callable[[str], FakePolkit]
) -> None:
    """The option `interactive`, of every method that has options, and only when it is true."""
    asked = polkit("ask")
    for said in ("true", "false"):
        done = call(address, "Mark", "sa{sv}", "db", "1", "interactive", "b", said, user=NOBODY)
        assert (done.returncode == 0) == (said == "true")
        assert asked.asked()[3] == (1 if said == "true" else 0)
    done = call(address, "Mark", "sa{sv}", "db", "1", "interactive", "s", "true", user=NOBODY)
    assert DENIED in done.stderr and asked.asked()[3] == 0
    assert call(address, "SetSmt", "sa{sv}", "on", "1", "interactive", "b", "true").returncode == 0


@pytest.mark.parametrize("answer", [*NONSENSE, "error", "die"])
def test_nonsense_is_a_no(
    address: str,
    daemon: FakeDaemon,
    polkit: Callable[[str], FakePolkit],
    tmp_path: Path,
    answer: str,
) -> None:
    """An answer of another type, or too long, an error or polkit's end lets no caller in; gangd lives."""
    polkit(answer)
    done = call(address, *MARK, user=NOBODY)
    assert done.returncode != 0 and f"{DENIED}: polkit cannot be asked" in done.stderr
    assert "secret" not in done.stderr and len(done.stderr) < 1000
    assert not marked(address, "db")
    assert call(address, *MARK).returncode == 0
    log = (tmp_path / "gangd.log").read_text()
    assert "Traceback" not in log and "\x1b" not in log and len(log) < 2000


@pytest.mark.parametrize("answer", ["silent", "late"])
def test_a_polkit_that_hangs_holds_nobody_else_up(
    address: str, daemon: FakeDaemon, polkit: Callable[[str], FakePolkit], tmp_path: Path, answer: str
) -> None:
    """The caller is refused after a while; an answer that comes after that is nobody's."""
    asked = polkit(answer)
    tool = [sys.executable, "-c", "from gangd.cli.main import main; main(['mark', 'db'])"]
    waiting = subprocess.Popen(
        tool,
        env={**ENV, "GANGD_BUS": address},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        user=NOBODY,
    )
    with ended(waiting):
        asked.asked()
        started = time.monotonic()
        assert call(address, "Status").returncode == 0
        assert waiting.poll() is None, "it was answered without polkit"
        _, errors = waiting.communicate(timeout=30)
        assert time.monotonic() - started < 10
    assert "permission denied: polkit does not answer" in errors
    time.sleep(LATE_SECONDS)
    assert not marked(address, "db")
    assert "Traceback" not in (tmp_path / "gangd.log").read_text()


def test_the_action_file() -> None:
    """Both actions that gangd asks for, with the defaults the documents promise."""
    tree = ElementTree.parse(REPO / "systemd" / "org.gangd.Gangd1.policy")
    found = {
        action.get("id"): {default.text for defaults in action.iter("defaults") for default in defaults}
        for action in tree.iter("action")
    }
    assert found == {MONITOR: {"yes"}, MANAGE: {"auth_admin_keep"}}
    for action in tree.iter("action"):
        assert all(action.findtext(word) for word in ("description", "message"))
        assert {default.tag for default in action.iterfind("defaults/*")} == {
            "allow_any", "allow_inactive", "allow_active",
        }  # fmt: skip
