# SPDX-License-Identifier: Apache-2.0
"""Where guests go: on the daemon's own boards (gangd.model.board), all at once, widest first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import cycle, islice

from gangd.model.board import Board
from gangd.model.plan import GangDomain
from gangsim.errors import ScenarioError
from gangsim.scenario import DOMAIN_GANGS, Guest, Host


def place(host: Host, guests: Sequence[Guest]) -> list[tuple[int, list[int]]]:
    """For each guest its gang domain, and a CPU for each vCPU: pinned there, or where it begins.

    Raises ScenarioError when there is none.
    """
    boards = [
        Board(GangDomain(index, tuple(cpus), "", tuple(cpu - cpu % host.threads for cpu in cpus)))
        for index, cpus in enumerate(host.domains())
    ]
    held: Counter[int] = Counter()
    placed: dict[int, tuple[int, list[int]]] = {}
    domain_of = {cpu: index for index, domain in enumerate(host.domains()) for cpu in domain}
    for number in sorted(range(len(guests)), key=lambda number: -guests[number].vcpus):
        width, room = guests[number].vcpus, guests[number].cpus_of(host)
        offers = [offer for board in boards if (offer := board.offer(width, frozenset(room)))]
        if not offers:  # it spans domains, from the first on
            placed[number] = (domain_of[room[0]], list(islice(cycle(room), width)))
            continue
        if held[min(offers).gang_domain] == DOMAIN_GANGS:
            raise ScenarioError(f"cannot place {len(guests)} guests: a gang domain holds {DOMAIN_GANGS}")
        best = min(offers)
        held[best.gang_domain] += 1
        boards[best.gang_domain].take(str(number), best.cpus)
        placed[number] = (best.gang_domain, list(best.cpus))
    return [placed[number] for number in range(len(guests))]
