# SPDX-License-Identifier: Apache-2.0
"""Guests by the hundred, on a real libvirtd, with a gangd of its own: none is lost, no definition touched."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

pytest.importorskip("libvirt")
from host.scale.stage import Stage, stage

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
    before = [dom.XMLDesc() for dom in doms]
    for dom in doms:
        place.run(dom)
    until(lambda: place.client.status()["plan"]["gangs"] == GUESTS // 2)
    assert [vcpus(dom.XMLDesc()) for dom in doms] == [vcpus(text) for text in before]
    assert place.client.status()["failures"] == []
    for dom in doms:
        place.end(dom)
    until(lambda: place.client.status()["plan"]["gangs"] == 0)
    until(lambda: place.client.status()["domains"]["running"] == 0)
    for dom in doms:
        dom.undefine()
    until(lambda: place.client.status()["domains"]["known"] == 0)


def test_undefined_while_it_runs(place: Stage) -> None:
    """A guest undefined while it runs goes on as a transient domain and as a gang, until it ends."""
    dom = place.define("brief", 2, marked=True)
    place.run(dom)
    until(lambda: place.client.status()["plan"]["gangs"] == 1)
    dom.undefine()
    place.client.refresh()
    assert place.client.status()["plan"]["gangs"] == 1
    place.end(dom)
    until(lambda: place.client.status()["domains"]["known"] == 0)


def vcpus(text: str) -> list[str]:
    """The lines of a definition that say where vCPUs run."""
    return [line for line in text.splitlines() if "vcpu" in line or "cputune" in line]
