# SPDX-License-Identifier: Apache-2.0
"""A board is a cache while a plan is made: which gangs have which column, and what a newcomer is given.

A column may have members of several gangs; they take turns, in as many rows of the slot matrix as
the fullest column has gangs. What is offered to a guest is, in this order:

- columns with as few gangs as possible: no more rows than need be;
- whole cores as far as it has vCPUs for them, so that no other guest of the slot runs on them, and
  what is left on the core that has just that much free;
- fast cores, where the host has several kinds;
- a block of cores aligned to its size, as in Feitelson and Rudolph's buddy scheme (Distributed
  Hierarchical Control, 1990), so that the columns of two gangs are either apart or one within
  the other: rows then have no holes;
- the block with the fewest gangs, and of those the one that leaves the least over: best fit.

A guest that is to be spread gets a core for each vCPU instead while cores idle, since two threads of a
core are slower than two cores. If they are too few it gets all threads of those before it shares one,
and it stays on fast cores: a thread of one that both use does no less than a slow core.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence, Set

from gangd.model.plan import Cache, Offer


class Board:
    """`cache` with the `gangs` (UUIDs, by CPU) that are there. Costs O(cores) for each new width and
    change."""

    def __init__(self, cache: Cache, gangs: defaultdict[int, set[str]] | None = None) -> None:
        self.cache = cache
        cores: dict[int, list[int]] = {}
        for cpu, core in zip(cache.cpus, cache.cores or cache.cpus, strict=True):
            cores.setdefault(core, []).append(cpu)
        self.cores: list[tuple[int, ...]] = [tuple(core) for core in cores.values()]
        self.threads = max(map(len, self.cores), default=1)
        known = defaultdict[int, set[str]](set) if gangs is None else gangs
        self._gangs = {cpu: known[cpu] for cpu in cache.cpus}
        self._slower = dict(zip(cache.cpus, cache.slower, strict=True)) if cache.slower else {}
        self._core_of = {cpu: core for core in self.cores for cpu in core}
        self._known: dict[tuple[int, frozenset[int] | None, bool], Offer | None] = {}
        self._used: dict[frozenset[int] | None, list[int]] = {}

    def gangs(self, cpu: int) -> Set[str]:
        """Return the UUIDs of the gangs that hold this column."""
        return self._gangs[cpu]

    def take(self, gang: str, cpus: Iterable[int], whole_cores: bool = False) -> None:
        """`gang` has these columns now; with `whole_cores` nobody else runs on their cores meanwhile."""
        mine = set(cpus)
        if whole_cores:
            mine = {thread for cpu in mine for thread in self._core_of[cpu]}
        for cpu in mine:
            self._gangs[cpu].add(gang)
        self._known.clear()
        self._used.clear()

    def leave(self, gang: str) -> None:
        """`gang` has no column any more."""
        for gangs in self._gangs.values():
            gangs.discard(gang)
        self._known.clear()
        self._used.clear()

    def offer(
        self, width: int, allowed: frozenset[int] | None = None, *, spread: bool = False
    ) -> Offer | None:
        """For a guest of `width` vCPUs, on `allowed` CPUs if given; None when they are not that many.

        spread: on cores of its own, one vCPU each, as far as such are idle.
        """
        key = (width, allowed, spread)
        if key not in self._known:
            self._known[key] = self._offer(width, allowed, spread)
        return self._known[key]

    def cost(self, cpus: Sequence[int], *, spread: bool = False) -> tuple[int, int, int]:
        """rows, missed and paired (Offer) of a guest that would have these CPUs, one for each vCPU.

        Where it takes turns with others there is nothing to spread: it is judged as if packed.
        """
        rows = max(len(self._gangs[cpu]) for cpu in cpus)
        if spread and not rows:
            mine = {self._core_of[cpu] for cpu in cpus}
            return rows, sum(not self._idle(core) for core in mine), len(cpus) - len(mine)
        filled = sum(len(core) == self.threads and set(core) <= set(cpus) for core in self.cores)
        return rows, len(cpus) // self.threads - filled, 0

    def used(self, allowed: frozenset[int] | None = None) -> list[int]:
        """How many gangs have each of the `allowed` CPUs, the fewest first."""
        if allowed not in self._used:
            on = (gangs for cpu, gangs in self._gangs.items() if allowed is None or cpu in allowed)
            self._used[allowed] = sorted(map(len, on))
        return self._used[allowed]

    def rows(self, width: int, allowed: frozenset[int] | None = None) -> int | None:
        """rows (Offer) of what would be offered, which takes no search; None: nothing would."""
        used = self.used(allowed)
        return used[width - 1] if 0 < width <= len(used) else None

    def _offer(self, width: int, allowed: frozenset[int] | None, spread: bool) -> Offer | None:
        rows = self.rows(width, allowed)
        if rows is None:
            return None
        usable = {
            cpu
            for cpu, gangs in self._gangs.items()
            if len(gangs) <= rows and (allowed is None or cpu in allowed)
        }
        fast, slowest = self._fastest(width, usable)
        choose = self._spread if spread and not rows else self._choose
        cpus = (*fast, *choose(width - len(fast), slowest))
        rows, missed, paired = self.cost(cpus, spread=spread)
        meets: frozenset[str] = frozenset().union(*(self._gangs[cpu] for cpu in cpus))
        slower = max(self._slower.get(cpu, 0) for cpu in cpus)
        left = len(usable) - width
        return Offer(rows, missed, slower, paired, len(meets), left, self.cache.index, cpus)

    def _fastest(self, width: int, usable: set[int]) -> tuple[tuple[int, ...], set[int]]:
        """CPUs of which a guest has all, since they are fast, and those of one kind that have the rest."""
        fast: tuple[int, ...] = ()
        for kind in sorted({self._slower.get(cpu, 0) for cpu in usable}):
            of_kind = {cpu for cpu in usable if self._slower.get(cpu, 0) == kind}
            if len(fast) + len(of_kind) >= width:
                return fast, of_kind
            fast += tuple(cpu for cpu in self.cache.cpus if cpu in of_kind)
        return fast, set()

    def _idle(self, core: Sequence[int]) -> bool:
        return not any(self._gangs[cpu] for cpu in core)

    def _spread(self, width: int, usable: set[int]) -> tuple[int, ...]:
        """A thread of each idle core, then their other threads, then those of few other cores."""
        parts = [[cpu for cpu in core if cpu in usable] for core in self.cores]
        idle = [bool(part) and self._idle(core) for part, core in zip(parts, self.cores, strict=True)]
        block = [parts[at] for at in self._block(min(width, sum(idle)), idle)]
        layers = [part[layer] for layer in range(self.threads) for part in block if layer < len(part)]
        shared = sorted((part for part, alone in zip(parts, idle, strict=True) if not alone), key=len)
        chosen = set(layers[:width])
        while len(chosen) < width:
            rest = width - len(chosen)
            best = next((part for part in shared if len(part) >= rest), shared[-1])
            chosen.update(best[:rest])
            shared.remove(best)
        return tuple(cpu for core in self.cores for cpu in core if cpu in chosen)

    def _choose(self, width: int, usable: set[int]) -> tuple[int, ...]:
        """Whole cores first, then the rest of the vCPUs where they leave the least over."""
        whole = [len(core) == self.threads and usable.issuperset(core) for core in self.cores]
        count = min(width // self.threads, sum(whole))
        chosen = self._block(count, whole)
        cpus = [cpu for at in chosen for cpu in self.cores[at]]
        rest = width - len(cpus)
        parts = [
            [cpu for cpu in core if cpu in usable] for at, core in enumerate(self.cores) if at not in chosen
        ]
        while rest:
            enough = [part for part in parts if len(part) >= rest]
            best = min(enough, key=self._rank) if enough else max(parts, key=len)
            cpus += best[:rest]
            rest -= len(best[:rest])
            parts.remove(best)
        return tuple(cpus)

    def _rank(self, part: Sequence[int]) -> tuple[int, int]:
        return len(part), sum(len(self._gangs[cpu]) for cpu in part)

    def _block(self, count: int, whole: list[bool]) -> list[int]:
        """`count` of the `whole` cores: an aligned block if there is one, else of few pieces."""
        found: list[int] = []
        while count > len(found):
            blocks = _free_blocks([is_whole and at not in found for at, is_whole in enumerate(whole)])
            wanted = count - len(found)
            enough = [block for block in blocks if block[1] >= wanted]
            if not enough:
                start, size = max(blocks, key=lambda block: (block[1], -block[0]))
                found += range(start, start + size)
                continue
            starts = {
                start: size for first, size in enough for start in range(first, first + size, _power(wanted))
            }
            best = min(starts, key=lambda start: (*self._load(start, wanted), starts[start], start))
            found += range(best, best + wanted)
        return sorted(found)

    def _load(self, start: int, count: int) -> tuple[int, int]:
        """Gangs that have columns on these cores, and how many columns."""
        cpus = [cpu for core in self.cores[start : start + count] for cpu in core]
        meets: frozenset[str] = frozenset().union(*(self._gangs[cpu] for cpu in cpus))
        return len(meets), sum(len(self._gangs[cpu]) for cpu in cpus)


def _power(count: int) -> int:
    """The least power of two that is not below `count`."""
    return 1 << (count - 1).bit_length()


def _free_blocks(free: Sequence[bool]) -> list[tuple[int, int]]:
    """(start, size) of the largest aligned blocks, sizes powers of two, in which all are free."""
    blocks: list[tuple[int, int]] = []

    def split(start: int, size: int) -> None:
        inside = free[start : start + size]
        if len(inside) == size and all(inside):
            blocks.append((start, size))
        elif any(inside):
            split(start, size // 2)
            split(start + size // 2, size // 2)

    split(0, _power(max(len(free), 1)))
    return blocks
