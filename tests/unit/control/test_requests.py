# SPDX-License-Identifier: Apache-2.0
"""The arguments that callers may send, how failures leave, and how the client reads them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes import FakeService, guest, local_client, snapshot
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
    NotMarked,
)
from gangd.model.affect import Affect
from gangd.model.domain import Mark


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


def test_requests_about_domains_wait_for_the_list_of_domains(service: FakeService) -> None:
    """Other requests, such as the status, do not wait."""

    async def asked() -> None:
        service.calls.append(("asked",))

    service.asked = asked  # type: ignore[method-assign]
    client = local_client(service)
    known = (client.domains, client.plan, client.refresh)
    for call in (lambda: client.mark("db"), lambda: client.dominfo("web"), *known):
        service.calls.clear()
        call()
        assert service.calls[0] == ("asked",)
    service.calls.clear()
    client.status()
    assert ("asked",) not in service.calls


def test_set_passes_what_was_given(service: FakeService, client: Client) -> None:
    """Policy and weight, one of them at least, and where the change is made to."""
    assert client.set("web", weight=7)["domain"]["weight"] == 7
    client.set("web", "strict", None, Affect(live=True))
    client.mark("db", affect=Affect())
    client.unmark("web", Affect(True, True))
    assert [call for call in service.calls if call[0] != "resolve"] == [
        ("change", "web", None, 7),
        ("change", "web", "strict", None, Affect(live=True)),
        ("mark", "db", None, None, Affect()),
        ("unmark", "web", Affect(config=True, live=True)),
    ]
    with pytest.raises(InvalidArgument, match="nothing to change"):
        client.set("web")
    with pytest.raises(NotMarked) as caught:
        client.set("3x", weight=1)
    assert caught.value.action == "failed to change the mark of domain '3x'"


@pytest.mark.parametrize("key", ["config", "live"])
def test_one_flag_alone_says_the_other_is_not_meant(service: FakeService, key: str) -> None:
    for said in (True, False):
        asyncio.run(Requests(service).mark("db", {key: ("b", said)}))
        assert service.calls[0] == ("mark", "db", None, None, Affect(**{key: said}))
        service.calls.clear()


@pytest.mark.parametrize(
    "options",
    [
        {"config": ("s", "yes")},
        {"live": ("u", 1)},
        {"current": ("b", True)},
        {"all": ("b", True)},
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


def test_undo_of_one_of_all_and_of_none(service: FakeService, client: Client) -> None:
    """A name or the word all, never an empty name that means all."""
    done = client.undo("web")
    assert (done["undone"], done["failures"]) == (2, [])
    assert [(d["name"], d["schedule"], d["marked"]) for d in done["domains"]] == [("web", "undone", True)]
    assert "gangctl undo" in client.dominfo("web")["domain"]["schedule_reason"]
    assert [d["schedule"] for d in client.resume(None)["domains"]] == ["relaxed"]
    assert [d["name"] for d in client.undo(None)["domains"]] == ["web"]
    asked = len(service.calls)
    everything = {"all": ("b", True)}
    wrong: list[tuple[str, dict[str, Any]]] = [("", {}), ("", {"all": ("b", False)}), ("web", everything)]
    for ref, options in [*wrong, (" ", {}), ("x", {"all": ("s", "true")})]:
        for method in (Requests(service).undo, Requests(service).resume):
            with pytest.raises(InvalidArgument):
                asyncio.run(method(ref, options))
    assert len(service.calls) == asked


@pytest.mark.parametrize("ref", ["", " ", "x" * 1025, "a\0b", "\ud800", "\udcff"])
def test_wrong_references_never_reach_the_service(service: FakeService, client: Client, ref: str) -> None:
    for call in (client.mark, client.unmark, client.undo, client.dominfo, client.vcpuinfo):
        with pytest.raises(InvalidArgument) as caught:
            call(ref)
        assert len(caught.value.action or "") < 200
    assert service.calls == []


@given(st.text())
def test_any_reference_gets_a_gang_error(ref: str) -> None:
    with pytest.raises((NoSuchDomain, InvalidArgument)) as caught:
        local_client(FakeService(snapshot())).dominfo(ref)
    assert "\n" not in (caught.value.action or "")


def test_an_unexpected_error_is_logged_and_hidden_from_the_caller(
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


def test_smt(service: FakeService, client: Client) -> None:
    assert client.smt()["control"] == "on"
    off = client.set_smt("off")
    assert (off["control"], off["prior"], off["offline"]) == ("off", "on", [2, 3])
    assert off["cores"] == [{"core": 0, "cpus": [0]}, {"core": 1, "cpus": [1]}]
    asked = len(service.calls)
    for wrong in ("", "ON", "forceoff", "x" * 9999, "\x1b"):
        with pytest.raises(InvalidArgument) as caught:
            client.set_smt(wrong)
        assert caught.value.action == "failed to switch SMT" and len(caught.value.cause) < 200
    assert len(service.calls) == asked


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


@pytest.mark.parametrize(
    "name",
    [
        "org.freedesktop.DBus.Error.ServiceUnknown",
        "org.freedesktop.DBus.Error.NameHasNoOwner",
        "org.freedesktop.DBus.Error.Spawn.ChildExited",
        "org.freedesktop.systemd1.NoSuchUnit",
    ],
)
def test_absent_daemon(name: str) -> None:
    """Not there, and not to be started."""
    error = from_wire(name, "Unit dbus-org.gangd.Gangd1.service not found.")
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
