# SPDX-License-Identifier: Apache-2.0
"""Telling systemd how we are: sd_notify(3)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from systemd.daemon import listen_fds_with_names
from systemd.daemon import notify as sd_notify


def notify(*lines: str) -> None:
    """Send e.g. "READY=1"; silently nothing where nobody listens ($NOTIFY_SOCKET unset, or nobody at it)."""
    with contextlib.suppress(OSError):
        sd_notify("\n".join(lines))


def keep(name: str, descriptor: int) -> None:
    """Have systemd keep a descriptor for the next process of this unit: FileDescriptorStoreMax= of
    systemd.service(5). It closes it when the unit stops and nothing starts it again."""
    with contextlib.suppress(OSError):
        sd_notify(f"FDSTORE=1\nFDNAME={name}", fds=[descriptor])


def kept(name: str) -> int | None:
    """Return the descriptor that the process before had systemd keep, which from now on is ours alone."""
    found = next((number for number, known in listen_fds_with_names().items() if known == name), None)
    if found is not None:
        notify("FDSTOREREMOVE=1", f"FDNAME={name}")
    return found


@contextlib.contextmanager
def patience(seconds: float) -> Iterator[None]:
    """Have systemd's watchdog wait so many `seconds` for what is done in here, and then as long as before.

    WATCHDOG_USEC= restarts the watchdog's timer as well.
    """
    usual = watchdog_seconds()
    if usual is None or 2 * usual >= seconds:
        yield
        return
    notify(f"WATCHDOG_USEC={round(seconds * 1e6)}")
    try:
        yield
    finally:
        notify(f"WATCHDOG_USEC={round(2 * usual * 1e6)}")


def watchdog_seconds() -> float | None:
    """How often systemd wants WATCHDOG=1, halved as it advises; None = it does not."""
    usec = os.environ.get("WATCHDOG_USEC", "")
    return int(usec) / 2e6 if usec.isdigit() else None
