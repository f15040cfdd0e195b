# SPDX-License-Identifier: Apache-2.0
"""Domains as objects on a real bus: what is there, what is signalled, what introspection says."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from fakes import guest
from gangd.control.objects import path_of
from host.system.dbus_fixtures import NOBODY, FakeDaemon, busctl, monitor

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the policy lets only root own the name")

NAME, ROOT = "org.gangd.Gangd1", "/org/gangd/Gangd1"
DOMAIN = f"{NAME}.Domain"
XML = Path(__file__).resolve().parents[3] / "docs" / "org.gangd.Gangd1.xml"
EVIL = "evil\x1b[31m\u202e"


def managed(address: str, user: int | None = None) -> dict[str, dict[str, Any]]:
    """The properties of every domain's object, by path."""
    done = busctl(
        address, "call", NAME, ROOT, "org.freedesktop.DBus.ObjectManager", "GetManagedObjects", user=user
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["data"][0]
    return {
        path: {name: value["data"] for name, value in interfaces[DOMAIN].items()}
        for path, interfaces in found.items()
        if DOMAIN in interfaces
    }


def test_every_domain_is_an_object(address: str, daemon: FakeDaemon) -> None:
    """Marked, shut off, hostile: all are there, for everybody, and unknown is -1 or empty."""
    found = managed(address, NOBODY)
    assert found.keys() == {path_of(guest(name).uuid) for name in ("web", "db", EVIL)}
    assert found[path_of(guest("web").uuid)] == {
        "Name": "web",
        "Uuid": guest("web").uuid,
        "Source": "libvirt",
        "Id": 3,
        "Marked": True,
        "Policy": "relaxed",
        "Weight": -1,
        "Schedule": "relaxed",
        "ScheduleReason": "marked with policy relaxed",
        "ScheduleCode": "",
        "Cpus": [0, 1],
        "GangDomain": 0,
    }
    db = found[path_of(guest("db").uuid)]
    assert [db[key] for key in ("Id", "Marked", "Policy", "Schedule", "Cpus", "GangDomain")] == [
        -1, False, "", "", [], -1
    ]  # fmt: skip
    assert found[path_of(guest(EVIL).uuid)]["Name"] == "evil\\x1b[31m\\xe2\\x80\\xae"


def test_properties_are_read_only(address: str, daemon: FakeDaemon) -> None:
    path = path_of(guest("web").uuid)
    assert busctl(address, "get-property", NAME, path, DOMAIN, "Name", user=NOBODY).returncode == 0
    for user in (None, NOBODY):
        done = busctl(address, "set-property", NAME, path, DOMAIN, "Name", "s", "x", user=user)
        assert done.returncode != 0
    assert managed(address)[path]["Name"] == "web"


def test_domains_come_change_and_go(address: str, daemon: FakeDaemon) -> None:
    """Each is one signal, with what it is about; nothing is said of what did not change."""
    path = path_of(guest("new").uuid)
    with monitor(address, f"type='signal',path_namespace='{ROOT}'") as seen:
        daemon.change("define", "new")
        told = seen.until("member=InterfacesAdded")
        assert f'object path "{path}"' in told and f'string "{DOMAIN}"' in told and 'string "new"' in told
        seen.lines.clear()
        daemon.change("start", "new")
        told = seen.until("member=PropertiesChanged", 'string "Id"', "int32 9")
        assert f"path={path}" in told and '"Name"' not in told
        seen.lines.clear()
        daemon.change("mark", "new")
        told = seen.until('string "Marked"', 'string "Weight"', "int32 7", 'string "Cpus"')
        assert "web" not in told and '"Id"' not in told
        seen.lines.clear()
        daemon.change("mark", "new")
        daemon.change("undefine", "new")
        told = seen.until("member=InterfacesRemoved", f'string "{DOMAIN}"')
        assert "PropertiesChanged" not in told and f'object path "{path}"' in told
    assert path not in managed(address)
    daemon.change("define", "new")  # the same path again
    assert managed(address)[path]["Id"] == -1


def test_a_hostile_name_is_safe(address: str, daemon: FakeDaemon) -> None:
    """A domain of any name has a path made of its UUID, and a printable name."""
    for name in ("../../x", "a" * 255, "\x1b]0;x\x07", "\u202e", "-", "\udcff"):
        daemon.change("define", name)
        path = path_of(guest(name).uuid)
        found = managed(address)[path]["Name"]
        assert found.isprintable() and len(found) <= 2000
        daemon.change("undefine", name)


def described(node: ElementTree.Element) -> Iterator[tuple[str, ...]]:
    """Every member of our own interfaces, one line each, whatever order they stand in."""
    for interface in node.iter("interface"):
        about = interface.get("name", "")
        if about.startswith(NAME):
            for member in interface:
                parts = [f"{part.tag} {sorted(part.items())}" for part in member]
                yield (about, member.tag, *map(str, sorted(member.items())), *parts)


def test_the_description_is_what_the_bus_says(address: str, daemon: FakeDaemon) -> None:
    """docs/org.gangd.Gangd1.xml has every member of both interfaces, and no other."""
    real: list[tuple[str, ...]] = []
    for path in (ROOT, path_of(guest("web").uuid)):
        done = busctl(
            address, "call", NAME, path, "org.freedesktop.DBus.Introspectable", "Introspect", user=NOBODY
        )
        text = json.loads(done.stdout)["data"][0]
        assert path != ROOT or 'interface name="org.freedesktop.DBus.ObjectManager"' in text
        real += described(ElementTree.fromstring(text))
    kept = list(described(ElementTree.fromstring(XML.read_text())))
    assert sorted(kept) == sorted(real)
    assert len(kept) == len(set(kept))
