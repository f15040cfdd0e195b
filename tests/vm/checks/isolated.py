# SPDX-License-Identifier: Apache-2.0
"""Checks of gangd's scheduler beside an isolated CPU, without the daemon.

check_      however the CPU is isolated
isolcpus_   booted with isolcpus=1
partition_  booted with nohz_full=1 isolcpus=managed_irq,1; a cpuset partition isolates
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from gangd import bpf
from gangd.actuate import preflight, sched_ext
from gangd.actuate.backend import LoadFailed
from gangd.model.topology import Topology
from vm.checks.inside import host
from vm.checks.inside.check import note, run
from vm.checks.inside.threads import Group, busy, cpu_shares, spinning

ISOLCPUS = "isolcpus=1" in Path("/proc/cmdline").read_text().split()
# word for word: an administrator reads it
REFUSED = (
    "CPUs 1 are isolated with isolcpus=, beside which the kernel refuses sched_ext: boot with "
    "`nohz_full=1 isolcpus=managed_irq,1` and isolate them by a cpuset partition "
    "(cpuset.cpus.partition=isolated)"
)
PARTITION = Path("/sys/fs/cgroup/isolated.slice/cpuset.cpus.partition")
# docs/operations.md has these commands
ISOLATE = ("systemctl set-property isolated.slice AllowedCPUs=1", "systemctl start isolated.slice")
INSIDE = ("systemd-run", "--quiet", "--scope", "--slice=isolated.slice")
SECONDS, SETTLED = 3.0, 1.0
ALONE, HALF = 0.95, (0.45, 0.51)  # CPUs of a task alone on CPU 1, and of one of two on CPU 0
TICKLESS, TICKS = 10, 200  # a second: at most, and at least where the tick is on (HZ is 250)


def check_preflight_refuses_isolcpus_alone() -> None:
    """Preflight refuses a host that was booted with isolcpus= in one sentence, which names the way out, and
    finds nothing missing on one that was booted so."""
    reason = preflight.check(bpf)
    note(reason or "nothing is missing")
    assert reason == (REFUSED if ISOLCPUS else None)


def isolcpus_the_kernel_refuses_the_scheduler() -> None:
    """The kernel itself refuses the scheduler beside isolcpus=: preflight refuses nothing that works."""
    try:
        sched_ext.Scheduler(Topology.read(Path("/"))).close()
    except LoadFailed as refusal:
        note(str(refusal))
    else:
        raise AssertionError("the kernel took the scheduler: preflight need not refuse isolcpus=")
    assert host.scheduler() == "disabled"


def partition_isolates_beside_the_scheduler() -> None:
    """Preflight finds nothing missing with CPU 1 in an isolated partition, and the scheduler loads; a busy
    task in the partition has the CPU to itself and never leaves it, and two outside share CPU 0."""
    isolate()
    assert preflight.check(bpf) is None
    with scheduler() as loaded, inside() as isolated, spinning("outside", 0, 1) as outside:
        time.sleep(SETTLED)
        moves = migrations(isolated)
        everybody = [(group.pid, tid) for group in (isolated, outside) for tid in group.tids]
        alone, *shared = cpu_shares(everybody, SECONDS)
        note(f"inside {alone:.3f} CPUs, outside {shared[0]:.3f} and {shared[1]:.3f}")
        assert host.scheduler() == "enabled" and loaded.ejected() is None
        assert alone >= ALONE
        assert host.processor(isolated.pid, isolated.tids[0]) == 1 and migrations(isolated) == moves
        assert all(HALF[0] < share < HALF[1] for share in shared)
        assert {host.processor(outside.pid, tid) for tid in outside.tids} == {0}


def partition_the_tick_stays_on_once_two_tasks_were_there() -> None:
    """The tick of a nohz_full CPU stops by default while a task is alone there, also after a second one has
    gone; with the scheduler it then stays on, which is a limit that docs/operations.md names."""
    assert max(ticks_of_a_task_alone()) <= TICKLESS
    with scheduler():
        _, after = ticks_of_a_task_alone()
        assert after >= TICKS


def isolate() -> None:
    """Make the isolated partition."""
    for command in ISOLATE:
        subprocess.run(command.split(), check=True)
    PARTITION.write_text("isolated")
    assert PARTITION.read_text() == "isolated\n"


@contextlib.contextmanager
def scheduler() -> Iterator[sched_ext.Scheduler]:
    """Load the scheduler, which has no CPU but 0, while the body runs."""
    topology = Topology.read(Path("/"))
    assert topology.usable == {0}
    with contextlib.closing(sched_ext.Scheduler(topology)) as loaded:
        yield loaded


@contextlib.contextmanager
def inside() -> Iterator[Group]:
    """Start a process in the partition, with one thread that never sleeps."""
    with busy(1, 1, *INSIDE) as (process, tids):
        yield Group("inside", process.pid, tuple(tids), (1,))


def ticks_of_a_task_alone() -> tuple[float, float]:
    """Return the ticks a second on CPU 1 of a task that is alone there, before a second one and after it."""
    with inside():
        before = ticks()
        with inside():
            time.sleep(SETTLED)
        after = ticks()
    note(f"ticks a second of a task alone: {before:.0f}, and after a second one {after:.0f}")
    return before, after


def ticks() -> float:
    """Return how many interrupts a second CPU 1 has from its timer, once what went before has settled."""
    time.sleep(SETTLED)
    before = timer_interrupts(1)
    time.sleep(SECONDS)
    return (timer_interrupts(1) - before) / SECONDS


def migrations(group: Group) -> int:
    """Return how often the kernel has moved the group's first thread from one CPU to another."""
    text = Path(f"/proc/{group.pid}/task/{group.tids[0]}/sched").read_text()
    found = re.search(r"^se\.nr_migrations\s*:\s*(\d+)", text, re.MULTILINE)
    assert found, text
    return int(found[1])


def timer_interrupts(cpu: int) -> int:
    """Return how many interrupts of its timer a CPU has had."""
    found = re.search(r"^\s*LOC:(.*)$", Path("/proc/interrupts").read_text(), re.MULTILINE)
    assert found, "the kernel counts no interrupts of timers"
    return int(found[1].split()[cpu])


if __name__ == "__main__":
    run(__file__, dict(globals()), ("check_", "isolcpus_" if ISOLCPUS else "partition_"))
