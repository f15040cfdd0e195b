# SPDX-License-Identifier: Apache-2.0
"""A CPU for each vCPU of a guest that an operator pinned. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

Hand = Sequence[frozenset[int] | None]  # by vCPU where an operator wants it, None = anywhere


def match(hand: Hand, space: frozenset[int], rank: Mapping[int, tuple[int, ...]]) -> tuple[int, ...] | None:
    """A CPU of `space` for every vCPU, where it is wanted by hand; no CPU twice if that can be had, and
    none more often than need be.

    Kuhn's augmenting paths, narrow wishes first, and of each the least in `rank` before others. None when
    a vCPU may use none of the CPUs.
    """
    anywhere = sorted(space, key=rank.__getitem__) if None in hand else []
    wishes = [anywhere if wish is None else sorted(wish & space, key=rank.__getitem__) for wish in hand]
    if not all(wishes):
        return None
    holder: dict[int, int] = {}

    def settle(vcpu: int, tried: set[int]) -> bool:
        for cpu in wishes[vcpu]:
            if cpu not in holder:
                holder[cpu] = vcpu
                return True
        for cpu in wishes[vcpu]:
            if cpu not in tried:
                tried.add(cpu)
                if settle(holder[cpu], tried):
                    holder[cpu] = vcpu
                    return True
        return False

    for vcpu in sorted(range(len(wishes)), key=lambda vcpu: len(wishes[vcpu])):
        settle(vcpu, set())
    found = {vcpu: cpu for cpu, vcpu in holder.items()}
    held = Counter(holder.keys())
    for vcpu in range(len(wishes)):
        if vcpu not in found:
            found[vcpu] = min(wishes[vcpu], key=held.__getitem__)
            held[found[vcpu]] += 1
    return tuple(found[vcpu] for vcpu in range(len(wishes)))
