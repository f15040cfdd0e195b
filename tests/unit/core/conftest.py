# SPDX-License-Identifier: Apache-2.0
"""kernel-helper/module/matrix.h, compiled with gcc into a shared library and called with ctypes."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import pytest

from .library import load

U16, U32, U64 = ctypes.c_uint16, ctypes.c_uint32, ctypes.c_uint64
OTHERS = 0
RELAXED = 2
SLOT = 20_000_000


@dataclass(frozen=True)
class Gang:
    """A gang of a test: its number, the columns it has members on, its weight."""

    id: int
    columns: int
    weight: int = 100

    @property
    def width(self) -> int:
        """How many members it has."""
        return self.columns.bit_count()


RESULTS = {
    "core_open": U16,
    "core_owner": U16,
    "core_vtime": U64,
    "core_vclock": U64,
    "core_others_share": U64,
    "core_word": U64,
    "core_word_generation": U16,
    "core_word_deadline": U64,
    "core_slot_over": ctypes.c_int,
    "core_all_running": ctypes.c_int,
}


class Core:
    """A domain of gang.ko. Times are nanoseconds; masks have a bit per column."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        for name, result in RESULTS.items():
            getattr(library, name).restype = result
        self.columns = 0

    def reset(self, columns: int, gangs: list[Gang], now: int = 0) -> None:
        """Start afresh with `gangs`, all of whose members are runnable."""
        self.columns = columns
        self._library.core_reset(U64(SLOT))
        for gang in gangs:
            self.add(gang, now)

    def add(self, gang: Gang, now: int = 0, mode: int = RELAXED) -> None:
        """Add a gang, all members runnable, none on CPU."""
        self._library.core_add(
            U16(gang.id), U64(gang.columns), U32(gang.weight), ctypes.c_uint8(mode), U64(now)
        )
        self.ready(gang.id, gang.columns)

    def ready(self, gang: int, ready: int, running: int = 0) -> None:
        """Which members are runnable, and which of them on CPU."""
        self._library.core_ready(U16(gang), U64(ready), U64(running))

    def others_share(self, odds: dict[int, tuple[int, int]], columns: int) -> dict[int, float]:
        """The share of each column due to ordinary tasks; odds: their weight and that of members there."""
        for column, (others, members) in odds.items():
            self._library.core_odds(column, others, members)
        return {column: self._library.core_others_share(column, columns) / 1024 for column in odds}

    def open(self, now: int, others: bool = False) -> int:
        """Open the next slot; the party that was served first."""
        return int(self._library.core_open(int(others), U64(now)))

    def row(self) -> list[int]:
        """The owner of every column in the present slot."""
        return [int(self._library.core_owner(U32(column))) for column in range(self.columns)]

    def charge(self, gang: int, ns: int) -> None:
        """The members of `gang` used `ns` of CPU, added up."""
        self._library.core_charge(U16(gang), U64(ns))

    def vtime(self, gang: int) -> int:
        """Return the gang's virtual time."""
        return int(self._library.core_vtime(U16(gang)))

    def vclock(self) -> int:
        """The virtual time of the party last served."""
        return int(self._library.core_vclock())

    def word(self, generation: int, deadline: int) -> int:
        """gang_word()."""
        return int(self._library.core_word(U16(generation), U64(deadline)))

    def parts(self, word: int) -> tuple[int, int]:
        """Generation and deadline of a word."""
        library = self._library
        return int(library.core_word_generation(U64(word))), int(library.core_word_deadline(U64(word)))

    def over(self, word: int, now: int) -> bool:
        """gang_slot_over()."""
        return bool(self._library.core_slot_over(U64(word), U64(now)))

    def all_running(self, gang: int) -> bool:
        """gang_all_running()."""
        return bool(self._library.core_all_running(U16(gang)))


@pytest.fixture(scope="session")
def core() -> Core:
    """The compiled decisions. A compiler that is missing or unhappy is a failure."""
    return Core(load("core.c"))
