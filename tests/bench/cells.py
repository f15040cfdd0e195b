# SPDX-License-Identifier: Apache-2.0
"""Measure a cell of the matrix: rounds in which every variant has its turn on the same guests.

A round is a history: its guests begin anew in an order, at moments and on CPUs that no other round has, and
that are the same for all of its variants.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.backends import Missing
from bench.guest_pool import GuestPool, Starved
from bench.records import Cell as Found
from bench.records import Key, Round
from bench.result import cell
from bench.switch import Switch
from bench.variants import ALONE, Variant, in_order
from gangd.errors import GangError
from lab.guests.domains import Guest, GuestDied

# A round counts as this if its scheduler refused the guests or was ejected.
NOTHING = Round(rate=0.0)


@dataclass(frozen=True)
class Pace:
    """The pace at which a cell is measured. slot_us as the backends want it."""

    rounds: int
    seconds: float
    settle: float
    slot_us: int


@dataclass
class Series:
    """The rounds of a variant. failed: the number of them in which the scheduler failed."""

    rounds: list[Round] = field(default_factory=list)
    failed: int = 0
    unavailable: str | None = None


class Cell:
    """Measures `number` guests of a pool. series outlives a pool that died: pass it on."""

    def __init__(
        self, pool: GuestPool, number: int, switch: Switch, pace: Pace, say: Callable[[str], None]
    ) -> None:
        self._pool = pool
        self._guests = pool.guests[:number]
        self._switch = switch
        self._pace = pace
        self._say = say
        self._now = ""  # the variant whose turn it is

    def run(self, variants: Sequence[Variant], series: dict[str, Series]) -> None:
        """Measure until every variant has its rounds. Raises GuestDied."""
        for variant in (*variants, ALONE):
            series.setdefault(variant.name, Series())
        for number in range(self._pace.rounds):
            for variant in in_order([ALONE, *variants], number):
                found = series[variant.name]
                if len(found.rounds) <= number and not found.unavailable:
                    self._turn(variant, number, found)
            last = (f"{name} {s.rounds[-1].rate:,.0f}" for name, s in series.items() if s.rounds)
            self._say(f"round {number + 1}: {', '.join(last)}")
        for guest in self._guests:
            guest.check()

    def _turn(self, variant: Variant, number: int, found: Series) -> None:
        """Measure one round. One in which the scheduler failed counts like every other."""
        guests, self._now = self._guests, variant.name
        if variant is ALONE:
            guests = [guests[number % len(guests)]]
        try:
            self._pool.scatter(guests, random.Random(number))
            self._switch.enter(variant, guests)
        except Missing as missing:
            found.unavailable = str(missing)
            self._say(f"{variant.name}: not available: {missing}")
            return
        except GangError as error:
            self._failed(variant, found, NOTHING, self._switch.ejected() or ": ".join(error.lines()))
            return
        time.sleep(self._pace.settle)
        measured, starved = self._measure(guests)
        reason = self._switch.ejected()
        if reason:
            self._failed(variant, found, NOTHING, reason)
        elif starved:
            self._failed(variant, found, measured, starved)
        else:
            found.rounds.append(measured)

    def _measure(self, guests: list[Guest]) -> tuple[Round, str | None]:
        """Return the guests' figures over one round, and the reason why a guest was starved, if one was."""
        turns, skew = self._switch.stats(), self._switch.start_skew()
        begin, ran, at = self._pool.progress(guests), self._pool.cpu_seconds(guests), time.monotonic()
        time.sleep(self._pace.seconds)
        end = self._pool.progress(guests)
        ran_at_end, at_end = self._pool.cpu_seconds(guests), time.monotonic()
        after, skews = self._switch.stats(), self._switch.start_skew()
        starved = self._check(guests, begin)
        rate = sum((end[n][1] - begin[n][1]) / (end[n][0] - begin[n][0]) for n in begin)
        counts = [late - early for early, late in zip(skew, skews, strict=True)]
        cpus = (ran_at_end - ran) / (at_end - at)
        return Round(rate=rate, cpus=cpus, start_skew=counts, **_turns(turns, after)), starved

    def _check(self, guests: list[Guest], begin: dict[str, tuple[float, int]]) -> str | None:
        try:
            self._pool.check(guests, begin)
        except Starved as starved:
            return str(starved)
        except GuestDied as death:
            raise GuestDied(f"{self._now}: {death}")
        return None

    def _failed(self, variant: Variant, found: Series, measured: Round, reason: str) -> None:
        """The scheduler's own fault: the kernel ejected it, or a guest was starved."""
        found.failed += 1
        found.rounds.append(measured)
        self._say(f"{variant.name}: failed: {reason}")
        self._switch.close()


def _turns(before: list[Any], after: list[Any]) -> dict[str, Any]:
    """Return the backend's counts between two readings, summed over all gangs."""

    def growth(name: str) -> int:
        return sum(getattr(b, name) - getattr(a, name) for a, b in zip(before, after, strict=True))

    if not before:
        return {}
    return {"turns": growth("turns"), "whole": growth("whole"), "skew_ms": growth("skew_ns") / 1e6}


def documents(key: Key, series: dict[str, Series], run: str) -> list[Found]:
    """The cells of the result; each also has the limit, one guest alone, and its share of it."""
    alone = cell(ALONE.name, key, series[ALONE.name].rounds).median if ALONE.name in series else None
    found = []
    for name, each in series.items():
        one = cell(name, key, each.rounds)
        one.failed, one.unavailable, one.alone, one.run = each.failed, each.unavailable, alone, run
        one.limit_share = one.median / alone if alone and one.median is not None else None
        found.append(one)
    return found
