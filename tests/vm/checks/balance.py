# SPDX-License-Identifier: Apache-2.0
"""Guests marked `balance`, of which two vCPUs never wait for one CPU, among others that want the CPUs too."""

from __future__ import annotations

import os
import time

from vm.checks.inside import host, service
from vm.checks.inside.check import note, run, wait_for
from vm.checks.inside.guest import Guests

BALANCED, OTHERS = ("b0", "b1"), ("o0", "o1")
SECONDS, PERIOD_SECONDS = 4.0, 0.02

guests = Guests()
client = service.start()


def fresh() -> None:
    """Four guests; those to be balanced are confined as badly as can be."""
    guests.keep_only()
    for name in (*BALANCED, *OTHERS):
        guests.start(name, "spin")
    for number, name in enumerate(BALANCED):
        for vcpu in guests[name].threads():
            guests[name].confine(vcpu, number)


def stacked() -> dict[str, float]:
    """Return by guest the share of looks at which both vCPUs were on one CPU's queue."""
    tids = {name: (guests[name].pid, list(guests[name].threads().values())) for name in BALANCED}
    counts, looks, end = dict.fromkeys(BALANCED, 0), 0, time.monotonic() + SECONDS
    while time.monotonic() < end:
        looks += 1
        for name, (pid, found) in tids.items():
            counts[name] += len({host.processor(pid, tid) for tid in found}) < len(found)
        time.sleep(PERIOD_SECONDS)
    assert looks >= 20
    return {name: count / looks for name, count in counts.items()}


def check_siblings_are_never_stacked() -> None:
    """Once two of four guests are marked `balance`, the vCPUs of each have CPUs of their own and are never on
    one queue, whatever they were before; also while the other two are gangs. All four get on, and `balance`
    alone loads no scheduler."""
    before = stacked()
    for name in BALANCED:
        client.mark(name, policy="balance")
    alone = stacked()
    assert host.scheduler() == "disabled"
    for name in OTHERS:
        client.mark(name, policy="relaxed")
    wait_for(lambda: host.scheduler() == "enabled", 90.0, "the scheduler is loaded")
    beside = stacked()
    note(f"stacked before {before}, balanced {alone}, beside gangs {beside}")
    for name in BALANCED:
        masks = [os.sched_getaffinity(tid) for tid in guests[name].threads().values()]
        assert not set.intersection(*masks)
        assert (before[name], alone[name], beside[name]) == (1.0, 0.0, 0.0)
    done = {name: guest.iterations() for name, guest in guests.items()}
    for name, guest in guests.items():
        wait_for(lambda g=guest, n=name: g.iterations() > done[n], 5.0, f"{name} gets on")  # type: ignore[misc]


def check_gone() -> None:
    """Everything of ours goes with the guests."""
    guests.go()


if __name__ == "__main__":
    fresh()
    run(__file__, dict(globals()), lost=guests.lost, fresh=fresh)
