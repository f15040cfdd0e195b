# SPDX-License-Identifier: Apache-2.0
"""Guests on made-up hosts, seated by gangd.model.placement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fakes import guest
from gangd.model.domain import Domain, Mode
from gangd.model.placement import Request, Seating, Seatings, Standing, Strategy, place
from gangd.model.plan import GangPlan, Plan
from gangd.model.topology import Topology


def guests(*widths: int) -> list[Domain]:
    """Running guests g1, g2, ... of so many vCPUs."""
    return [guest(f"g{number}", number, width) for number, width in enumerate(widths, 1)]


def seat(topology: Topology, found: Sequence[Domain], standing: Standing | None = None) -> Seatings:
    """All of them, on a host where `standing` is what is there already."""
    return place([Request(domain) for domain in found], topology, standing)


def standing(
    found: Sequence[Domain], placed: Seatings, moves: int = 0, strategy: Strategy = "auto"
) -> Standing:
    """Return the standing plan once `placed` was done for the guests in `found`."""
    gangs = [
        GangPlan(d.uuid, d.name, d.pid, Mode.RELAXED, one.cache, one.placements, "")
        for d in found
        if isinstance(one := placed.of[d.uuid], Seating)
    ]
    return Standing(Plan(placed.caches, tuple(gangs)), moves=moves, strategy=strategy)


def cpus(placed: Seatings, domain: Domain) -> list[int]:
    """The CPUs of its vCPUs, in their order."""
    found = placed.of[domain.uuid]
    assert isinstance(found, Seating), found
    return [placement.cpu for placement in found.placements]


def cpus_of(topology: Topology, *widths: int, strategy: Strategy = "auto") -> list[list[int] | str]:
    """The CPUs of each, or why there are none."""
    found = guests(*widths)
    placed = seat(topology, found, Standing(strategy=strategy))
    return [answer if isinstance(answer := placed.of[d.uuid], str) else cpus(placed, d) for d in found]


def pinned(domain: Domain, *affinities: set[int]) -> Domain:
    """Return the domain with vCPUs that may run on these CPUs alone, by whatever limit."""
    vcpus = [replace(v, affinity=frozenset(a)) for v, a in zip(domain.vcpus, affinities, strict=True)]
    return replace(domain, vcpus=tuple(vcpus))
