# SPDX-License-Identifier: Apache-2.0
"""The scenarios that `make sim` simulates without options."""

from __future__ import annotations

from gangsim.costs import WITH_LINES
from gangsim.scenario import Guest, Host, Scenario, Task

LAB = Host(cpus=2, threads=1, llc_cpus=2)


def standard() -> list[tuple[Scenario, int]]:
    """Scenarios and the number of seeds of each: the lab's, then what the lab has no room for.

    The last is 10,000 vCPUs on 1,024 CPUs for half a minute.
    """
    found = [(_lab("barrier", guests), 5) for guests in (2, 4, 8)]
    found += [(_lab(load, 4), 5) for load in ("spin", "ipi", "sleep")]
    widths, loads = (2, 4, 8, 16), ("barrier", "ipi", "spin", "sleep")
    mixed = tuple(Guest(loads[n % 4], widths[n // 4 % 4]) for n in range(40))
    weighted = tuple(Guest("barrier", 4, weight) for weight in (100, 200, 400, 100, 200, 400))
    return [
        *found,
        (Scenario("weights", Host(8, 2, 8), weighted, seconds=30), 3),
        *((one, 1) for one in _unlike()),
        (Scenario("mixed-64", Host(64, 2, 16), mixed, seconds=10, costs=WITH_LINES), 1),
        (
            Scenario(
                "strict-64", Host(64, 2, 16), mixed, 10, mode="strict", costs=WITH_LINES, schedulers=("gang",)
            ),
            1,
        ),
        (
            Scenario("wide-256", Host(256, 2, 32), (Guest("barrier", 16),) * 48, seconds=3, costs=WITH_LINES),
            1,
        ),
        (Scenario("large", Host(1024, 2, 64), (Guest("barrier", 10),) * 1000, seconds=30), 1),
    ]


def _unlike() -> list[Scenario]:
    """Guests that are not alike, and ordinary tasks beside them."""
    host, two = Host(4, 1, 4), (Guest("barrier", 4),) * 2
    thin = (Guest("barrier", 8, busy=1), Guest("barrier", 8))
    disk = Task("cycle", 2, work_us=50, sleep_us=950, name="disk")
    shell = Task("chain", work_us=500, name="shell")
    return [
        Scenario("thin", Host(8, 1, 8), thin),
        Scenario("hogs", host, two, tasks=(Task("hog", 2),)),
        Scenario("disk", host, two, tasks=(disk, shell)),
        Scenario("ple", host, tuple(Guest("barrier", 4, ple=True) for _ in range(3))),
    ]


def _lab(load: str, guests: int) -> Scenario:
    return Scenario(f"{load}-{guests}", LAB, (Guest(load, 2),) * guests, seconds=10)
