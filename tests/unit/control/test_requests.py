# SPDX-License-Identifier: Apache-2.0
"""What callers may send, how failures leave, and how the client reads them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangd.control.client import Client, from_wire
from gangd.control.requests import NEUTRAL, Requests
from gangd.control.text import printable, shortened
from gangd.errors import (
    AccessDenied,
    GangError,
    InvalidArgument,
    NoDaemon,
    NoLibvirt,
    NoSuchDomain,
)
from gangd.model.domain import Mark
from gangd.testing import FakeService, guest, local_client, snapshot


@pytest.fixture
def service() -> FakeService:
    return FakeService(snapshot(guest("web", 3, mark=Mark()), guest("db"), guest("3x")))


@pytest.fixture
def client(service: FakeService) -> Client:
    return local_client(service)


def test_mark_passes_what_was_given_and_nothing_else(service: FakeService, client: Client) -> None:
    client.mark("db")
    client.mark("web", "strict", 10000)
    asked = [c for c in service.calls if c[0] == "mark"]
    assert asked == [("mark", "db", None, None), ("mark", "web", "strict", 10000)]
    assert client.dominfo("web")["domain"]["policy"] == "strict"


@pytest.mark.parametrize(
    "options",
    [
        {"colour": ("s", "red")},
        {"": ("s", "")},
        {"weight": ("s", "100")},
        {"weight": ("b", True)},
        {"weight": ("u", 0)},
        {"weight": ("u", 10001)},
        {"policy": ("u", 1)},
        {"policy": ("s", " ")},
        {"policy": ("s", "x" * 129)},
        {"policy": ("s", "a\0b")},
        {"policy": ("as", ["relaxed"])},
        {"policy": ("s", "relaxed"), "x\ny": ("(sa{sv})", ())},
    ],
)
def test_wrong_options_never_reach_the_service(service: FakeService, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument) as caught:
        asyncio.run(Requests(service).mark("web", options))
    assert caught.value.action == "failed to mark domain 'web'"
    assert service.calls == []


@pytest.mark.parametrize("ref", ["", " ", "x" * 1025, "a\0b", "\ud800", "\udcff"])
def test_wrong_references_never_reach_the_service(service: FakeService, client: Client, ref: str) -> None:
    for call in (client.mark, client.unmark, client.dominfo, client.vcpuinfo):
        with pytest.raises(InvalidArgument) as caught:
            call(ref)
        assert len(caught.value.action or "") < 200
    assert service.calls == []


@given(st.text())
def test_any_reference_gets_a_gang_error(ref: str) -> None:
    with pytest.raises((NoSuchDomain, InvalidArgument)) as caught:
        local_client(FakeService(snapshot())).dominfo(ref)
    assert "\n" not in (caught.value.action or "")


def test_what_is_no_gang_error_is_logged_and_not_told(
    service: FakeService, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    service.fail = RuntimeError("secret detail")
    with pytest.raises(GangError) as caught:
        client.dominfo("web")
    assert caught.value.lines() == ["failed to show domain 'web'", NEUTRAL]
    assert "secret detail" in caplog.text


def test_an_inner_action_is_kept(service: FakeService, client: Client) -> None:
    service.fail = NoLibvirt("connection refused", "failed to connect to qemu:///system")
    with pytest.raises(NoLibvirt) as caught:
        client.unmark("web")
    assert caught.value.action == "failed to connect to qemu:///system"


def test_plan_of_a_domain_asks_by_uuid(service: FakeService, client: Client) -> None:
    change = {"actuator": "pin", "key": "k", "now": "0-3", "wanted": "1", "reason": "r", "text": "t"}
    service.changes = [dict(change)]
    assert client.plan()["changes"] == service.changes
    assert client.plan("db")["name"] == "db"
    assert [c[1] for c in service.calls if c[0] == "preview"] == [None, guest("db").uuid]


@pytest.mark.parametrize(
    ("name", "text", "kind", "lines"),
    [
        ("org.gangd.Gangd1.Error.NoSuchDomain", "act\ncause\nmore", NoSuchDomain, ["act", "cause\nmore"]),
        ("org.gangd.Gangd1.Error.NoSuchDomain", "cause", NoSuchDomain, ["cause"]),
        ("org.gangd.Gangd1.Error.Failed", "a\nc", GangError, ["a", "c"]),
        ("org.gangd.Gangd1.Error.NotInvented", "a\nc", GangError, ["a", "c"]),
        (
            "org.freedesktop.DBus.Error.AccessDenied",
            "x",
            AccessDenied,
            ["permission denied, this needs root"],
        ),
        ("org.freedesktop.DBus.Error.InvalidArgs", "x", InvalidArgument, ["x"]),
        ("org.example.Other", "", GangError, ["org.example.Other"]),
    ],
)
def test_errors_from_the_wire(name: str, text: str, kind: type[GangError], lines: list[str]) -> None:
    error = from_wire(name, text)
    assert type(error) is kind and error.lines() == lines


@pytest.mark.parametrize("short", ["ServiceUnknown", "NameHasNoOwner"])
def test_absent_daemon(short: str) -> None:
    error = from_wire(f"org.freedesktop.DBus.Error.{short}", "")
    assert isinstance(error, NoDaemon)
    assert error.cause == "gangd is not running on the system bus (systemctl start gangd)"


def test_a_reply_that_is_no_document() -> None:
    for reply in (None, "", "[]", "{"):
        with pytest.raises(GangError, match="not a document"):
            Client(lambda *_, reply=reply: reply).status()


@given(st.text())
def test_printable_text_is_one_harmless_line(text: str) -> None:
    safe = printable(text)
    assert safe.isprintable() or safe == ""
    assert printable(safe) == safe
    assert len(shortened(text, 10)) <= 10


def test_printable_is_virsh_like() -> None:
    assert printable("a\tb\x1b\u202eé東\udcff") == "a\\x09b\\x1b\\xe2\\x80\\xaeé東\\xff"
