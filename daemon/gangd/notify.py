# SPDX-License-Identifier: Apache-2.0
"""Telling systemd how we are: the sd_notify(3) protocol, one datagram a message."""

from __future__ import annotations

import os
import socket


def notify(*lines: str) -> None:
    """Send e.g. "READY=1"; silently nothing where nobody listens ($NOTIFY_SOCKET unset)."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        sock.sendto("\n".join(lines).encode(), address)


def watchdog_seconds() -> float | None:
    """How often systemd wants WATCHDOG=1, halved as it advises; None = it does not."""
    usec = os.environ.get("WATCHDOG_USEC", "")
    return int(usec) / 2e6 if usec.isdigit() else None
