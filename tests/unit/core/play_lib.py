# SPDX-License-Identifier: Apache-2.0
"""A domain that is played: gangs start, stop, sleep and move, and slots go by."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from .library import load

U16, U32, U64 = ctypes.c_uint16, ctypes.c_uint32, ctypes.c_uint64
SLOT = 20_000_000
OFF, BALANCE, RELAXED = 0, 1, 2
COLUMNS = 64


@dataclass
class Party:
    """The test's record of a gang. Masks have a bit per column; seen: where a member was runnable since its
    last slot; since: the time from which it could have had a slot, ns."""

    columns: int
    weight: int = 100
    mode: int = RELAXED
    ready: int = 0
    since: int = 0
    ran: int = 0
    seen: int = 0

    @property
    def eligible(self) -> bool:
        """True if the gang is co-scheduled and a member is runnable."""
        return self.mode >= RELAXED and self.ready != 0


class Play:
    """The library and, beside it, what should be in it."""

    def __init__(self, columns: int) -> None:
        self._library = load("play.c")
        for name, result in (("open", U16), ("vtime", U64), ("vclock", U64), ("word", U64), ("owed", U64)):
            getattr(self._library, f"play_{name}").restype = result
        self._library.play_reset(U64(SLOT))
        self.columns = columns
        self.now = 0
        self.gangs: dict[int, Party] = {}
        self.took: dict[int, int] = {}

    def set(self, gang: int, party: Party) -> None:
        """Start or change a gang; one that starts has nobody runnable yet."""
        old = self.gangs.get(gang)
        if old is None or old.mode == OFF:
            party.ready = party.seen = 0
        else:
            party.seen = old.seen
        party.ready &= party.columns
        self.gangs[gang] = party
        self._library.play_set(U16(gang), U64(party.columns), U32(party.weight), ctypes.c_uint8(party.mode))

    def ready(self, gang: int, ready: int) -> None:
        """Which members are runnable."""
        party = self.gangs[gang]
        if not party.ready and ready:
            party.since = self.now
        party.ready = ready
        party.seen |= ready
        self._library.play_ready(U16(gang), U64(ready), U64(self.now))

    def resize(self, columns: int) -> None:
        """The domain has so many CPUs now; gangs have to be set again."""
        self.columns = columns

    def takes(self, gang: int) -> int:
        """The columns it takes when it is served: where it had something to run."""
        party = self.gangs[gang]
        return (party.ready | party.seen) & party.columns

    def slot(self, others: bool = False) -> set[int]:
        """Open a slot and play it to its end; the gangs in it."""
        self.took = {gang: self.takes(gang) for gang in self.gangs}
        self._library.play_open(int(others), U64(self.now))
        served = set(self.row()) - {0}
        for gang in served:
            party = self.gangs[gang]
            party.since = self.now
            party.seen = party.ready
            party.ran += SLOT * party.ready.bit_count()
        self._library.play_run()
        self.now += SLOT
        return served

    def row(self) -> list[int]:
        """The owner of every column there could be."""
        owners = (U16 * COLUMNS)()
        self._library.play_row(owners)
        return list(owners)

    def owed(self) -> int:
        """The columns whose ordinary tasks came before a gang in the present slot."""
        return int(self._library.play_owed())

    def vtime(self, gang: int) -> int:
        """Return the gang's virtual time."""
        return int(self._library.play_vtime(U16(gang)))

    def vclock(self) -> int:
        """Return the clock of the domain."""
        return int(self._library.play_vclock())

    def generation(self) -> int:
        """Return the generation of the present slot."""
        return int(self._library.play_word()) & 0xFFFF
