# SPDX-License-Identifier: Apache-2.0
"""The CPUs of the host as they were read last, and the trouble of not being able to."""

from __future__ import annotations

import asyncio
from pathlib import Path

from gangd.model.topology import Topology
from gangd.trouble import Trouble


class Cpus:
    """Reads the topology below `root`, and keeps the last one that could be read. trouble: it cannot be."""

    def __init__(self, root: Path) -> None:
        self.topology = Topology()
        self.trouble = Trouble("read the CPUs of the host")
        self._root = root
        self._failed = False  # the last reading did
        self._steady = False  # the last two readings found the same CPUs online

    async def read(self) -> None:
        """Read the topology now.

        While a CPU is being unplugged its files vanish: then the last topology holds, and a single failure
        is no trouble. While one is plugged in, its caches come after itself: it is read once more.
        """
        last = self.topology
        error: Exception | None = None
        try:
            known = last if self._steady else None
            self.topology = await asyncio.to_thread(Topology.read, self._root, known)
        except (OSError, ValueError) as failure:
            error = failure
        if not error or self._failed or not last.cpus:
            self.trouble.note(error)
        self._failed = error is not None
        self._steady = not error and self.topology.ids == last.ids
