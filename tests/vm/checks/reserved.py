# SPDX-License-Identifier: Apache-2.0
"""Gangs on a host of which guests may have the second thread of each core alone (AllowedCPUs= of
machine.slice), beside tasks of the host on the first ones. Without the daemon."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from gangd.model.columns import host_caches
from gangd.model.topology import Topology
from vm.checks.inside import host
from vm.checks.inside.check import figure, note, run, wait_for
from vm.checks.inside.threads import Group, Rig, cpu_shares, spinning

OURS, HOSTS = (1, 3), (0, 2)  # of the cores 0-1 and 2-3
SECONDS, CORUN, ALONE = 3.0, 0.9, 0.95
ROOT = Path("/sys/fs/cgroup")

rig = Rig(OURS)
stack = contextlib.ExitStack()


def gangs() -> list[Group]:
    """Two groups of two threads, which may run on the guests' CPUs alone."""
    found = [stack.enter_context(spinning(name, *OURS)) for name in ("one", "two")]
    for group in found:
        for tid in group.tids:
            os.sched_setaffinity(tid, OURS)
    return found


def check_no_gang_domain_has_cpus_of_both() -> None:
    """The CPUs that guests may have and those that they may not are domains apart, also of one core."""
    (ROOT / "cgroup.subtree_control").write_text("+cpuset")
    (ROOT / "machine.slice").mkdir()
    (ROOT / "machine.slice/cpuset.cpus").write_text("1,3")
    topology = Topology.read()
    assert topology.guests == set(OURS)
    assert [tuple(cpu.id for cpu in piece) for piece in host_caches(topology)] == [HOSTS, OURS]


def check_gangs_run_together_there() -> None:
    """Two gangs on the guests' CPUs co-run for at least 0.9 of their time and have half of them each, beside
    busy tasks on the other thread of each core, which keep theirs."""
    groups, hogs = gangs(), [stack.enter_context(spinning(f"hog {cpu}", cpu, pinned=True)) for cpu in HOSTS]
    rig.schedule(*groups)
    time.sleep(0.5)
    everybody = [(group.pid, tid) for group in (*groups, *hogs) for tid in group.tids]
    with host.traced(tid for group in groups for tid in group.tids) as trace:
        shares = cpu_shares(everybody, SECONDS)
    note(", ".join(f"{share:.3f}" for share in shares))
    assert all(0.45 < share < 0.55 for share in shares[:4]) and min(shares[4:]) >= ALONE
    for group in groups:
        corun = trace.account(group.tids).share
        figure("reserved_corun", corun)
        note(f"{group.name}: {corun:.1%} together")
        assert corun >= CORUN


def check_unloads_clean() -> None:
    """The scheduler goes with the gangs."""
    assert rig.executor.undo().failures == ()
    stack.close()
    wait_for(lambda: not host.our_programs(), 5, "nothing of ours is in the kernel")


if __name__ == "__main__":
    run(__file__, dict(globals()))
