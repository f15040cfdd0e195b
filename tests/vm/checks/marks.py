# SPDX-License-Identifier: Apache-2.0
"""A thousand marks and unmarks of one libvirt guest, as gangctl sends them over D-Bus, beside another that
stays a gang. Each is a write to libvirt, a plan, and a change of the scheduler's maps.

The client is in this process: starting gangctl takes the lab's CPUs longer than a mark does.
"""

from __future__ import annotations

import statistics
import time

from vm.checks.inside import host, service
from vm.checks.inside.check import note, run, wait_for
from vm.checks.inside.guest import Guests, differences

TOGGLED, OTHER = "t0", "t1"
CHANGES, LOOK = 1000, 100
RSS_GROWTH_MAX = 5 * (2 << 20) // 9  # of the second half: 2.3 KiB a change; an arena of Python's has 1 MiB
FOLLOW_SECONDS, LOAD_SECONDS, RUN_SECONDS = 30.0, 90.0, 3.0
FREE = ((0, 1), (0, 1))  # affinities

guests = Guests()
client = service.start()


def fresh() -> None:
    """Start one guest unmarked and one that is marked. One vCPU of each is halted for good: the check does
    not measure how long gangd waits for a CPU."""
    guests.keep_only()
    for name in (TOGGLED, OTHER):
        guests.start(name, "halt")
    client.mark(OTHER, policy="relaxed")
    wait_for(lambda: OTHER in service.gang_counters(client), LOAD_SECONDS, "the other guest is a gang")


def resident() -> int:
    """Bytes of gangd in memory."""
    return int(client.status()["own"]["resident_bytes"])


def check_a_thousand_marks() -> None:
    """A guest is marked and unmarked a thousand times: each is done when it is answered, the kernel ejects
    no scheduler, gangd does not grow, the guest stays unpinned, both guests get on, and the other
    has been a gang all the while."""
    guest, settings = guests[TOGGLED], guests[TOGGLED].settings()
    ejections = client.status()["backend"]["detail"]["ejections"]
    ran = service.gang_counters(client)[OTHER]["run_seconds"]
    began = {name: each.iterations() for name, each in guests.items()}
    marks, unmarks, rss = list[float](), list[float](), list[int]()
    for number in range(CHANGES // 2):
        if 2 * number % LOOK == 0:
            rss.append(resident())
        begin = host.now()
        client.mark(TOGGLED, policy="relaxed")
        marks.append(host.now() - begin)
        assert guest.affinities() == FREE, f"mark {number}"
        begin = host.now()
        client.unmark(TOGGLED)
        unmarks.append(host.now() - begin)
        assert guest.affinities() == FREE, f"unmark {number}"
    rss.append(resident())
    grown = rss[-1] - rss[len(rss) // 2]
    for what, times in (("mark", marks), ("unmark", unmarks)):
        note(f"a {what} took {statistics.median(times) * 1e3:.0f} ms, the longest {max(times):.1f} s")
    note(f"gangd's KiB, every {LOOK} changes: {', '.join(str(size >> 10) for size in rss)}")
    client.refresh()
    status = client.status()
    assert status["failures"] == []
    assert status["backend"]["detail"]["ejections"] == ejections
    assert grown <= RSS_GROWTH_MAX
    changed = differences(settings, guest.settings())
    assert not changed, changed
    assert service.gang_counters(client)[OTHER]["run_seconds"] > ran
    assert all(each.iterations() > began[name] for name, each in guests.items())


def check_it_is_a_gang_again() -> None:
    """Marked once more it is a gang, and its member that is awake runs. (A turn takes two of them.)"""
    client.mark(TOGGLED, policy="relaxed")
    wait_for(lambda: TOGGLED in service.gang_counters(client), FOLLOW_SECONDS, "it is a gang")
    before = service.gang_counters(client)[TOGGLED]["run_seconds"]
    time.sleep(RUN_SECONDS)
    ran = service.gang_counters(client)[TOGGLED]["run_seconds"] - before
    note(f"ran for {ran:.2f} s of {RUN_SECONDS:g} s")
    assert ran >= 0.8 * RUN_SECONDS


def check_gone() -> None:
    """The scheduler goes with the guests."""
    guests.go()


if __name__ == "__main__":
    fresh()
    run(__file__, dict(globals()), lost=guests.lost, fresh=fresh)
