# SPDX-License-Identifier: Apache-2.0
"""Marked libvirt guests beside a real-time task that never sleeps: for some seconds, and for so long that the
kernel ejects the scheduler.

Both guests' vCPUs spin at a barrier, so that neither gets on without its sibling.
"""

from __future__ import annotations

import time

from vm.checks.inside import host, service
from vm.checks.inside.check import note, run, wait_for
from vm.checks.inside.guest import Guests
from vm.checks.inside.threads import hog

NAMES = ("s0", "s1")
HOG_SECONDS, WATCHDOG_SECONDS = 4.0, 10.0
FOLLOW_SECONDS, PROGRESS_SECONDS, RETURN_SECONDS = 30.0, 10.0, 90.0
NOTICE_SECONDS = 30.0  # an ejection is noticed at the next measurement
TURNS_SECONDS, WHOLE = 3.0, 0.8

guests = Guests()
service.configure("")  # as it is: an ejection has to be noticed in time by default
client = service.start("restart")


def fresh() -> None:
    """Two marked guests, scheduled as gangs."""
    guests.keep_only()
    for name in NAMES:
        guests.start(name, "barrier")
        client.mark(name, policy="relaxed")
    wait_for(lambda: set(service.gang_counters(client)) == set(NAMES), RETURN_SECONDS, "both are gangs")


def identities() -> list[tuple[int, int]]:
    """Return the guests' libvirt IDs and PIDs, all of which a restart would change."""
    return [(guest.domain.ID(), guest.pid) for guest in guests.values()]


def ejections() -> int:
    """Return how often the kernel has ejected the scheduler."""
    return int(client.status()["backend"]["detail"]["ejections"])


def get_on(seconds: float) -> float:
    """Return the seconds until every guest has made progress."""
    before = {name: guest.iterations() for name, guest in guests.items()}

    def all_did() -> bool:
        return all(guest.iterations() > before[name] for name, guest in guests.items())

    return wait_for(all_did, seconds, "every guest gets on")


def whole_turns() -> float:
    """The worse guest's share of turns in which its vCPUs were on CPU at once."""
    before = service.gang_counters(client)
    time.sleep(TURNS_SECONDS)
    after = service.gang_counters(client)
    shares = list[float]()
    for name in NAMES:
        turns, whole = (after[name][key] - before[name][key] for key in ("turns", "whole"))
        note(f"{name}: {whole} of {turns} turns whole")
        assert turns > 10
        shares.append(whole / turns)
    return min(shares)


def check_a_real_time_task_for_some_seconds() -> None:
    """A real-time task has one of the guests' CPUs for some seconds: the scheduler stays in, and with the
    task gone both guests get on, are the same processes and their turns are whole as before."""
    before, were = identities(), ejections()
    with hog(1):
        time.sleep(HOG_SECONDS)
        assert host.scheduler() == "enabled"
    note(f"both got on {get_on(PROGRESS_SECONDS):.1f} s after the task had gone")
    client.refresh()
    assert ejections() == were
    assert identities() == before
    assert whole_turns() >= WHOLE


def check_a_stall_ejects_and_the_guests_live() -> None:
    """A real-time task has a CPU, to which its owner pinned one vCPU, for longer than the kernel's watchdog
    waits: the scheduler is ejected, gangd says so, and with the task gone both guests get on and are gangs
    again; they are the same processes."""
    before, were = identities(), ejections()
    guests[NAMES[0]].pin(1, 1)
    with hog(1):
        patience = 2.5 * WATCHDOG_SECONDS
        seconds = wait_for(lambda: host.scheduler() == "disabled", patience, "the scheduler is ejected")
    guests[NAMES[0]].pin(1, 0, 1)
    note(f"ejected after {seconds:.1f} s; both got on {get_on(PROGRESS_SECONDS):.1f} s later")
    wait_for(lambda: host.scheduler() == "enabled", NOTICE_SECONDS + RETURN_SECONDS, "loaded again")
    wait_for(lambda: client.status()["backend"]["active"], FOLLOW_SECONDS, "gangd says it is active")
    status = client.status()["backend"]
    note(status["reason"])
    assert "ejected by the kernel" in status["reason"]
    assert ejections() > were
    wait_for(lambda: set(service.gang_counters(client)) == set(NAMES), FOLLOW_SECONDS, "both are gangs")
    get_on(PROGRESS_SECONDS)
    assert identities() == before
    assert whole_turns() >= WHOLE


def check_gone() -> None:
    """The scheduler goes with the guests."""
    guests.go()


if __name__ == "__main__":
    fresh()
    run(__file__, dict(globals()), lost=guests.lost, fresh=fresh)
