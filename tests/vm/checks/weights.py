# SPDX-License-Identifier: Apache-2.0
"""The weights and caps that `virsh schedinfo` sets hold for two marked libvirt guests that are gangs and want
all of both CPUs."""

from __future__ import annotations

import subprocess
import time

from gangd.measure.proc import read_thread
from vm.checks.inside import host, service
from vm.checks.inside.check import note, run, undisturbed, wait_for
from vm.checks.inside.guest import Guests

NAMES = ("w0", "w1")
WINDOWS = 3
WEIGHT_SECONDS, CAP_SECONDS, SETTLE_SECONDS = 8.0, 6.0, 1.5
CPUS = 2
LOAD_SECONDS = 90.0  # a mark, and the kernel verifies the scheduler
PERIOD, QUOTA = 100_000, 25_000  # microseconds: of each vCPU a quarter of a CPU
NO_QUOTA, WEIGHT = -1, 100

guests = Guests()
client = service.start()


def fresh() -> None:
    """Two marked guests."""
    guests.keep_only()
    for name in NAMES:
        guests.start(name, "spin")
        client.mark(name, policy="relaxed")
    wait_for(lambda: host.scheduler() == "enabled", LOAD_SECONDS, "the scheduler is loaded")


def schedinfo(name: str, *settings: str) -> None:
    """Set a running guest's scheduler parameters with `virsh schedinfo`, as an administrator does."""
    subprocess.run(["virsh", "schedinfo", name, "--live", *settings], check=True, capture_output=True)


def used(seconds: float) -> list[float]:
    """CPU seconds that each guest's vCPUs get, a second."""
    tids = {name: (guest.pid, guest.threads().values()) for name, guest in guests.items()}

    def total(name: str) -> float:
        pid, found = tids[name]
        return sum(read_thread(pid, tid).cpu_seconds or 0.0 for tid in found)

    before, begin = [total(name) for name in NAMES], host.now()
    time.sleep(seconds)
    after, passed = [total(name) for name in NAMES], host.now() - begin
    return [(b - a) / passed for a, b in zip(before, after, strict=True)]


def check_cpu_shares_are_met() -> None:
    """cpu_shares 1:2 of two marked guests gives them CPU time 1:2 within 3%, in each of three windows,
    whatever other tasks take of the CPUs, and 1:1 when they are alike again."""
    schedinfo("w1", f"cpu_shares={2 * WEIGHT}")
    try:
        time.sleep(SETTLE_SECONDS)
        windows = [undisturbed(lambda: used(WEIGHT_SECONDS)) for _ in range(WINDOWS)]
    finally:
        schedinfo("w1", f"cpu_shares={WEIGHT}")
    for one, two in windows:
        others = CPUS - one - two
        note(f"cpu_shares 1:2 got {one:.3f} and {two:.3f} CPUs, others {others:.3f}: 1:{two / one:.3f}")
    time.sleep(SETTLE_SECONDS)
    first, second = undisturbed(lambda: used(CAP_SECONDS / 2))
    note(f"1:1 got {first:.3f} and {second:.3f} CPUs")
    assert all(abs(two / one - 2.0) <= 0.06 for one, two in windows)
    assert abs(second / first - 1.0) <= 0.1


def check_a_quota_is_kept() -> None:
    """A marked guest with a vcpu_quota of a quarter of a CPU gets that for each vCPU within 5%, although its
    share would be more, and the other guest has what it leaves; without the quota it has its half."""
    schedinfo("w0", f"vcpu_period={PERIOD}", f"vcpu_quota={QUOTA}")
    try:
        time.sleep(SETTLE_SECONDS)
        capped, rest = undisturbed(lambda: used(CAP_SECONDS))
    finally:
        schedinfo("w0", f"vcpu_quota={NO_QUOTA}")
    time.sleep(SETTLE_SECONDS)
    free, _ = used(CAP_SECONDS / 2)
    allowed = 2 * QUOTA / PERIOD
    note(f"{capped:.3f} of {allowed:.3f} CPUs, the other guest {rest:.3f}; without the quota {free:.3f}")
    assert abs(capped / allowed - 1.0) <= 0.05
    assert rest >= 0.8 * (2 - allowed)
    assert free >= 1.5 * allowed


def check_gone() -> None:
    """The scheduler goes with the guests."""
    guests.go()


if __name__ == "__main__":
    fresh()
    run(__file__, dict(globals()), lost=guests.lost, fresh=fresh)
