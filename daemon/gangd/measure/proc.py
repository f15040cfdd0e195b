# SPDX-License-Identifier: Apache-2.0
"""The counters of one thread in /proc: time on CPU, time waiting for one, switches, its last CPU.

They depend on no probe and on no scheduling class, so the probes are checked
against them. Sources: Documentation/scheduler/sched-stats.rst
(schedstat), proc_pid_stat(5) (stat).
"""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass
from pathlib import Path

_PROCESSOR = 36  # field of stat after the name, from 0


@dataclass(frozen=True)
class ThreadTimes:
    """cpu_seconds on CPU, run_delay_seconds runnable and waiting, times it was switched to, its last cpu."""

    cpu_seconds: float | None = None
    run_delay_seconds: float | None = None
    switches: int | None = None
    cpu: int | None = None


def read_thread(pid: int, tid: int, root: Path = Path("/")) -> ThreadTimes:
    """The times of a thread; every value is None when it is gone or the kernel keeps none."""
    base = f"{root}/proc/{pid}/task/{tid}"
    try:
        run, wait, switches = map(int, _read(f"{base}/schedstat").split())
    except (OSError, ValueError):
        return ThreadTimes()
    return ThreadTimes(run / 1e9, wait / 1e9, switches, _last_cpu(f"{base}/stat"))


def _last_cpu(stat: str) -> int | None:
    try:
        return int(_read(stat).rpartition(b") ")[2].split()[_PROCESSOR])
    except (OSError, ValueError, IndexError):
        return None


def _read(path: str) -> bytes:
    """A small file of /proc. A large host has thousands: through pathlib they cost three times as much."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, 1 << 16)
    finally:
        os.close(file)


def own_usage(root: Path = Path("/")) -> tuple[float, int]:
    """CPU seconds and resident bytes of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    pages = int((root / "proc/self/statm").read_text().split()[1])
    return usage.ru_utime + usage.ru_stime, pages * os.sysconf("SC_PAGE_SIZE")
