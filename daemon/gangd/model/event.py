# SPDX-License-Identifier: Apache-2.0
"""Events, as values. `gangd.events` produces them, `gangd.model.state` consumes them."""

from __future__ import annotations

from dataclasses import dataclass

from gangd.model.domain import Domain
from gangd.model.topology import Topology


@dataclass(frozen=True)
class Connected:
    """libvirt answers at `uri`, "" = it is not asked."""

    uri: str


@dataclass(frozen=True)
class Disconnected:
    """libvirt is gone; `reason` is one sentence. What was known of the guests is kept."""

    reason: str


@dataclass(frozen=True)
class DomainSeen:
    """A domain was read afresh; replaces whatever was known of it."""

    domain: Domain


@dataclass(frozen=True)
class DomainGone:
    """libvirt no longer knows the domain."""

    uuid: str


@dataclass(frozen=True)
class Resynced:
    """Everything was read afresh; domains not listed are gone."""

    domains: tuple[Domain, ...]
    topology: Topology


@dataclass(frozen=True)
class CpusSeen:
    """The CPUs were read afresh, and libvirt did not list the domains."""

    topology: Topology


Event = Connected | Disconnected | DomainSeen | DomainGone | Resynced | CpusSeen
