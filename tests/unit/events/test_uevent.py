# SPDX-License-Identifier: Apache-2.0
"""CPUs and virtual machines that come and go, as the kernel tells of them."""

from __future__ import annotations

import asyncio
import errno
import logging

import pytest

from gangd.events import uevent

CPU = b"/devices/system/cpu/cpu1"


def told(action: bytes, subsystem: bytes = b"cpu") -> bytes:
    """A uevent as lib/kobject_uevent.c writes it."""
    fields = (b"ACTION=" + action, b"DEVPATH=" + CPU, b"SUBSYSTEM=" + subsystem, b"SEQNUM=7")
    return b"\0".join((action + b"@" + CPU, *fields, b""))


class FakeSocket:
    """Gives what the kernel and others sent, then nothing for ever."""

    def __init__(self, *messages: tuple[bytes, int] | OSError) -> None:
        self.messages = list(messages)

    def __enter__(self) -> FakeSocket:
        return self

    def __exit__(self, *_: object) -> None:
        self.messages.clear()


def followed(monkeypatch: pytest.MonkeyPatch, *messages: tuple[bytes, int] | OSError) -> int:
    """How often a change was told of."""
    found, calls = FakeSocket(*messages), []

    async def receive(_: object, source: FakeSocket, _size: int) -> tuple[bytes, tuple[int, int]]:
        if not source.messages:
            await asyncio.Event().wait()
        message = source.messages.pop(0)
        if isinstance(message, OSError):
            raise message
        return message[0], (message[1], uevent.KERNEL)

    async def scenario() -> None:
        monkeypatch.setattr(type(asyncio.get_running_loop()), "sock_recvfrom", receive)
        monkeypatch.setattr(uevent, "opened", lambda: found)
        task = asyncio.create_task(uevent.follow(lambda: calls.append(1), uevent.is_of_cpu, "CPUs"))
        while found.messages and not task.done():
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(scenario())
    return len(calls)


@pytest.mark.parametrize(
    ("message", "sender", "times"),
    [
        (told(b"online"), 0, 1),
        (told(b"offline"), 0, 1),
        (told(b"change"), 0, 0),
        (told(b"online", b"memory"), 0, 0),
        (told(b"online"), 4242, 0),
        (b"", 0, 0),
        (b"\xff\0ACTION=online\0XSUBSYSTEM=cpu", 0, 0),
    ],
)
def test_uevents_count_only_from_the_kernel_and_about_a_cpu(
    monkeypatch: pytest.MonkeyPatch, message: bytes, sender: int, times: int
) -> None:
    """The listener believes only the kernel, and only messages about a CPU."""
    assert followed(monkeypatch, (message, sender)) == times


@pytest.mark.parametrize(
    ("event", "device", "is_one"),
    [
        (b"create", b"kvm", True),
        (b"destroy", b"kvm", True),
        (b"other", b"kvm", False),
        (b"create", b"vhost", False),
    ],
)
def test_uevents_of_kvm_are_recognized(event: bytes, device: bytes, is_one: bool) -> None:
    """The message is as KVM writes it in kvm_uevent_notify_change()."""
    fields = b"ACTION=change", b"SUBSYSTEM=misc", b"DEVNAME=" + device, b"PID=832", b"EVENT=" + event
    assert uevent.is_of_machine(b"\0".join((b"change@/devices/virtual/misc/kvm", *fields, b""))) is is_one


def test_lost_messages_may_have_been_about_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many at once: the kernel says so once, and the socket goes on."""
    lost = OSError(errno.ENOBUFS, "No buffer space available")
    assert followed(monkeypatch, lost, (told(b"online"), 0)) == 2


def test_a_socket_that_fails_does_not_end_gangd(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The next full read finds the changes that the failed socket missed, and the log says so."""
    assert followed(monkeypatch, (told(b"online"), 0), OSError(errno.EIO, "Input/output error")) == 1
    (record,) = caplog.records
    assert record.getMessage().startswith("cannot watch CPUs come and go: Input/output error")


def test_without_a_socket_gangd_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """gangd logs one sentence, and no more."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")

    monkeypatch.setattr(uevent, "opened", refuse)
    asyncio.run(uevent.follow(lambda: None, uevent.is_of_cpu, "CPUs"))
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage() == (
        "cannot watch CPUs come and go: Address family not supported by protocol; "
        "they are seen when everything is read again"
    )


def test_the_kernel_has_such_sockets() -> None:
    """Bound to the kernel's group; nobody who may not have one is refused for another reason."""
    try:
        found = uevent.opened()
    except PermissionError:
        pytest.skip("this sandbox has no netlink sockets")
    with found:
        assert found.getsockname()[1] == uevent.KERNEL and not found.getblocking()
