# SPDX-License-Identifier: Apache-2.0
"""All parties of the tile while they run: what works for the guests rests while these are frozen."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from bench.guest_pool import GuestPool
from bench.tile.backup import Backup
from bench.tile.memory import IdleMemory
from bench.tile.parties import Party
from bench.tile.web import Client
from lab.guests.domains import Guest


class Tile(GuestPool):
    """The guests in the order of their parties, the client of web, the host's task."""

    def __init__(self, parties: Iterable[Party], guests: list[Guest], backup: Backup) -> None:
        super().__init__(guests)
        self.parties = dict(zip(parties, guests, strict=True))
        self.backup = backup
        self.client = Client()
        self.client.start()
        self._seed = 0  # of the client's moments
        self._idle: IdleMemory | None = None

    def only(self, awake: Iterable[Guest]) -> None:
        """Let these run and freeze the others; if all are frozen, client and task rest, too."""
        awake = list(awake)
        self.client.rest()
        if not awake:
            self.backup.stop()
        super().only(awake)
        if awake:
            self.client.wake(self._seed)
            self.backup.go_on()

    def scatter(self, awake: Sequence[Guest], draw: random.Random, free: bool = True) -> None:
        """Let all begin anew; `draw` chooses the client's moments, too."""
        self._seed = draw.getrandbits(32)
        super().scatter(awake, draw, free)

    def idle(self, guest: Guest) -> IdleMemory:
        """Return the memory of the guest idle."""
        self._idle = self._idle or IdleMemory(guest.name, guest.pid)
        return self._idle

    def threads(self) -> set[int]:
        """Return the threads of all vCPUs, and the host's task."""
        return {self.backup.tid, *(tid for guest in self.guests for tid in guest.threads().values())}

    def close(self) -> None:
        """End them all."""
        self.client.close()
        self.backup.close()
        if self._idle:
            self._idle.close()
        super().close()
