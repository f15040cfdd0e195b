# SPDX-License-Identifier: Apache-2.0
"""What /proc knows of one thread: time on CPU, time waiting for one, switches.

Independent of any probe and of the scheduling class, so it is also what the
probes are checked against. Sources: Documentation/scheduler/sched-stats.rst
(schedstat), Documentation/filesystems/proc.rst (status).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ThreadTimes:
    """cpu_seconds on CPU, run_delay_seconds runnable and waiting, switches of both kinds."""

    cpu_seconds: float | None = None
    run_delay_seconds: float | None = None
    switches: int | None = None


def read_thread(pid: int, tid: int, root: Path = Path("/")) -> ThreadTimes:
    """The times of a thread; every value is None when it is gone or the kernel keeps none."""
    base = root / f"proc/{pid}/task/{tid}"
    try:
        run, wait, _slices = (base / "schedstat").read_text().split()
        cpu, delay = int(run) / 1e9, int(wait) / 1e9
    except (OSError, ValueError):
        return ThreadTimes()
    return ThreadTimes(cpu, delay, _switches(base / "status"))


def _switches(status: Path) -> int | None:
    try:
        lines = status.read_text().splitlines()
    except OSError:
        return None
    counts = [int(line.split()[1]) for line in lines if "ctxt_switches:" in line]
    return sum(counts) if counts else None


def own_usage(root: Path = Path("/")) -> tuple[float, int]:
    """CPU seconds and resident bytes of this process."""
    import os
    import resource

    usage = resource.getrusage(resource.RUSAGE_SELF)
    pages = int((root / "proc/self/statm").read_text().split()[1])
    return usage.ru_utime + usage.ru_stime, pages * os.sysconf("SC_PAGE_SIZE")
