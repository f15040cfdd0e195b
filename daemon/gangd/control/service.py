# SPDX-License-Identifier: Apache-2.0
"""The interface that the daemon offers to its clients; `gangd.answers` implements it,
`gangd.control.server` puts it on D-Bus, tests fake it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from gangd.model.affect import Affect
from gangd.model.domain import Domain
from gangd.model.evidence import Evidence
from gangd.model.mark_change import MarkChange
from gangd.model.plan import GangPlan, Plan, Refusal
from gangd.model.policy import PolicyText
from gangd.model.profile import Rules
from gangd.model.readings import Reading
from gangd.model.smt import Smt
from gangd.model.snapshot import Snapshot


@dataclass(frozen=True)
class Undone:
    """The result of an undo. settings: how many were put back; failures: sentences about those that were not.
    domains: those that are left alone from now on, and the one that was named."""

    domains: tuple[Domain, ...] = ()
    settings: int = 0
    failures: tuple[str, ...] = ()


@dataclass(frozen=True)
class Advice:
    """The plan for each running guest, by UUID, as if a mark of its own named the policy `adaptive`.

    evidence: of all guests, from which that follows. unread: guests of which too little was measured yet.
    """

    planned: Mapping[str, GangPlan | Refusal] = field(default_factory=dict)
    evidence: Mapping[str, Evidence] = field(default_factory=dict)
    unread: frozenset[str] = frozenset()


class Service(Protocol):
    """All methods may raise `GangError`; nothing else."""

    async def asked(self) -> None:
        """Returns when libvirt was read once, or could not be."""

    def snapshot(self) -> Snapshot:
        """Everything there is to show, as of the last measurement."""

    async def measured(self) -> Snapshot:
        """Return the snapshot with the kernel's counters read now, or a moment ago for another caller."""

    async def metrics(self, openmetrics: bool) -> tuple[str, str]:
        """Content type and text of /metrics (docs/metrics.md), with counters read now."""

    async def overview(self) -> str:
        """The page of the host and its guests, as HTML, with counters read now."""

    def resolve(self, ref: str) -> Domain:
        """The domain called `ref`: an id (digits), a UUID or a name, tried in
        virsh's order. Raises NoSuchDomain, NoLibvirt, and TimedOut until libvirt listed its domains."""

    async def refresh(self) -> None:
        """Read libvirt and the kernel now rather than at the next interval."""

    def policies(self) -> tuple[PolicyText, ...]:
        """The installed policies, by name."""

    def rules(self) -> Rules:
        """Profiles and selectors, as they are in force."""

    async def mark(self, ref: str, change: MarkChange) -> Domain:
        """Store the mark in the domain's metadata and act on it before returning: live and, of a
        persistent domain, in its configuration, unless the change affects one of them alone.
        Raises NoSuchDomain, InvalidArgument, NotRunning, NoLibvirt."""

    async def unmark(self, ref: str, affect: Affect | None = None) -> Domain:
        """Take the mark away and put the guest back as it was found."""

    async def change(self, ref: str, change: MarkChange) -> Domain:
        """Change what is given of the marks there are; raises NotMarked, and as mark() does."""

    async def undo(self, ref: str | None) -> Undone:
        """Put back what was changed of one domain, None = of everything, and leave alone what it was
        changed for until `resume` or `mark`. Raises NoSuchDomain, NoLibvirt."""

    async def resume(self, ref: str | None) -> tuple[Domain, ...]:
        """Schedule a domain again, None = every one, that `undo` left alone; the domains.
        Raises NoSuchDomain, NoLibvirt."""

    async def smt(self, wanted: str | None) -> Smt:
        """SMT of the host, after switching it "on" or "off" if that is wanted; `undo` of everything
        puts it back. Raises GangError where it cannot be switched, InvalidArgument."""

    async def preview(self, ref: str | None) -> tuple[Plan, list[dict[str, str | None]]]:
        """The plan, and the changes that reconciling would make now: [{actuator,
        key, now, wanted, reason, text}]. With `ref`, as if that domain were marked with the
        default mark. Changes nothing."""

    async def advise(self, ref: str | None) -> Advice:
        """The plan for a domain, None = for every running one, if it were marked. Changes nothing."""

    def reading(self, domain: Domain) -> Reading | None:
        """The reading of a running domain from before its mark was in force, None = there is none."""
