# SPDX-License-Identifier: Apache-2.0
"""The messages that systemd gets, with the test in its place."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import AsyncMock, Mock

import pytest

pytest.importorskip("libvirt")

from gangd import host_thread, service
from gangd import notify as notify_module
from gangd.actuate.backend import Backend, LoadFailed
from gangd.errors import GangError
from gangd.host_thread import Host
from gangd.notify import kept, notify, patience
from unit.test_host_thread import config


class Manager:
    """The receiving end of sd_notify."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self.socket.bind(str(path))

    def told_with_descriptors(self) -> tuple[list[str], list[int]]:
        """Return what was told, and the descriptors that came along."""
        lines, descriptors = [], []
        while True:
            try:
                data, found, *_ = socket.recv_fds(self.socket, 4096, 4)
            except BlockingIOError:
                return lines, descriptors
            lines += data.decode().split("\n")
            descriptors += found

    def told(self) -> list[str]:
        """The lines that have come since the last time."""
        lines = []
        while True:
            try:
                lines += self.socket.recv(4096).decode().split("\n")
            except BlockingIOError:
                return lines


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Manager]:
    found = Manager(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    monkeypatch.setenv("WATCHDOG_USEC", "60000000")
    yield found
    found.socket.close()


def test_a_socket_without_a_listener_is_no_failure(manager: Manager, tmp_path: Path) -> None:
    notify("READY=1")
    assert manager.told() == ["READY=1"]
    (tmp_path / "notify").unlink()
    notify("READY=1")


@pytest.mark.parametrize("fails", [False, True])
def test_the_watchdog_waits_while_a_scheduler_is_loaded(
    manager: Manager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """Ten minutes, and a minute again afterwards, also when the kernel refused the scheduler."""
    during: list[object] = []

    def load() -> Mock:
        during.extend([host.loading, *manager.told()])
        if fails:
            raise LoadFailed("no", "")
        return Mock()

    monkeypatch.setattr(host_thread, "_backends", lambda *_: [Backend("fake", lambda: None, load)])
    host = Host(config(tmp_path), tmp_path)
    gangs = host._gangs
    assert gangs is not None
    if fails:
        with pytest.raises(LoadFailed):
            gangs._loaded()
    else:
        gangs._loaded()
    assert during == [True, "WATCHDOG_USEC=600000000"] and not host.loading
    assert manager.told() == ["WATCHDOG_USEC=60000000"]
    asyncio.run(host.close())


@pytest.mark.parametrize(("loading", "extended"), [(True, ["EXTEND_TIMEOUT_USEC=600000000"]), (False, [])])
def test_a_stop_amid_a_load_has_time(
    manager: Manager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loading: bool, extended: list[str]
) -> None:
    """systemd lets the load end before anything is undone."""
    serve(monkeypatch, tmp_path, Mock(loading=loading, journal=Mock(problem="")))
    told = manager.told()
    assert told[0] == "READY=1" and told[told.index("STOPPING=1") + 1 :] == extended


def test_a_damaged_journal_is_told_of_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    serve(monkeypatch, tmp_path, Mock(loading=False, journal=Mock(problem="line 3 is damaged")))
    assert [r.getMessage() for r in caplog.records if r.levelname == "WARNING"] == ["line 3 is damaged"]


def serve(
    monkeypatch: pytest.MonkeyPatch, folder: Path, host: Mock, handed: tuple[int, ...] = ()
) -> AsyncMock:
    """Run the service with a daemon that ends at once, and return that; `host` is the host that it has,
    `handed` the descriptors that it hands over."""
    daemon = AsyncMock(host=host, news=asyncio.Event(), **{"alive.return_value": "0 gangs"})
    daemon.hand_over.return_value = handed
    monkeypatch.setattr(service, "Daemon", lambda _, before: daemon)
    monkeypatch.setattr(service.control, "serve", AsyncMock(return_value=Mock()))
    assert service.run(config(folder), None) == 0
    return daemon


@pytest.mark.parametrize(
    ("restarts", "booted", "handed"),
    [(True, True, True), (False, True, False), (GangError("no answer"), True, False), (True, False, False)],
)
def test_a_restart_hands_the_scheduler_over(
    manager: Manager,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    restarts: bool | GangError,
    booted: bool,
    handed: bool,
) -> None:
    """systemd gets its descriptor, and nothing is undone; a stop undoes everything, and so does a gangd that
    cannot tell which of the two it is."""
    asked = Mock(side_effect=[restarts])
    monkeypatch.setattr(service.systemd, "booted", lambda: booted)
    monkeypatch.setattr(service.systemd, "Systemd", lambda: Mock(restarts_us=asked))
    with (tmp_path / "link").open("w") as link:
        host = Mock(loading=False, journal=Mock(problem=""))
        daemon = serve(monkeypatch, tmp_path, host, (link.fileno(), link.fileno()))
        told, descriptors = manager.told_with_descriptors()
    names = [line for line in told if line.startswith("FDNAME=")]
    assert names == (["FDNAME=scheduler-0", "FDNAME=scheduler-1"] if handed else [])
    assert len(descriptors) == len(names)
    assert daemon.stop.await_count == (not handed)
    for descriptor in descriptors:
        assert Path(f"/proc/self/fd/{descriptor}").readlink() == tmp_path / "link"
        os.close(descriptor)


def test_a_descriptor_that_was_kept_is_taken(manager: Manager, monkeypatch: pytest.MonkeyPatch) -> None:
    """systemd forgets it, so that it ends with us."""
    monkeypatch.setattr(
        notify_module, "listen_fds_with_names", lambda: {3: "other", 4: "scheduler-1", 5: "scheduler-0"}
    )
    assert kept("scheduler") == (5, 4)
    assert manager.told()[1::2] == ["FDNAME=scheduler-0", "FDNAME=scheduler-1"]
    monkeypatch.setattr(notify_module, "listen_fds_with_names", dict)
    assert kept("scheduler") == () and manager.told() == []


@pytest.mark.parametrize("usec", [None, "900000000"])
def test_a_watchdog_that_waits_long_enough_is_left_alone(
    manager: Manager, monkeypatch: pytest.MonkeyPatch, usec: str | None
) -> None:
    """No watchdog at all is left alone, too: WATCHDOG_USEC= would switch it on."""
    if usec is None:
        monkeypatch.delenv("WATCHDOG_USEC")
    else:
        monkeypatch.setenv("WATCHDOG_USEC", usec)
    with patience(600.0):
        pass
    assert manager.told() == []
