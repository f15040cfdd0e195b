# SPDX-License-Identifier: Apache-2.0
"""The ways to schedule the tile, each as a user would ask for it: some guests stay without a mark."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence
from typing import Any

from bench.daemon import NotArranged, arranged, is_arranged, listed
from bench.driver import say
from bench.guest_pool import GuestPool
from bench.seeds.arms import Arms
from bench.tile.plan import MARKS
from lab.guests.domains import Guest

STEADY_SECONDS = 15.0  # of the same schedules, until gangd's own choice is taken for made
CHOICE_SECONDS = 240.0
POLL_SECONDS = 1.0


class TileArms(Arms):
    """Puts all guests under an arm, and out of it. bystanders: the names of the guests that get no mark."""

    def __init__(self, client: Any, cpus: int, bystanders: set[str]) -> None:
        super().__init__(client, cpus)
        self._bystanders = bystanders

    def enter(
        self, arm: str, pool: GuestPool, guests: Sequence[Guest], draw: random.Random
    ) -> tuple[float, list[str]]:
        """Let `guests` begin anew under the arm, as Arms does. Raises NotArranged."""
        pool.only([])
        if arm not in MARKS:
            self.leave()
        ours = [guest for guest in guests if guest.name not in self._bystanders]
        if not self._marked:  # else the vCPUs' CPUs are gangd's affair
            self._place(guests, pinned=arm == "pinned")
        entered = arm in MARKS and arm != self._arm
        if entered:
            for guest in ours:
                self._marked.add(guest.name)
                self._client.mark(guest.name, policy=MARKS[arm])
            if MARKS[arm]:
                arranged(self._client, ours, arm)
        self._arm = arm
        pool.scatter(guests, draw, free=arm == "default")
        if arm == "default":
            self._place(guests, pinned=False)
        begin = time.monotonic()
        if MARKS.get(arm):
            arranged(self._client, ours, arm)
        elif entered:
            self._choice(ours)
        return time.monotonic() - begin, [entry["schedule"] for entry in listed(self._client, guests)]

    def _choice(self, guests: Sequence[Guest]) -> None:
        """Wait until gangd has chosen for each guest, and has kept to it for a while. Raises NotArranged."""
        begin = since = time.monotonic()
        before: list[str] = []
        while time.monotonic() - since < STEADY_SECONDS:
            found = listed(self._client, guests)
            now = [entry["schedule"] for entry in found if is_arranged(entry, "adaptive")]
            if now != before or len(now) < len(guests):
                if now != before:
                    say(f"gangd's choice after {time.monotonic() - begin:.0f} s: {', '.join(now)}")
                before, since = now, time.monotonic()
            if time.monotonic() - begin > CHOICE_SECONDS:
                said = "; ".join(f"{e['name']} {e['schedule']}: {e['schedule_reason']}" for e in found)
                raise NotArranged(f"plain: no choice that stays within {CHOICE_SECONDS:.0f} s: {said}")
            time.sleep(POLL_SECONDS)

    def _place(self, guests: Sequence[Guest], pinned: bool) -> None:
        """Give each vCPU all CPUs, or one: those of all guests have one after the other."""
        number = 0
        for guest in guests:
            for _, tid in sorted(guest.threads().items()):
                cpu = number % len(self._cpus)
                os.sched_setaffinity(tid, {cpu} if pinned else self._cpus)
                number += 1
