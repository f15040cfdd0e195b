# SPDX-License-Identifier: Apache-2.0
"""Stock Linux guests: the kernel of the host itself, and one program (spinner.c) that counts its turns."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

from lab.guests.counters import domain_xml
from lab.guests.domains import Guest, GuestDied

LOAD = "linux"
BEAT = "beat "
MEMORY_MIB = 160


class LinuxGuest(Guest):
    """A Linux guest. Its count is the last one on its console, by its own clock."""

    def __init__(self, domain: Any, log: Path) -> None:
        super().__init__(domain)
        self._log = log

    def reading(self) -> tuple[float, int]:
        """Return time and count of the last beat. Raises GuestDied before the first."""
        found = last_beat(self._log)
        if found is None:
            raise GuestDied(f"{self.name} has said nothing on its console")
        return found

    def counts(self) -> bool:
        """True if a first turn was counted."""
        found = last_beat(self._log)
        return found is not None and found[1] > 0


def linux_xml(name: str, kernel: Path, initrd: Path, log: Path, window: int, cpus: int = 2) -> str:
    """The few devices of a flat guest, and a serial port that writes to `log`."""
    text = domain_xml(name, LOAD, cpus=cpus, memory_mib=MEMORY_MIB, kernel=kernel, serial_log=log)
    found = ET.fromstring(text)
    boot = found.find("os")
    cmdline = found.find("os/cmdline")
    assert boot is not None and cmdline is not None
    # init gets what follows -- as its arguments.
    cmdline.text = f"console=ttyS0 quiet panic=-1 -- {window}"
    ET.SubElement(boot, "initrd").text = str(initrd)
    return ET.tostring(found, encoding="unicode")


def last_beat(log: Path) -> tuple[float, int] | None:
    """The guest's seconds and turns in the last whole line that is a beat; None before the first."""
    try:
        lines = log.read_text(errors="replace").split("\n")[:-1]
    except FileNotFoundError:
        return None
    for line in reversed(lines):
        words = line.split()
        if line.startswith(BEAT) and len(words) == 3 and words[1].isdecimal() and words[2].isdecimal():
            return int(words[1]) / 1000, int(words[2])
    return None
