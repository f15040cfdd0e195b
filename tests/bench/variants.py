# SPDX-License-Identifier: Apache-2.0
"""The variants that are compared: ways to schedule the same running guests. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from gangd.model.domain import Mode


@dataclass(frozen=True)
class Variant:
    """pinned: each vCPU on one CPU only, vCPU i on CPU i; turned: one further with every guest.

    backend: the scheduler that is loaded, None is the default class.
    """

    name: str
    pinned: bool
    turned: bool = False
    backend: str | None = None
    mode: Mode = Mode.OFF


# Those of one backend stand together: the scheduler is loaded once a round for all of them.
VARIANTS = (
    Variant("default", pinned=False),
    Variant("pinned", pinned=True),
    Variant("balance", pinned=True, turned=True),  # gangd's mode of that name: pins alone
    Variant("boost", pinned=True, backend="module", mode=Mode.RELAXED),
    Variant("relaxed", pinned=False, backend="sched_ext", mode=Mode.RELAXED),
    Variant("strict", pinned=False, backend="sched_ext", mode=Mode.STRICT),
)
NAMES = tuple(variant.name for variant in VARIANTS)
BASELINES = ("default", "pinned", "balance")
ARMS = ("off", "balance", "relaxed")  # what the policy adaptive chooses from
ADAPTIVE = (*ARMS, "adaptive")
GANGS = ("boost", "relaxed", "strict")
# One guest that has the machine for itself, the others frozen: what sharing without loss would add up to.
ALONE = Variant("alone", pinned=True)


def chosen(names: list[str]) -> list[Variant]:
    """The variants of these names, in the order in which they are measured. Raises ValueError."""
    unknown = set(names) - set(NAMES)
    if unknown:
        raise ValueError(f"no such variant: {', '.join(sorted(unknown))} (there are {', '.join(NAMES)})")
    return [variant for variant in VARIANTS if variant.name in names]


def in_order(found: list[Variant], number: int) -> list[Variant]:
    """Round `number` in its order: there and back, so that a drift of the machine falls on all alike, and
    a scheduler that is loaded at the end of a round is still loaded at the beginning of the next."""
    return found if number % 2 == 0 else found[::-1]
