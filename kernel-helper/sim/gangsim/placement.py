# SPDX-License-Identifier: Apache-2.0
"""Place guests as the daemon does (gangd.model.placement), all at once, packed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import cycle, islice

from gangd.model.columns import CACHE_CPUS
from gangd.model.domain import Domain, Vcpu
from gangd.model.placement import Request, Seating, Standing
from gangd.model.placement import place as daemons_place
from gangd.model.topology import Cpu, Topology
from gangsim.errors import ScenarioError
from gangsim.scenario import DOMAIN_GANGS, Guest, Host


def place(host: Host, guests: Sequence[Guest], roams: bool = True) -> list[tuple[int, list[int]]]:
    """For each guest its cache, and a CPU for each vCPU: where it begins, or, unless it `roams`, stays.

    Raises ScenarioError when there is none.
    """
    domain_of = {cpu: index for index, domain in enumerate(host.domains()) for cpu in domain}
    asked = [Domain(str(number), "", vcpus=tuple(map(Vcpu, range(guest.vcpus))),
                    allowed=frozenset(guest.cpus_of(host)))
             for number, guest in enumerate(guests)]  # fmt: skip
    requests = [Request(one, roams=roams) for one in asked]
    seated = daemons_place(requests, _topology(host), Standing(strategy="pack")).of
    placed = []
    for number, guest in enumerate(guests):
        match seated[str(number)]:
            case Seating(placements=seats) if guest.vcpus <= CACHE_CPUS:
                cpus = [seat.cpu for seat in seats]
            case Seating():  # it spans domains, from the first on
                cpus = list(islice(cycle(guest.cpus_of(host)), guest.vcpus))
            case str(reason):
                raise ScenarioError(f"cannot place guest {number}: {reason}")
        placed.append((Counter(domain_of[cpu] for cpu in cpus).most_common(1)[0][0], cpus))
    [(_, most)] = Counter(domain for domain, _ in placed).most_common(1) or [(0, 0)]
    if most > DOMAIN_GANGS:
        raise ScenarioError(f"cannot place {len(guests)} guests: a cache holds {DOMAIN_GANGS}")
    return placed


def _topology(host: Host) -> Topology:
    """The host as the daemon reads one."""
    cache, kept = host.llc_cpus if host.llc_cpus > 1 else host.cpus, frozenset(range(host.reserved))
    cpus = tuple(Cpu(cpu, cpu - cpu % host.threads, cpu - cpu % cache, 0, 0) for cpu in range(host.cpus))
    return Topology(cpus, guests=frozenset(range(host.cpus)) - kept if kept else frozenset())
