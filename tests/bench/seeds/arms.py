# SPDX-License-Identifier: Apache-2.0
"""The ways to schedule the same guests that are compared, each as a user would ask for it."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Mapping, Sequence
from typing import Any

from bench.daemon import arranged, listed
from bench.guest_pool import GuestPool
from bench.seeds.plan import MARKS
from lab.guests.domains import Guest


class Arms:
    """Puts guests under an arm, and out of it. bystanders: the names of the guests that get no mark."""

    # By arm the policy that the mark names; None: the mark leaves the choice to gangd.
    marks: Mapping[str, str | None] = {policy: policy for policy in MARKS}

    def __init__(self, client: Any, cpus: int, bystanders: frozenset[str] = frozenset()) -> None:
        self._client = client
        self._cpus = set(range(cpus))
        self._bystanders = bystanders
        self._marked: set[str] = set()
        self._arm = ""  # that the guests are under

    def enter(
        self, arm: str, pool: GuestPool, guests: Sequence[Guest], draw: random.Random
    ) -> tuple[float, list[str]]:
        """Let `guests` begin anew under the arm. `draw` chooses how (GuestPool.scatter).

        They are frozen while they are marked: beside busy guests the daemon would take long. Returns after
        how many seconds gangd had chosen, where it may, and the schedule of each guest. Raises NotArranged.
        """
        pool.only([])
        policy = self.marks.get(arm)
        ordered, entered = policy not in (None, "adaptive"), arm in self.marks and arm != self._arm
        ours = [guest for guest in guests if guest.name not in self._bystanders]
        if arm not in self.marks:
            self.leave()
        if not self._marked:  # else the vCPUs' CPUs are gangd's affair
            self._place(guests, pinned=arm == "pinned")
        if entered:
            for guest in ours:
                self._marked.add(guest.name)
                self._client.mark(guest.name, policy=policy)
            if ordered:
                arranged(self._client, ours, arm)
        self._arm = arm
        pool.scatter(guests, draw, free=arm == "default")
        if arm == "default":
            self._place(guests, pinned=False)
        begin = time.monotonic()
        if ordered:
            arranged(self._client, ours, arm)
        elif arm in self.marks:
            self._choice(ours, entered)
        return time.monotonic() - begin, [entry["schedule"] for entry in listed(self._client, guests)]

    def _choice(self, guests: Sequence[Guest], _entered: bool) -> None:
        """Wait for gangd's choice. Raises NotArranged."""
        arranged(self._client, guests, "adaptive")

    def leave(self) -> None:
        """Take all marks away; the daemon has put the guests back when this returns."""
        while self._marked:
            self._client.unmark(self._marked.pop())
        self._arm = ""

    def _place(self, guests: Sequence[Guest], pinned: bool) -> None:
        """Give each vCPU all CPUs, or one: those of all guests have one after the other."""
        tids = [tid for guest in guests for _, tid in sorted(guest.threads().items())]
        for number, tid in enumerate(tids):
            os.sched_setaffinity(tid, {number % len(self._cpus)} if pinned else self._cpus)
