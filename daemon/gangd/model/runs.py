# SPDX-License-Identifier: Apache-2.0
"""Caches that could be one, since none by itself has room for a guest. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from gangd.model.board import Board
from gangd.model.columns import CACHE_CPUS
from gangd.model.plan import Cache
from gangd.model.topology import Cpu

# The caches of a run have these in common; a run is better, the more they are.
COMMON = (("kind", "node"), ("kind",), ("node",), ())
Free = tuple[int, int]  # the number of a cache, and how many of its CPUs are free


class Run(NamedTuple):
    """Caches that could be one; the least run costs least. large: more CPUs than one can have. kinds,
    nodes: of their CPUs. caches: how many they are. left: CPUs that stay as empty. boards: their numbers."""

    large: bool
    kinds: int
    nodes: int
    caches: int
    left: int
    cpus: int
    boards: tuple[int, ...]


class Runs:
    """Over the `boards` of a host, in their order. Costs O(boards) for each best()."""

    def __init__(self, boards: Sequence[Board], cpus: Mapping[int, Cpu]) -> None:
        self._boards = boards
        each = [[cpus[cpu] for cpu in board.cache.cpus] for board in boards]
        self._of = {
            name: [frozenset(getattr(cpu, name) for cpu in some) for some in each] for name in COMMON[0]
        }

    def best(self, width: int, room: frozenset[int] | None, rows: int) -> Run | None:
        """The best run of neighbours that has `width` CPUs of `rows` gangs at most, in `room` if given, and
        not one cache more than that takes. A cache that has no such CPU is passed over."""
        counts = ((at, bisect_right(board.used(room), rows)) for at, board in enumerate(self._boards))
        free = [(at, count) for at, count in counts if count]
        alike = chain.from_iterable(self._alike(free, names) for names in COMMON)
        return min(chain.from_iterable(self._runs(some, width) for some in alike), default=None)

    def cache(self, run: Run) -> Cache:
        """The cache that these would be."""
        some = [self._boards[at].cache for at in run.boards]
        each = zip(*((one.cpus, one.cores, one.slower) for one in some), strict=True)
        cpus, cores, slower = (tuple(chain(*parts)) for parts in each)
        return Cache(some[0].index, cpus, "", cores, slower)

    def _alike(self, free: Sequence[Free], names: Sequence[str]) -> Iterable[list[Free]]:
        """Those that have these in common."""
        alike = defaultdict(list)
        for at, count in free:
            alike[tuple(self._of[name][at] for name in names)].append((at, count))
        return alike.values()

    def _runs(self, some: Sequence[Free], width: int) -> Iterator[Run]:
        """Yield, for each of these caches, the shortest run that ends there and has `width` CPUs free."""
        first = total = 0
        for last, (_, count) in enumerate(some):
            total += count
            while total - some[first][1] >= width:
                total -= some[first][1]
                first += 1
            if total >= width:
                yield self._run(tuple(at for at, _ in some[first : last + 1]), total - width)

    def _run(self, boards: tuple[int, ...], left: int) -> Run:
        kinds, nodes = (len(frozenset().union(*(of[at] for at in boards))) for of in self._of.values())
        cpus = sum(len(self._boards[at].cache.cpus) for at in boards)
        return Run(cpus > CACHE_CPUS, kinds, nodes, len(boards), left, cpus, boards)
