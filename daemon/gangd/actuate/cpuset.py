# SPDX-License-Identifier: Apache-2.0
"""What has to be done to the cpuset of some threads of a guest around libvirt's own work on it.

    GUEST/                 libvirt puts no thread here
    GUEST/vcpu0            one thread; "iothread1" likewise
    GUEST/emulator         all others

Two things. A pin to CPUs of which GUEST has none is refused before libvirt tries:
it would write the cpuset, fail with the thread's affinity (EINVAL) and leave it so.
And with v2 a cpuset can be empty, which means that GUEST's holds. libvirt cannot make
it so again, and the kernel refuses it with ENOSPC while threads are in the group
(cpuset.c, validate_change): they spend the time of three writes in GUEST.

What goes wrong: gangd dies meanwhile. The threads it left in GUEST all come from one
group, because they are brought home before any other is touched: from the one that is
empty, else from the only one that has more than one thread.

A group is named by its file cpuset.cpus.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from gangd.errors import GangError
from gangd.model.cpulist import parse_cpulist

THREADS = "cgroup.threads"
EFFECTIVE = ("cpuset.cpus.effective", "cpuset.effective_cpus")  # v2 and v1
EMULATOR = "emulator"
SINGLES = ("vcpu", "iothread")
ROUNDS = 3


def prepare(cpuset: Path, cpus: frozenset[int], action: str) -> None:
    """To be called before libvirt pins the group's threads to `cpus`.

    Raises GangError when their guest may use none of them; no CPUs stand for all.
    """
    guest = cpuset.parent.parent
    _bring_home(guest)
    for name in EFFECTIVE:
        allowed = _text(guest / name).strip()
        if cpus and allowed and not cpus & parse_cpulist(allowed):
            cause = f"the cgroup of its guest may use only CPUs {allowed} of those online (AllowedCPUs=)"
            raise GangError(cause, action)


def inherit(cpuset: Path) -> None:
    """Empty the group's cpuset, so that the guest's holds for its threads. OSError: the kernel refuses."""
    here, guest = cpuset.parent, cpuset.parent.parent
    try:
        _move(here, guest)
        cpuset.write_text("\n")
    finally:
        _move(guest, here)


def _bring_home(guest: Path) -> None:
    """Put threads that a gangd which died left in the group of the guest back where they were."""
    if not _text(guest / THREADS).split():
        return
    groups = [guest / EMULATOR, *(path for kind in SINGLES for path in sorted(guest.glob(f"{kind}*")))]
    empty = (group for group in groups if (group / THREADS).exists() and not _text(group / THREADS).split())
    _move(guest, next(empty, guest / EMULATOR))


def _move(group: Path, target: Path) -> None:
    """Move the threads of one group to another, whose file takes one at a time.

    A thread may end meanwhile, or start another where it is.
    """
    for _ in range(ROUNDS):
        for tid in _text(group / THREADS).split():
            with contextlib.suppress(ProcessLookupError):
                (target / THREADS).write_text(tid)


def _text(path: Path) -> str:
    """What a file says, "" where there is none: v1 has others."""
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""
