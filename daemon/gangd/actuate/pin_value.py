# SPDX-License-Identifier: Apache-2.0
"""What a pin reads as: a kernel CPU list ("3", "0-1"), and whether it is the thread's own.

With cgroup v2 threads that were never pinned have an empty cpuset: they inherit the guest's. libvirt
cannot make it empty again, so that state has a value of its own, which gangd puts back (cpuset.py):
"0-3 (inherited)", or "all (inherited)" where it is every CPU that is online. CPUs that come back
later (SMT, hotplug) belong to that, and a thread that is given the same CPUs as a list would stay off
them for ever (sched_setaffinity(2): the kernel remembers what was asked for).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gangd.model.cpulist import format_cpulist, parse_cpulist

INHERITED = " (inherited)"
ALL = "all" + INHERITED


def inherited(cpus: frozenset[int], conn: Any) -> str:
    """The value of threads that run on `cpus` because their guest does. Asks libvirt which are online."""
    everywhere = cpus >= cpu_set(conn.getCPUMap()[1])
    return ALL if everywhere else format_cpulist(cpus) + INHERITED


def plain(value: str) -> frozenset[int]:
    """The CPUs of a pin's value, whoever they were inherited from; none = wherever there are any.

    Raises ValueError.
    """
    return frozenset() if value == ALL else parse_cpulist(value.removesuffix(INHERITED))


def cpu_map(conn: Any, cpus: frozenset[int]) -> tuple[bool, ...]:
    """For libvirt-python, which refuses a map that does not name every host CPU; of no `cpus` all are set,
    those that are offline, too."""
    size = max(conn.getCPUMap()[0], max(cpus, default=0) + 1)
    return tuple(not cpus or cpu in cpus for cpu in range(size))


def cpu_set(flags: Iterable[bool]) -> frozenset[int]:
    """The CPUs of a map of libvirt-python."""
    return frozenset(cpu for cpu, allowed in enumerate(flags) if allowed)


def no_cpuset(_name: str, _uuid: str, _group: str) -> Path | None:
    """For tests, and where libvirt uses no cgroups."""
    return None
