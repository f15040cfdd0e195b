# SPDX-License-Identifier: Apache-2.0
"""Guests that die are started anew, and what was measured stays."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("libvirt")

from bench import driver
from bench.records import Origin, Result
from lab.guests.domains import GuestDied


class Pool:
    """Guests of which it is known whether they were destroyed."""

    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


class Harness(driver.Harness):
    """A harness whose guests die so many times when they are measured."""

    def __init__(self, options: Namespace, deaths: int) -> None:
        super().__init__(options)
        self.deaths, self.pools, self.done = deaths, list[Pool](), list[int]()

    def measured(self, places: list[int]) -> bool:
        return self._outlive("spin", places, self._begin, self._measure, lambda death: f"spin: {death}")

    def _begin(self) -> Any:
        self.pools.append(Pool())
        return self.pools[-1]

    def _measure(self, pool: Any, place: int) -> None:
        if place == 2 and self.deaths:
            self.deaths -= 1
            raise GuestDied("gone")
        self.done.append(place)


@pytest.mark.parametrize("deaths", [0, 2, driver.DEATHS - 1, driver.DEATHS])
def test_new_guests_go_on_where_those_before_died(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deaths: int
) -> None:
    """A place is measured once; guests that die too often are given up, and every death is in the file."""
    monkeypatch.setattr(driver, "save", lambda document, place: document.write(place))
    place = tmp_path / "result.json"
    Result(part="matrix", origin=Origin(sources="s")).write(place)
    harness, survived = Harness(Namespace(result=place), deaths), deaths < driver.DEATHS
    assert harness.measured([1, 2, 3]) is survived
    assert harness.done == ([1, 2, 3] if survived else [1])
    assert len(harness.pools) == min(deaths + 1, driver.DEATHS) and all(pool.closed for pool in harness.pools)
    assert Result.read(place).lab_failures == ["spin: gone"] * deaths
