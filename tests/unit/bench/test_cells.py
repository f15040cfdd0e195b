# SPDX-License-Identifier: Apache-2.0
"""A round in which the scheduler failed is a round."""

from __future__ import annotations

import random
from typing import Any

import pytest

pytest.importorskip("libvirt")

from bench import records
from bench.backends import Missing
from bench.cells import Cell, Pace, Series, documents
from bench.guest_pool import Starved
from bench.variants import chosen
from gangd.errors import GangError

RATE = 100


class GuestPool:
    """A guest that gets on at RATE, and is starved in the rounds in which `starve` says so."""

    def __init__(self) -> None:
        self.guests: list[Any] = [self]
        self.name, self.time, self.starve = "g", 0.0, False

    def scatter(self, guests: list[Any], draw: random.Random) -> None:
        pass

    def progress(self, guests: list[Any]) -> dict[str, tuple[float, int]]:
        self.time += 1.0
        return {"g": (self.time, 0 if self.starve else int(self.time) * RATE)}

    def cpu_seconds(self, guests: list[Any]) -> float:
        return self.time

    def check(self, guests: list[Any] | None = None, begin: Any = None) -> None:
        if self.starve and begin:  # asked about a round, not whether it lives
            raise Starved("g was starved")


class Switch:
    """A switch of variants under whose gang scheduler `fault` happens."""

    def __init__(self, pool: GuestPool, fault: str) -> None:
        self.pool, self.fault, self.now = pool, fault, ""

    def enter(self, variant: Any, guests: list[Any]) -> None:
        self.now = variant.name
        if self.now == "relaxed" and self.fault == "missing":
            raise Missing("no sched_ext")
        if self.now == "relaxed" and self.fault == "refused":
            raise GangError("refused")
        self.pool.starve = self.now == "relaxed" and self.fault == "starved"

    def ejected(self) -> str | None:
        return "a stall" if self.now == "relaxed" and self.fault == "ejected" else None

    def stats(self) -> list[Any]:
        return []

    def start_skew(self) -> list[int]:
        return []

    def close(self) -> None:
        pass


def measured(fault: str) -> dict[str, records.Cell]:
    """Three rounds of the default class and of the gang, by variant."""
    pool = GuestPool()
    series: dict[str, Series] = {}
    switch: Any = Switch(pool, fault)
    cell = Cell(pool, 1, switch, Pace(3, 0.0, 0.0, 30_000), lambda _: None)  # type: ignore[arg-type]
    cell.run(chosen(["default", "relaxed"]), series)
    return {found.variant: found for found in documents(("spin", False, 1), series, "a run")}


@pytest.mark.parametrize("fault", ["ejected", "starved", "refused"])
def test_it_counts_as_what_it_was(fault: str) -> None:
    """Not repeated and not left out: nothing was done in it."""
    found = measured(fault)
    assert (found["relaxed"].rates, found["relaxed"].failed) == ([0.0, 0.0, 0.0], 3)
    assert (found["default"].rates, found["default"].failed) == ([RATE] * 3, 0)


def test_a_round_without_a_fault_counts_so() -> None:
    found = measured("")
    assert (found["relaxed"].rates, found["relaxed"].failed) == ([RATE] * 3, 0)


def test_an_unavailable_variant_has_no_rounds() -> None:
    """The cell did not fail: the kernel does not have the variant."""
    found = measured("missing")["relaxed"]
    assert (found.rates, found.failed, found.unavailable) == ([], 0, "no sched_ext")
