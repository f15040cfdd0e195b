# SPDX-License-Identifier: Apache-2.0
"""CPUs and virtual machines that come and go, whoever switches or starts them: the kernel's uevents, which
udev follows, too.

The kernel sends them to group 1 of NETLINK_KOBJECT_UEVENT in every network namespace that belongs to the
initial user namespace (lib/kobject_uevent.c): a header, then KEY=VALUE, each ended by a NUL.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable

log = logging.getLogger(__name__)

NETLINK_KOBJECT_UEVENT = 15  # linux/netlink.h; Python's socket has no name for it
KERNEL = 1  # the group of what the kernel sends; udev's own is 2
SIZE = 8192  # of a message; the kernel's buffer for one is 2048 bytes


async def follow(changed: Callable[[], None], about: Callable[[bytes], bool], what: str) -> None:
    """Call `changed` when the kernel tells `about` one of `what` ("CPUs"), or may have, until cancelled.
    Without a socket, or when it fails, that ends, and the log says so."""
    try:
        with opened() as found:
            while True:
                if await _is_told(found, about):
                    changed()
    except OSError as error:
        sentence = "cannot watch %s come and go: %s; they are seen when everything is read again"
        log.warning(sentence, what, error.strerror or error)


def opened() -> socket.socket:
    """A socket that hears the kernel's uevents. Raises OSError."""
    kind = socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
    made = socket.socket(socket.AF_NETLINK, kind, NETLINK_KOBJECT_UEVENT)
    try:
        made.bind((0, KERNEL))
    except OSError:
        made.close()
        raise
    return made


async def _is_told(found: socket.socket, about: Callable[[bytes], bool]) -> bool:
    """True if the next message is one, or if some were lost, which may have been."""
    try:
        message, (sender, _group) = await asyncio.get_running_loop().sock_recvfrom(found, SIZE)
    except OSError as error:
        if error.errno != errno.ENOBUFS:
            raise
        return True
    return sender == 0 and about(message)  # 0: the kernel; others with CAP_NET_ADMIN may send there, too


def is_of_cpu(message: bytes) -> bool:
    """True if a uevent says that a CPU went online or offline. Pure."""
    fields = message.split(b"\0")
    return b"SUBSYSTEM=cpu" in fields and (b"ACTION=online" in fields or b"ACTION=offline" in fields)


def is_of_machine(message: bytes) -> bool:
    """True if a uevent says that KVM made or ended a virtual machine (kvm_uevent_notify_change()). Pure."""
    fields = message.split(b"\0")
    return b"DEVNAME=kvm" in fields and (b"EVENT=create" in fields or b"EVENT=destroy" in fields)
