# SPDX-License-Identifier: Apache-2.0
"""Telling systemd how we are: sd_notify(3)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator

from systemd.daemon import listen_fds_with_names
from systemd.daemon import notify as sd_notify


def notify(*lines: str) -> None:
    """Send e.g. "READY=1"; silently nothing where nobody listens ($NOTIFY_SOCKET unset, or nobody at it)."""
    with contextlib.suppress(OSError):
        sd_notify("\n".join(lines))


def keep(name: str, descriptors: Iterable[int]) -> None:
    """Have systemd keep descriptors for the next process of this unit: FileDescriptorStoreMax= of
    systemd.service(5). It closes them when the unit stops and nothing starts it again. FDPOLL=0: a BPF map
    says EPOLLERR to whoever polls it, and systemd drops what does."""
    for number, descriptor in enumerate(descriptors):
        with contextlib.suppress(OSError):
            sd_notify(f"FDSTORE=1\nFDPOLL=0\nFDNAME={name}-{number}", fds=[descriptor])


def kept(name: str) -> tuple[int, ...]:
    """Return the descriptors that the process before had systemd keep, which from now on are ours alone."""
    found = {known: number for number, known in listen_fds_with_names().items()}
    ours = sorted(known for known in found if known.startswith(f"{name}-"))
    for known in ours:
        notify("FDSTOREREMOVE=1", f"FDNAME={known}")
    return tuple(found[known] for known in ours)


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
