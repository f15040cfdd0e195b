# SPDX-License-Identifier: Apache-2.0
"""A guest's progress, read from QEMU's memory: no libvirt, no monitor, no thread that needs a CPU for it.

With sixteen busy vCPU threads on two CPUs a question to libvirt takes longer than a turn, and its
answer is work that competes with the guests.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

from lab.guests.counters import ADDRESS, SIZE, Counters, NotReadyError
from lab.guests.domains import GuestDied

_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) rw")


class GuestMemory:
    """The counters in the memory of process `pid`. Raises GuestDied when there are none."""

    def __init__(self, name: str, pid: int) -> None:
        self.name = name
        self._file = os.open(f"/proc/{pid}/mem", os.O_RDONLY)
        self._address = self._find(pid)

    def read(self) -> tuple[float, int]:
        """Return the time of the reading (monotonic seconds) and the iterations."""
        moment = time.monotonic()
        return moment, self.counters().iterations

    def counters(self) -> Counters:
        """Return all counters."""
        try:
            return Counters.parse(os.pread(self._file, SIZE, self._address))
        except (OSError, ValueError) as error:
            raise GuestDied(f"{self.name}: its counters cannot be read: {error}")

    def close(self) -> None:
        """Close QEMU's memory; to be called once."""
        os.close(self._file)

    def _find(self, pid: int) -> int:
        for start in _mappings(pid):
            try:
                Counters.parse(os.pread(self._file, SIZE, start + ADDRESS))
            except (OSError, NotReadyError, ValueError):
                continue
            return start + ADDRESS
        os.close(self._file)
        raise GuestDied(f"{self.name}: no memory of process {pid} holds the payload's counters")


def _mappings(pid: int) -> Iterator[int]:
    """Starts of the writable mappings that are large enough to be the guest's memory."""
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        found = _MAPPING.match(line)
        if found and int(found[2], 16) - int(found[1], 16) >= ADDRESS + SIZE:
            yield int(found[1], 16)
