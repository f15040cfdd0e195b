# SPDX-License-Identifier: Apache-2.0
"""kernel-helper/core/gang_search.h behind ctypes, and hosts to search on."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from dataclasses import dataclass

U32 = ctypes.c_uint32
NOBODY = 0xFFFFFFFF
CPUS = 1024
BITS = 8


@dataclass(frozen=True)
class Host:
    """CPU numbers by core, cores by last-level cache."""

    llcs: tuple[tuple[tuple[int, ...], ...], ...]

    @property
    def cpus(self) -> list[int]:
        """All of them."""
        return [cpu for llc in self.llcs for core in llc for cpu in core]

    def core_of(self, cpu: int) -> set[int]:
        """The CPU and its siblings."""
        return next(set(core) for llc in self.llcs for core in llc if cpu in core)

    def llc_of(self, cpu: int) -> set[int]:
        """All CPUs that share its last-level cache."""
        for llc in self.llcs:
            found = {other for core in llc for other in core}
            if cpu in found:
                return found
        raise AssertionError(cpu)

    def cores(self) -> list[set[int]]:
        """All cores."""
        return [set(core) for llc in self.llcs for core in llc]


class Search:
    """The masks of one host."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        for name in ("search_line", "search_find", "search_victim", "search_lines", "search_all_lines"):
            getattr(library, name).restype = U32

    def reset(self, host: Host) -> None:
        """Start afresh: nobody idle, nobody overloaded."""
        self._library.search_reset()
        for llc in host.llcs:
            for number, core in enumerate(llc):
                for sibling, cpu in enumerate(core):
                    assert self.add(cpu, sibling, len(core), number == 0 and sibling == 0)

    def clear(self) -> None:
        """A host without CPUs."""
        self._library.search_reset()

    def add(self, cpu: int, sibling: int, threads: int, new_llc: bool) -> bool:
        """gang_search_add(): could it be added?"""
        return not self._library.search_add(U32(cpu), U32(sibling), U32(threads), int(new_llc))

    def idle(self, cpu: int, idle: bool = True) -> None:
        """gang_note_idle()."""
        self._library.search_idle(U32(cpu), int(idle))

    def is_idle(self, cpu: int) -> bool:
        """Is its bit set?"""
        return bool(self._library.search_is_idle(U32(cpu)))

    def waiting(self, cpu: int, tasks: int) -> None:
        """gang_note_waiting()."""
        self._library.search_waiting(U32(cpu), U32(tasks))

    def offline(self, cpu: int) -> None:
        """gang_note_offline()."""
        self._library.search_offline(U32(cpu))

    def line(self, cpu: int) -> int:
        """The cache line its bits are on."""
        return int(self._library.search_line(U32(cpu)))

    def find(self, prev: int, allowed: Iterable[int]) -> int:
        """gang_find_idle()."""
        words = [0] * (CPUS // 64)
        for cpu in allowed:
            words[cpu // 64] |= 1 << cpu % 64
        return int(self._library.search_find(U32(prev), (ctypes.c_uint64 * len(words))(*words)))

    def victims(self, thief: int, most: int = CPUS + 1) -> list[int]:
        """All that gang_next_victim() names, in its order."""
        self._library.search_begin_victims()
        found: list[int] = []
        while len(found) < most and (cpu := int(self._library.search_victim(U32(thief)))) != NOBODY:
            found.append(cpu)
        return found

    def cost(self) -> int:
        """Lines looked at so far."""
        return int(self._library.search_lines())

    def all_lines(self) -> int:
        """Lines of this host."""
        return int(self._library.search_all_lines())
