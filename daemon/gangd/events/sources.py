# SPDX-License-Identifier: Apache-2.0
"""The sources of guests that the configuration asks for: libvirt, KVM itself, or both.

libvirt ─▶ LibvirtSource ─┬─▶ emit      Resynced has the guests of both; a guest that libvirt has is libvirt's
KVM ─────▶ KvmSource ─────┘
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from gangd.config import Daemon
from gangd.errors import NoLibvirt, NoSuchDomain
from gangd.events.kvm import KvmSource
from gangd.events.kvm_reader import Unpinned
from gangd.events.libvirt import LibvirtSource
from gangd.model.affect import Affect
from gangd.model.domain import KVM, LIBVIRT, Domain, Mark
from gangd.model.event import Event, Resynced


class Source(Protocol):
    """Tells of guests as long as the daemon lives; what each call does and raises says LibvirtSource."""

    @property
    def troubles(self) -> tuple[str, ...]:
        """Return a sentence for each thing that cannot be read."""

    async def asked(self) -> None:
        """Returns when guests were read once or could not be."""

    def set_interval(self, seconds: float) -> None:
        """From now on read everything that often."""

    async def run(self, emit: Callable[[Event], None]) -> None:
        """Follow guests until cancelled."""

    async def resync(self) -> None:
        """Read everything now, and emit Resynced."""

    async def look(self) -> None:
        """Read everything that answers."""

    async def find(self, ref: str) -> Domain:
        """The guest called `ref`, read now."""

    async def set_mark(self, uuid: str, mark: Mark | None, affect: Affect | None = None) -> Domain:
        """Store or remove a mark."""

    async def change_mark(
        self, uuid: str, change: Callable[[Mark], Mark], affect: Affect | None = None
    ) -> Domain:
        """Replace the marks that there are."""


def source(
    settings: Daemon, root: Path, unpinned: Unpinned, chosen: Callable[[Domain], bool] = lambda _guest: True
) -> Source:
    """The sources that `[daemon] guests` names, as one. unpinned, chosen: as KvmSource has them."""
    libvirt = LibvirtSource(settings.libvirt_uri, root, settings.interval)
    if KVM not in settings.guests:
        return libvirt
    kvm = KvmSource(root, settings.interval, unpinned, chosen, LIBVIRT not in settings.guests)
    return Both(libvirt, kvm) if LIBVIRT in settings.guests else kvm


class Both:
    """libvirt's guests and those of KVM beside it. Where both may be meant, it is libvirt's."""

    def __init__(self, libvirt: LibvirtSource, kvm: KvmSource) -> None:
        self._libvirt, self._kvm = libvirt, kvm

    @property
    def troubles(self) -> tuple[str, ...]:
        """Return a sentence for each thing that cannot be read."""
        return (*self._libvirt.troubles, *self._kvm.troubles)

    async def asked(self) -> None:
        """Returns when both were read once or could not be."""
        await asyncio.gather(self._libvirt.asked(), self._kvm.asked())

    def set_interval(self, seconds: float) -> None:
        """From now on read everything that often."""
        self._libvirt.set_interval(seconds)
        self._kvm.set_interval(seconds)

    async def run(self, emit: Callable[[Event], None]) -> None:
        """Follow both until cancelled."""

        def emit_both(event: Event) -> None:
            if isinstance(event, Resynced):
                event = replace(event, domains=(*event.domains, *self._kvm.known.values()))
            emit(event)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._kvm.run(emit))
            tasks.create_task(self._run_libvirt(emit_both))

    async def _run_libvirt(self, emit: Callable[[Event], None]) -> None:
        """The first Resynced has everybody: settings of a guest that it does not have are undone."""
        await self._kvm.asked()
        await self._libvirt.run(emit)

    async def resync(self) -> None:
        """Read everything now, and emit Resynced."""
        await self._kvm.resync()
        await self._libvirt.resync()

    async def look(self) -> None:
        """Read everything that answers."""
        await self._kvm.look()
        await self._libvirt.look()

    async def find(self, ref: str) -> Domain:
        """The guest called `ref`, read now. Raises NoSuchDomain, NoLibvirt."""
        if ref in self._kvm.known:
            return await self._kvm.find(ref)
        try:
            return await self._libvirt.find(ref)
        except (NoSuchDomain, NoLibvirt) as error:
            try:
                return await self._kvm.find(ref)
            except NoSuchDomain:
                raise error from None

    async def set_mark(self, uuid: str, mark: Mark | None, affect: Affect | None = None) -> Domain:
        """Store or remove a mark where that guest has it."""
        return await self._of(uuid).set_mark(uuid, mark, affect)

    async def change_mark(
        self, uuid: str, change: Callable[[Mark], Mark], affect: Affect | None = None
    ) -> Domain:
        """Replace the marks that there are."""
        return await self._of(uuid).change_mark(uuid, change, affect)

    def _of(self, uuid: str) -> Source:
        return self._kvm if uuid in self._kvm.known else self._libvirt
