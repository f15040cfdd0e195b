# SPDX-License-Identifier: Apache-2.0
"""libvirt guests on a kernel without sched_ext: the daemon has them scheduled by gang.ko."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

from lab.observe import module
from vm.checks.inside import host, service
from vm.checks.inside.check import SHARE, note, run, undisturbed, wait_for
from vm.checks.inside.guest import Guests

NAMES = ("m0", "m1")
LOOKS = 50
# Windows of 4 s have 0.81 to 0.94 of co-run (13 windows, median 0.92), as the module lets the fair class
# choose for a tenth of the time. The check judges the mean.
SECONDS = 16.0
FOLLOW_SECONDS = 30.0
MODULES = Path("/lib/modules") / os.uname().release

# The unit as the package gangd installs it, on a kernel for which there is no gang.ko.
service.configure("")
alone = service.start("restart")
time.sleep(5.0)
without = alone.status()
restarts = host.systemctl("show", "--property=NRestarts", "--value", "gangd")

(MODULES / "updates").mkdir(exist_ok=True)
shutil.copy(SHARE / "gang.ko", MODULES / "updates")
subprocess.run(["depmod", "-a"], check=True)
module.allow(SHARE)
service.configure('[scheduler]\nbackend = "module"\n')
guests = Guests()
client = service.start("restart")


def fresh() -> None:
    """Two guests that are left to the default scheduler, each vCPU on a CPU of its own."""
    guests.keep_only()
    for name in NAMES:
        guests.start(name, "spin")
        for vcpu in guests[name].threads():
            guests[name].pin(vcpu, vcpu)


def tids(name: str) -> list[int]:
    """A guest's vCPU threads."""
    return list(guests[name].threads().values())


def corun() -> dict[str, float]:
    """Return by guest the tracer's share of its run time in which none of its vCPUs waited."""
    with host.traced(tid for name in NAMES for tid in tids(name)) as trace:
        time.sleep(SECONDS)
    return {name: trace.account(tids(name)).share for name in NAMES}


def real_time() -> set[int]:
    """Threads of the guests' processes that are real-time."""
    found = set()
    for guest in guests.values():
        for task in Path(f"/proc/{guest.pid}/task").iterdir():
            if os.sched_getscheduler(int(task.name)) & 3 != os.SCHED_OTHER:
                found.add(int(task.name))
    return found


def seen_real_time() -> bool:
    """True if a thread of the guests is real-time at one of some moments. This thread looks at a higher
    real-time priority: an ordinary task only runs while no guest is favoured."""
    os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(50))
    try:
        for _ in range(LOOKS):
            if real_time():
                return True
            time.sleep(0.01)
        return False
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def check_gangd_runs_without_gang_ko() -> None:
    """gangd counts and places guests without gang.ko, and says what is missing."""
    reason = without["backend"]["reason"]
    assert not without["backend"]["usable"] and "there is no /dev/gang" in reason, reason
    assert restarts == "0", restarts


def check_marked_guests_are_coscheduled_by_the_module() -> None:
    """Each of two marked guests that fight for the CPUs is without a vCPU of its own for 0.15 of its time at
    most, with scheduler.backend = "module" and gang.ko where modprobe finds it: nine of ten slots are
    whole, and `gangctl status` says which backend that is."""
    # The bar is absolute: the default scheduler has 0.5 where its CPUs switch at random, and anything from 0
    # to 0.97 where chance keeps them in step.
    default = undisturbed(corun)
    for name in NAMES:
        client.mark(name, policy="relaxed")
    wait_for(
        lambda: set(service.gang_counters(client)) == set(NAMES), FOLLOW_SECONDS, "both guests are gangs"
    )
    before, began = service.gang_counters(client), time.monotonic()
    marked = undisturbed(corun)
    after, passed = service.gang_counters(client), 2 * (time.monotonic() - began)
    note(f"co-run by default {default}, by the module {marked}")
    ran, apart = (
        sum(after[name][key] - before[name][key] for name in NAMES)
        for key in ("run_seconds", "apart_seconds")
    )
    note(f"the guests ran for {ran:.1f} CPU seconds of {passed:.1f}, {apart:.1f} of them outside their slots")
    for name in NAMES:
        number, started = (after[name][key] - before[name][key] for key in ("turns", "whole"))
        note(f"{name}: {started} of {number} slots whole")
        assert number > 20 and started >= 0.9 * number
        assert marked[name] >= 0.85
    words = ["gangctl", "status", "--json"]
    backend = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)["backend"]
    note(f"{backend['name']}: {backend['reason']}")
    assert (backend["name"], backend["active"]) == ("module", True)


def check_stopped_nobody_is_real_time() -> None:
    """While the guests are gangs their vCPUs are seen real-time. Stopping the daemon ends that at once and
    for good, they run on, and the module can be unloaded."""
    wait_for(
        lambda: set(service.gang_counters(client)) == set(NAMES), FOLLOW_SECONDS, "both guests are gangs"
    )
    assert seen_real_time()
    host.systemctl("stop", "gangd")
    for _ in range(LOOKS):
        assert not real_time()
        time.sleep(0.02)
    assert all(guest.progress(2.0) > 0 for guest in guests.values())
    subprocess.run(["rmmod", "gang"], check=True)
    guests.keep_only()


if __name__ == "__main__":
    fresh()
    run(__file__, dict(globals()), lost=guests.lost, fresh=fresh)
