# SPDX-License-Identifier: Apache-2.0
"""The counters of threads in /proc: time on CPU, time waiting for one, switches, the last CPU.

They depend on no probe and on no scheduling class, so the probes are checked
against them. Sources: Documentation/scheduler/sched-stats.rst
(schedstat), proc_pid_stat(5) (stat).
"""

from __future__ import annotations

import os
import resource
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path

_PROCESSOR = 36  # field of stat after the name, from 0


@dataclass(frozen=True)
class ThreadTimes:
    """cpu_seconds on CPU, run_delay_seconds runnable and waiting, times it was switched to."""

    cpu_seconds: float | None = None
    run_delay_seconds: float | None = None
    switches: int | None = None


class Threads:
    """The times of many threads, whose files stay open: to open one costs more than to read it.

    Half of the files that this process may open are kept at most; the others are opened each time.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._files: dict[tuple[int, int], int] = {}
        self._most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2

    def read(self, pid: int, tid: int) -> ThreadTimes:
        """The times of a thread; every value is None when it is gone or the kernel keeps none."""
        file = self._files.get((pid, tid))
        if file is None and len(self._files) >= self._most:
            return read_thread(pid, tid, self._root)
        try:
            if file is None:
                file = self._files[pid, tid] = os.open(
                    _schedstat(self._root, pid, tid), os.O_RDONLY | os.O_CLOEXEC
                )
            return _times(os.pread(file, 128, 0))
        except (OSError, ValueError):  # a thread that is gone, whose number another one may have next
            self._close((pid, tid))
            return ThreadTimes()

    def keep(self, threads: Set[tuple[int, int]]) -> None:
        """Close the files of all others, by PID and TID."""
        for thread in self._files.keys() - threads:
            self._close(thread)

    def _close(self, thread: tuple[int, int]) -> None:
        if (file := self._files.pop(thread, None)) is not None:
            os.close(file)


def read_thread(pid: int, tid: int, root: Path = Path("/")) -> ThreadTimes:
    """The times of a thread; every value is None when it is gone or the kernel keeps none."""
    try:
        return _times(_read(_schedstat(root, pid, tid)))
    except (OSError, ValueError):
        return ThreadTimes()


def last_cpu(pid: int, tid: int, root: Path = Path("/")) -> int | None:
    """The CPU that a thread ran on last; None when it is gone."""
    try:
        return int(_read(f"{root}/proc/{pid}/task/{tid}/stat").rpartition(b") ")[2].split()[_PROCESSOR])
    except (OSError, ValueError, IndexError):
        return None


def _schedstat(root: Path, pid: int, tid: int) -> str:
    return f"{root}/proc/{pid}/task/{tid}/schedstat"


def _times(text: bytes) -> ThreadTimes:
    run, wait, switches = map(int, text.split())
    return ThreadTimes(run / 1e9, wait / 1e9, switches)


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
