# SPDX-License-Identifier: Apache-2.0
"""Where guests go, by the rule of gangd.model.placement, fast enough for a thousand of them.

The daemon's own function looks at every CPU for every guest. tests/unit/sim compares the two.
"""

from __future__ import annotations

from collections.abc import Sequence

from gangsim.errors import ScenarioError
from gangsim.scenario import DOMAIN_GANGS, Guest, Host

Cores = list[tuple[int, ...]]


def place(host: Host, guests: Sequence[Guest]) -> list[tuple[int, list[int]]]:
    """For each guest its gang domain and a CPU for each vCPU: the least crowded, whole cores first."""
    domains = host.domains()
    cores = [_cores(domain, host.threads) for domain in domains]
    members = [0] * host.cpus
    held = [0] * len(domains)
    placed = []
    for guest in guests:
        best: tuple[int, int, list[int]] | None = None
        for index, domain in enumerate(domains):
            if len(domain) < guest.vcpus:
                continue
            chosen = _choose(cores[index], guest.vcpus, members)
            cost = sum(members[cpu] for cpu in chosen)
            if best is None or cost < best[0]:
                best = (cost, index, chosen)
        if best is None or held[best[1]] == DOMAIN_GANGS:
            raise ScenarioError(f"cannot place {len(guests)} guests: a gang domain holds {DOMAIN_GANGS}")
        _, index, chosen = best
        held[index] += 1
        for cpu in chosen:
            members[cpu] += 1
        placed.append((index, chosen))
    return placed


def _cores(domain: range, threads: int) -> Cores:
    return [tuple(domain[at : at + threads]) for at in range(0, len(domain), threads)]


def _choose(cores: Cores, count: int, members: list[int]) -> list[int]:
    """`count` CPUs, least crowded cores first, in CPU order."""
    ranked = sorted(cores, key=lambda core: (sum(members[cpu] for cpu in core) / len(core), core))
    return sorted([cpu for core in ranked for cpu in core][:count])
