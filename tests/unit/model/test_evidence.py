# SPDX-License-Identifier: Apache-2.0
"""Two readings make rates; what either does not know stays unknown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fakes import GANG
from gangd.model.evidence import Evidence, compare
from gangd.model.snapshot import DomainStats, VcpuStats


def reading(pause: int | None, lhp: int | None, run: float | None, corun: float | None) -> DomainStats:
    halves = [None if value is None else value // 2 for value in (pause, lhp)]
    vcpus = tuple(VcpuStats(n, pause_exits=halves[0], lhp_exits=halves[1]) for n in (0, 1))
    return DomainStats("web", vcpus, run, corun)


def test_rates() -> None:
    """All vCPUs added up, per second; co-run as a share of the run time between the two."""
    found = compare(reading(100, 20, 10.0, 9.0), reading(300, 60, 14.0, 10.0), 2.0)
    assert found == Evidence(2.0, 100.0, 20.0, 0.25, run_per_second=2.0)
    assert found.apart_ratio == 0.75


def test_a_guest_that_hardly_runs_is_hardly_apart() -> None:
    """Shares are of a tenth of the time at least; an unknown time gives no share."""
    found = Evidence(2.0, corun_ratio=0.5, run_per_second=0.01, cpu_per_second=0.01, delay_per_second=0.04)
    assert (found.apart_ratio, found.waited_ratio) == (pytest.approx(0.05), pytest.approx(0.4))
    assert (Evidence().apart_ratio, Evidence().waited_ratio) == (None, None)


def test_throttling_is_no_contention() -> None:
    """A vCPU that its own cpu.max held off, by its group or by the scheduler of gangs, waited for nobody."""

    def of(delay: float, held: dict[str, float], turns: float | None = None) -> DomainStats:
        gang = None if turns is None else replace(GANG, throttled_seconds=turns)
        vcpus = (VcpuStats(0, 1, cpu_seconds=delay, run_delay_seconds=delay),)
        return DomainStats("web", vcpus, throttled=held, gang=gang)

    for before, after, delay in (
        (of(10.0, {"a": 5.0}), of(12.0, {"a": 6.5}), 0.25),
        (of(10.0, {"a": 5.0}), of(12.0, {"a": 9.0}), 0.0),  # another task's of that group
        (of(10.0, {}), of(12.0, {"a": 9.0}), 1.0),  # a limit that is new has a past
        (of(10.0, {}, 3.0), of(12.0, {}, 4.5), 0.25),
        (of(10.0, {}, 3.0), of(12.0, {}, 0.5), 1.0),  # the scheduler was loaded anew
    ):
        found = replace(compare(before, after, 2.0), corun_ratio=0.5, run_per_second=1.0)
        assert found.delay_per_second == delay
        assert found.apart_ratio == (None if delay < 1.0 else 0.5)


def test_nothing_to_compare_with() -> None:
    """A first reading, or two at once, are no evidence."""
    assert compare(None, reading(1, 1, 1.0, 1.0), 2.0) == Evidence()
    assert compare(reading(1, 1, 1.0, 1.0), reading(1, 1, 1.0, 1.0), 0.0) == Evidence()


def test_unknown_stays_unknown() -> None:
    """No probe in either reading: None, not zero."""
    found = compare(reading(None, None, None, None), reading(2, 2, 1.0, 1.0), 1.0)
    assert found == Evidence(1.0, None, None, None)


def test_probes_that_were_reloaded() -> None:
    """A counter that went backwards tells nothing."""
    found = compare(reading(100, 100, 10.0, 10.0), reading(2, 2, 1.0, 1.0), 1.0)
    assert (found.pause_per_second, found.lhp_per_second, found.corun_ratio) == (None, None, None)


def test_vcpus_that_come_go_or_cannot_be_read() -> None:
    """Rates are of the vCPUs that both readings have, each by its thread."""

    def of(*vcpus: tuple[int, int, float | None]) -> DomainStats:
        return DomainStats("web", tuple(VcpuStats(n, tid, cpu_seconds=cpu) for n, tid, cpu in vcpus))

    both = of((0, 10, 5.0), (1, 11, 70.0))
    for after in (of((0, 10, 6.0)), of((0, 10, 6.0), (1, 99, 30.0)), of((0, 10, 6.0), (1, 11, None))):
        assert compare(both, after, 1.0).cpu_per_second == 1.0
    assert compare(of((0, 10, 5.0)), of((0, 99, 6.0)), 1.0).cpu_per_second is None


def test_a_guest_that_did_not_run() -> None:
    """No run time, no share of it."""
    assert compare(reading(0, 0, 5.0, 4.0), reading(0, 0, 5.0, 4.0), 1.0).corun_ratio is None
