# SPDX-License-Identifier: Apache-2.0
"""The delays that the guest idle notes in its page, behind the counters (guest/init.c)."""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence

from bench.memory import GuestMemory
from lab.guests.counters import ADDRESS

DELAYS, DELAYS_AT = 768, 1024
_RING = struct.Struct(f"<{DELAYS}I")


class IdleMemory(GuestMemory):
    """The memory of the guest idle."""

    def delays(self, begin: int, end: int) -> list[int]:
        """Return the delays in us of wake-ups number `begin` to `end`, the last DELAYS of them."""
        return window(_RING.unpack(os.pread(self._file, _RING.size, self._address + DELAYS_AT)), begin, end)


def window(ring: Sequence[int], begin: int, end: int) -> list[int]:
    """Return entries `begin` to `end` of all that were written to a ring, as far as it has them."""
    return [ring[number % len(ring)] for number in range(max(begin, end - len(ring)), end)]


assert DELAYS_AT + _RING.size <= 4096 and ADDRESS % 4096 == 0  # they are in the one page that memmap= keeps
