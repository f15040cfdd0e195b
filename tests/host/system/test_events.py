# SPDX-License-Identifier: Apache-2.0
"""Events over a real bus: who hears them, who may send them, and what ends the waiting."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from gangd.control.client import connect
from gangd.control.listen import listen
from gangd.errors import GangError, NoDaemon
from host.system.dbus_fixtures import NOBODY, FakeDaemon, busctl, gangctl

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the policy lets only root own the name")

BUS = ("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus")


def test_events_are_signalled(address: str, daemon: FakeDaemon) -> None:
    """A listener hears of changes made over the bus at once, of the rest when the daemon looks."""
    heard: list[dict[str, object]] = []
    failed: list[GangError] = []
    ready = threading.Event()

    def listen_until_it_ends() -> None:
        try:
            for event in listen(address):
                heard.append(event)
                ready.set()
        except GangError as error:
            failed.append(error)

    listener = threading.Thread(target=listen_until_it_ends, daemon=True)
    listener.start()
    deadline = time.monotonic() + 20
    while not ready.wait(0.1) and time.monotonic() < deadline:  # until it is subscribed
        daemon.say("disconnect")
        daemon.say("connect")
    assert {e["event"] for e in heard} <= {"libvirt-lost", "libvirt-found"}
    client = connect(address)
    client.mark("evil\x1b[31m\u202e")
    client.undo("evil\x1b[31m\u202e")
    client.resume("evil\x1b[31m\u202e")
    client.set("evil\x1b[31m\u202e", weight=5)
    client.unmark("evil\x1b[31m\u202e")
    daemon.process.kill()
    listener.join(20)
    assert [str(e) for e in failed] == [f"gangd is not running at {address} (systemctl start gangd)"]
    marks = [(e["event"], e["name"]) for e in heard if e["name"] is not None]
    evil = "evil\x1b[31m\u202e"
    told = ("marked", "scheduled", "undone", "scheduled", "marked", "unmarked", "released")
    assert marks == [(event, evil) for event in told]


def test_only_the_daemon_is_listened_to(address: str, daemon: FakeDaemon) -> None:
    """A signal that looks like ours, sent straight to the listener by somebody else, is no event."""
    with pytest.raises(NoDaemon):
        list(listen("unix:path=/nonexistent"))
    found: list[object] = []
    listener = threading.Thread(target=lambda: found.extend(listen(address, 3)), daemon=True)
    listener.start()
    time.sleep(1)
    names = json.loads(busctl(address, "call", *BUS, "ListNames").stdout)["data"][0]
    for name in names:
        if name.startswith(":"):
            signal = ("/org/gangd/Gangd1", "org.gangd.Gangd1", "Event", "s", '{"event": "marked"}')
            assert busctl(address, f"--destination={name}", "emit", *signal).returncode == 0
    listener.join(20)
    assert not listener.is_alive() and found == []


def test_gangctl_event(address: str, daemon: FakeDaemon) -> None:
    """gangctl event works as a program, also for users that may only look."""
    words = ("event", "--json", "--timeout", "30")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(gangctl, address, *words, user=NOBODY)
        while not waiting.done():
            daemon.say("disconnect")
            daemon.say("connect")
            time.sleep(0.1)
        done = waiting.result()
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["event"] in ("libvirt-lost", "libvirt-found")
    late = gangctl(address, "event", "web", "--timeout", "0.5")
    assert (late.returncode, late.stdout) == (1, "")
    assert late.stderr.endswith("error: nothing happened in 0.5 seconds\n")


def test_a_bus_that_ends(bus: tuple[str, subprocess.Popen[str]], daemon: FakeDaemon) -> None:
    """A waiting gangctl ends with the bus, and keeps no CPU busy meanwhile."""
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(gangctl, bus[0], "event")
        time.sleep(1.5)
        bus[1].kill()
        before = os.times()
        done = waiting.result()
        after = os.times()
    assert (done.returncode, done.stdout) == (1, "")
    told = done.stderr.splitlines()
    assert told[0] == "error: failed to wait for an event" and told[1].startswith("error: gangd at unix:")
    assert len(told) == 2
    used = after.children_user + after.children_system - before.children_user - before.children_system
    assert used < 3.0
