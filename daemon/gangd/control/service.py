# SPDX-License-Identifier: Apache-2.0
"""What the daemon offers to whoever controls it; `gangd.daemon` implements it,
`gangd.control.server` puts it on D-Bus, tests fake it."""

from __future__ import annotations

from typing import Protocol

from gangd.model.domain import Domain
from gangd.model.plan import Plan
from gangd.model.policy import PolicyText
from gangd.model.snapshot import Snapshot


class Service(Protocol):
    """All methods may raise `GangError`; nothing else."""

    def snapshot(self) -> Snapshot:
        """Everything there is to show, as of the last measurement."""

    async def measured(self) -> Snapshot:
        """The same with the kernel's counters read now, or a moment ago for somebody else."""

    def resolve(self, ref: str) -> Domain:
        """The domain called `ref`: an id (digits), a UUID or a name, tried in
        virsh's order. Raises NoSuchDomain, NoLibvirt."""

    async def refresh(self) -> None:
        """Read libvirt and the kernel now rather than at the next interval."""

    def policies(self) -> tuple[PolicyText, ...]:
        """The installed policies, by name."""

    async def mark(self, ref: str, policy: str | None, weight: int | None) -> Domain:
        """Store the mark in the domain's metadata and act on it before returning.
        Raises NoSuchDomain, InvalidArgument, NoLibvirt."""

    async def unmark(self, ref: str) -> Domain:
        """Take the mark away and put the guest back as it was found."""

    async def preview(self, ref: str | None) -> tuple[Plan, list[dict[str, str | None]]]:
        """What is wanted, and the changes that reconciling would make now: [{actuator,
        key, now, wanted, reason, text}]. With `ref`, as if that domain were marked with the
        default mark. Changes nothing."""
