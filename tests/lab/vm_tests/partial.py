# SPDX-License-Identifier: Apache-2.0
"""Partial switch (`scheduler.switch = "partial"`) on four CPUs, without systemd, libvirt or the daemon.

Gangs have CPUs 2 and 3; whether anybody else may run there is what differs.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from check import note, run
from threads import SLOT_US, Group, Rig, busy, plan_of, spinning

from gangd.actuate import sched_ext
from gangd.actuate.executor import Executor
from gangd.actuate.gang import Gangs
from gangd.actuate.journal import Journal
from gangd.actuate.sched_policy import SCHED_EXT, SchedPolicy

ORDINARY, FENCED = (0, 1), (2, 3)
SECONDS = 4.0
CGROUPS = Path("/sys/fs/cgroup")
SWITCHED_ALL = Path("/sys/kernel/sched_ext/switch_all")

rig = Rig(FENCED, Gangs(SLOT_US, [sched_ext.backend(partial=True)]))
# As the daemon has them (gangd/host.py): a thread whose policy is set is not fair any more.
rig.executor = Executor([SchedPolicy(), rig.gangs], Journal(Path("/run/lab-journal")))


@contextlib.contextmanager
def fence() -> Iterator[None]:
    """Everything of user space that runs now is kept on the ordinary CPUs by a cpuset."""
    group = CGROUPS / "ordinary"
    (CGROUPS / "cgroup.subtree_control").write_text("+cpuset")
    group.mkdir()
    (group / "cpuset.cpus").write_text("0-1")
    move(CGROUPS, group)
    try:
        yield
    finally:
        move(group, CGROUPS)
        group.rmdir()


def move(source: Path, target: Path) -> None:
    """Every process of one cgroup to another; the kernel's own, which have no memory, stay."""
    for pid in (source / "cgroup.procs").read_text().split():
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if Path(f"/proc/{pid}/statm").read_text().split()[0] != "0":
                (target / "cgroup.procs").write_text(pid)


@contextlib.contextmanager
def inside(*names: str) -> Iterator[list[Group]]:
    """For every name a process that spins behind the fence, one thread on each CPU there; its main thread,
    which like QEMU's is no vCPU, stays outside."""
    with contextlib.ExitStack() as started:
        found = []
        for name in names:
            process, tids = started.enter_context(busy(len(FENCED)))
            (CGROUPS / "cgroup.procs").write_text(str(process.pid))
            os.sched_setaffinity(process.pid, ORDINARY)
            group = Group(name, process.pid, tuple(tids), FENCED)
            group.pin()
            found.append(group)
        yield found


def policies(*groups: Group) -> set[int]:
    """Scheduling policies of all their threads."""
    return {os.sched_getscheduler(tid) for group in groups for tid in group.tids}


def check_gangs_have_their_cpus_and_others_the_fair_class() -> None:
    """With their CPUs fenced off by a cpuset, two gangs are co-started in nine of ten slots and share the
    time; an ordinary program stays in the fair class and has its CPUs for itself. Undone, all are fair."""
    with fence(), spinning("ordinary", *ORDINARY) as ordinary, inside("a", "b") as gangs:
        rig.schedule(*gangs)
        assert SWITCHED_ALL.read_text().strip() == "0"
        assert policies(*gangs) == {SCHED_EXT} and policies(ordinary) == {os.SCHED_OTHER}
        time.sleep(0.5)
        before = {each.name: sum(each.cpu_seconds()) for each in (*gangs, ordinary)}
        early = [rig.stats(gang) for gang in gangs]
        time.sleep(SECONDS)
        late = [rig.stats(gang) for gang in gangs]
        used = {each.name: sum(each.cpu_seconds()) - before[each.name] for each in (*gangs, ordinary)}
        note(", ".join(f"{name}: {seconds:.2f} s" for name, seconds in used.items()))
        for gang, one, two in zip(gangs, early, late, strict=True):
            slots, started = two.slots - one.slots, two.costarted - one.costarted
            note(f"{gang.name}: {started} of {slots} slots co-started")
            assert slots > 20
            assert started >= 0.9 * slots
            assert used[gang.name] >= 0.35 * 2 * SECONDS
        assert used["ordinary"] >= 0.75 * 2 * SECONDS
        assert rig.executor.undo().failures == ()
        assert not rig.gangs.active
        assert policies(*gangs, ordinary) == {os.SCHED_OTHER}


def check_without_a_fence_it_is_refused() -> None:
    """While a task of the fair class may run on the gangs' CPUs the partial switch is refused by its name;
    nothing is loaded, and nobody's policy is left changed."""
    with fence(), inside("a", "intruder") as (gang, intruder):
        report = rig.executor.reconcile(plan_of([gang], FENCED))
        said = " ".join([*report.missing, *map(str, report.failures)])
        note(said)
        assert f"spin[{intruder.tids[0]}]" in said
        assert "may run on its CPUs" in said and "cpusets" in said
        assert not rig.gangs.active
        assert rig.executor.undo().failures == ()
        assert policies(gang, intruder) == {os.SCHED_OTHER}


if __name__ == "__main__":
    run(__file__, dict(globals()))
