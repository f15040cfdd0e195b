# SPDX-License-Identifier: Apache-2.0
"""Guests with different loads, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.guests import linux
from lab.guests.counters import domain_xml
from lab.guests.domains import PREFIX, Guest, paused, resume
from lab.guests.linux import LinuxGuest, linux_xml

CPUS = 2  # of each guest


@dataclass(frozen=True)
class Files:
    """The files guests boot from, readable to QEMU; folder: for their consoles. window: see the payload."""

    payload: Path
    kernel: Path | None
    initrd: Path | None
    folder: Path
    window: int


def start(connection: Any, loads: Mapping[str, int], files: Files) -> dict[Guest, str]:
    """Define and start so many guests of each load; each with its load, and they count when this returns.

    Linux guests run first: beside spinning neighbours they would boot for long.
    """
    names = {f"{PREFIX}{load}{i}": load for load, number in loads.items() for i in range(number)}
    logs = {name: files.folder / f"{name}.console" for name in names}
    for log in logs.values():
        log.unlink(missing_ok=True)
    with paused(connection, [_xml(name, load, files, logs[name]) for name, load in names.items()]) as domains:
        guests = {
            LinuxGuest(domain, logs[name]) if load == linux.LOAD else Guest(domain): load
            for domain, (name, load) in zip(domains, names.items(), strict=True)
        }
        resume([guest for guest, load in guests.items() if load == linux.LOAD])
        resume([guest for guest, load in guests.items() if load != linux.LOAD])
    return guests


def _xml(name: str, load: str, files: Files, log: Path) -> str:
    if load != linux.LOAD:
        options = {"window": files.window}
        return domain_xml(name, load, cpus=CPUS, kernel=files.payload, options=options)
    assert files.kernel and files.initrd
    return linux_xml(name, files.kernel, files.initrd, log, files.window, CPUS)
