# SPDX-License-Identifier: Apache-2.0
"""The state of the host as last seen, and how an event changes it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from gangd.errors import NoLibvirt, NoSuchDomain
from gangd.model.domain import LIBVIRT, Domain
from gangd.model.event import Connected, CpusSeen, Disconnected, DomainGone, DomainSeen, Event, Resynced
from gangd.model.topology import Topology


@dataclass(frozen=True)
class State:
    """connected: None = not tried yet. domains: by UUID, running or not."""

    connected: bool | None = None
    uri: str = ""
    reason: str = "libvirt was not asked yet"
    topology: Topology = Topology()
    domains: Mapping[str, Domain] = field(default_factory=lambda: MappingProxyType({}))

    def marked(self) -> list[Domain]:
        """Running domains with a usable mark, by name."""
        found = [d for d in self.domains.values() if d.running and d.mark]
        return sorted(found, key=lambda d: (d.name, d.uuid))

    def unlimited(self) -> State:
        """Return the state without what cgroups leave the domains."""
        return _with(self, {uuid: replace(d, allowed=frozenset()) for uuid, d in self.domains.items()})

    def find(self, ref: str) -> Domain:
        """The domain called `ref`, in virsh's order: id, UUID, name; of several libvirt's.

        Raises NoSuchDomain, NoLibvirt.
        """
        domains = sorted(self.domains.values(), key=lambda domain: domain.source != LIBVIRT)
        if ref.isascii() and ref.isdecimal():
            for domain in domains:
                if domain.id == int(ref):
                    return domain
        if ref.lower() in self.domains:
            return self.domains[ref.lower()]
        for domain in domains:
            if domain.name == ref:
                return domain
        if not self.connected:
            raise NoLibvirt(self.reason)
        raise NoSuchDomain(f"Domain not found: no domain with matching name '{ref}'")


def reduce(state: State, event: Event) -> State:
    """The state after `event`. Knows no clock and no kernel; never fails."""
    match event:
        case Connected(uri):
            return replace(state, connected=True, uri=uri, reason="")
        case Disconnected(reason):
            return replace(state, connected=False, reason=reason)
        case DomainSeen(domain):
            return _with(state, {**state.domains, domain.uuid: _known(state, domain)})
        case DomainGone(uuid):
            return _with(state, {k: d for k, d in state.domains.items() if k != uuid})
        case Resynced(domains, topology):
            seen = {d.uuid: _known(state, d) for d in domains}
            return replace(_with(state, seen), topology=_or_last(state.topology, topology))
        case CpusSeen(topology):
            return replace(state, topology=_or_last(state.topology, topology))


def _known(state: State, domain: Domain) -> Domain:
    """The object that the domain was, if it is what it was: most that is asked of states is what differs."""
    last = state.domains.get(domain.uuid)
    return last if last == domain else domain


def _or_last(last: Topology, topology: Topology) -> Topology:
    return last if last == topology else topology


def _with(state: State, domains: dict[str, Domain]) -> State:
    return replace(state, domains=MappingProxyType(domains))
