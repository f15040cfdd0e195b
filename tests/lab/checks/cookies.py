# SPDX-License-Identifier: Apache-2.0
"""Gangs of which each has a core-scheduling cookie (libvirt's sched_core, Incus, cloud-hypervisor), on two
cores of two threads: the kernel lets no two cookies on one core at once. Without the daemon."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import time

import host
from check import figure, note, run, wait_for
from threads import Group, Rig, cpu_shares, spinning

CPUS, CORES = (0, 1, 2, 3), ((0, 1), (2, 3))
SECONDS, CORUN = 4.0, 0.8
SCHED_CORE, CREATE, PROCESS = 62, 1, 1  # linux/prctl.h: PR_SCHED_CORE, _CREATE, _SCOPE_THREAD_GROUP
TIE = 0.0005  # seconds of a second that both are seen on a core at a switch

rig = Rig(CPUS)
stack = contextlib.ExitStack()
groups: list[Group] = []
libc = ctypes.CDLL(None, use_errno=True)


def give_cookie(group: Group) -> None:
    """Give all threads of a group a cookie of their own, as `chrt`'s cousin coresched(1) does."""
    if libc.prctl(SCHED_CORE, CREATE, group.pid, PROCESS, 0):
        raise OSError(ctypes.get_errno(), f"cannot give {group.name} a cookie")


def measured(what: str) -> tuple[list[float], float]:
    """Each group's co-run time, and for how much of the time two cookies were on one core."""
    everybody = [(group.pid, tid) for group in groups for tid in group.tids]
    with host.traced(tid for _, tid in everybody) as trace:
        shares = cpu_shares(everybody, SECONDS)
    on = {group.name: trace.on_cpu(group.tids) for group in groups}
    mixed = sum(
        sum(host.overlaps(one.get(here, []), two.get(there, [])))
        for one, two in itertools.combinations(on.values(), 2)
        for core in CORES
        for here, there in itertools.permutations(core, 2)
    )
    corun = [trace.account(group.tids).share for group in groups]
    words = " ".join(f"{share:.3f}" for share in shares), " ".join(f"{share:.1%}" for share in corun)
    note(f"{what}: shares {words[0]}, together {words[1]}, two cookies on a core {mixed / SECONDS:.2%}")
    return corun, mixed / SECONDS


def check_the_kernel_keeps_cookies_apart() -> None:
    """Under the default scheduler; without cookies they do mix, so that this can be seen."""
    groups.extend(stack.enter_context(spinning(name, 0, 1)) for name in ("one", "two", "three"))
    time.sleep(1.0)
    _, mixed = measured("default, no cookies")
    assert mixed > 0.1
    for group in groups:
        give_cookie(group)
    time.sleep(1.0)
    _, mixed = measured("default, cookies")
    assert mixed < TIE


def check_gangs_with_cookies_run_together_and_apart() -> None:
    """Three gangs of two threads have turns, whole as without cookies, and no core has two cookies."""
    rig.schedule(*groups)
    time.sleep(1.0)
    corun, mixed = measured("gangs, cookies")
    figure("cookies_corun", min(corun))
    figure("cookies_mixed", mixed)
    assert rig.gangs.active and not rig.gangs.ejections.total()
    assert min(corun) >= CORUN and mixed < TIE


def check_unloads_clean() -> None:
    """With the gangs the scheduler goes."""
    assert rig.executor.undo().failures == ()
    stack.close()
    wait_for(lambda: not host.our_programs(), 5, "nothing of ours is in the kernel")


if __name__ == "__main__":
    run(__file__, dict(globals()))
