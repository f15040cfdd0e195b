# SPDX-License-Identifier: Apache-2.0
"""The ways to schedule the same guests that are compared, each as a user would ask for it."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence
from typing import Any

from bench.daemon import arranged
from bench.guest_pool import GuestPool
from bench.seeds.plan import MARKS
from lab.guests.domains import Guest


class Arms:
    """Puts guests under an arm, and out of it."""

    def __init__(self, client: Any, cpus: int) -> None:
        self._client = client
        self._cpus = set(range(cpus))
        self._marked: set[str] = set()
        self._arm = ""  # that the guests are under

    def enter(
        self, arm: str, pool: GuestPool, guests: Sequence[Guest], draw: random.Random
    ) -> tuple[float, list[str]]:
        """Let `guests` begin anew under the arm. `draw` chooses how (GuestPool.scatter).

        They are frozen while they are marked: beside busy guests the daemon would take long. Returns after
        how many seconds `adaptive` had decided, and the schedule of each guest. Raises NotArranged.
        """
        pool.only([])
        if arm not in MARKS:
            self.leave()
        if not self._marked:  # else the vCPUs' CPUs are gangd's affair
            self._place(guests, pinned=arm == "pinned")
        if arm in MARKS and arm != self._arm:
            for guest in guests:
                self._marked.add(guest.name)
                self._client.mark(guest.name, policy=arm)
            if arm != "adaptive":
                arranged(self._client, guests, arm)
        self._arm = arm
        pool.scatter(guests, draw, free=arm == "default")
        if arm == "default":
            self._place(guests, pinned=False)
        begin = time.monotonic()
        found = arranged(self._client, guests, arm) if arm in MARKS else []
        return time.monotonic() - begin, [summary["schedule"] for summary in found]

    def leave(self) -> None:
        """Take all marks away; the daemon has put the guests back when this returns."""
        while self._marked:
            self._client.unmark(self._marked.pop())
        self._arm = ""

    def _place(self, guests: Sequence[Guest], pinned: bool) -> None:
        """Give each vCPU all CPUs, or one: those of a guest have one after the other."""
        for number, guest in enumerate(guests):
            for vcpu, tid in guest.threads().items():
                cpu = (number * len(guest.threads()) + vcpu) % len(self._cpus)
                os.sched_setaffinity(tid, {cpu} if pinned else self._cpus)
