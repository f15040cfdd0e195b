# SPDX-License-Identifier: Apache-2.0
"""The parties of the tile: guests with a load each, and a task of the host. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Party:
    """A guest. load: the argument of its first process; initrd: the archive that it boots from, empty for the
    flat payload. latency: its figure is a p99, else work per second. wide: it has as many vCPUs as the host
    CPUs, else two. marked: it is in the arms that mark guests."""

    name: str
    load: str
    initrd: str
    latency: bool = False
    wide: bool = False
    marked: bool = True

    def vcpus(self, cpus: int) -> int:
        """Return how many vCPUs it has on a host with so many CPUs."""
        return cpus if self.wide else 2


# The first ones are measured where there is no room for all.
GUESTS = (
    Party("db", "pgbench", "pgbench"),
    Party("web", "web", "tile", latency=True),
    Party("loop", "barrier", "barrier", wide=True),
    Party("busy", "spin", "", marked=False),
    Party("compile", "compile", "compile", wide=True),
    Party("idle", "idle", "tile", latency=True),
)
BACKUP = "backup"  # the task of the host: one thread, always busy, with nice 10
LATENCIES = tuple(party.name for party in GUESTS if party.latency)


def names(guests: int) -> tuple[str, ...]:
    """Return the names of all parties where so many guests run."""
    return (*(party.name for party in GUESTS[:guests]), BACKUP)
