# SPDX-License-Identifier: Apache-2.0
"""Guests by the hundred, on a real libvirtd, with a gangd of its own: none is lost, no other is touched."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("libvirt")
from scale.stage import Stage, stage

GUESTS = 200
SECONDS = 120.0


@pytest.fixture(scope="module")
def place() -> Iterator[Stage]:
    with stage() as made:
        made.start("[scheduler]\nmoves_per_minute = 10000\n")
        yield made


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline, "gangd did not follow"
        time.sleep(0.1)


def test_two_hundred_domains_at_once(place: Stage) -> None:
    """Defined and started while gangd runs, each second one marked: those become gangs."""
    doms = [place.define(f"many-{number}", 2, marked=number % 2 == 0) for number in range(GUESTS)]
    before = [pins(dom) for dom in doms]
    for dom in doms:
        place.run(dom)
    until(lambda: place.client.status()["plan"]["gangs"] == GUESTS // 2)
    until(lambda: all(pins(dom) != was for dom, was in zip(doms[::2], before[::2], strict=True)))
    assert [pins(dom) for dom in doms[1::2]] == before[1::2]
    assert place.client.status()["failures"] == []
    for dom in doms:
        place.end(dom)
    until(lambda: place.client.status()["plan"]["gangs"] == 0)
    until(lambda: place.client.status()["domains"]["running"] == 0)
    for dom in doms:
        dom.undefine()
    until(lambda: place.client.status()["domains"]["known"] == 0)


def test_undefined_while_it_runs(place: Stage) -> None:
    """It goes on as a transient domain and as a gang, until it ends."""
    dom = place.define("brief", 2, marked=True)
    place.run(dom)
    until(lambda: place.client.status()["plan"]["gangs"] == 1)
    pinned = pins(dom)
    dom.undefine()
    place.client.refresh()
    assert place.client.status()["plan"]["gangs"] == 1
    assert pins(dom) == pinned
    place.end(dom)
    until(lambda: place.client.status()["domains"]["known"] == 0)


def pins(dom: Any) -> list[tuple[bool, ...]]:
    """Of each vCPU, a flag for each CPU."""
    return list(dom.vcpuPinInfo())
