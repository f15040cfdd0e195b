# SPDX-License-Identifier: Apache-2.0
"""Tell whether the machine underneath was quiet while something was measured.

In the lab "the machine" is the one QEMU runs on, which the VM cannot see: a
`Sampler` out there writes what QEMU's vCPU threads waited for a CPU into the
shared folder, and the driver inside reads it around every repeat.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

INTERVAL_SECONDS = 0.25
STALE_SECONDS = 10.0
POLLS = 40


@dataclass(frozen=True)
class Sample:
    """Cumulative, in seconds: each vCPU thread's wait for a CPU (by thread id), steal of all CPUs."""

    time: float
    cpus: int
    waited: dict[str, float]
    stolen: float


@dataclass(frozen=True)
class Quiet:
    """The worst vCPU thread's wait and the steal, as shares of the time."""

    wait_share: float
    steal_share: float

    def disturbed(self, limit: float) -> bool:
        """True if a figure measured meanwhile is worthless."""
        return max(self.wait_share, self.steal_share) > limit


class Machine(Protocol):
    """A machine whose account of waits and steal can be read."""

    def sample(self) -> Sample:
        """Return the account as of now."""


def between(begin: Sample, end: Sample) -> Quiet:
    """Return the wait and steal shares from one sample to the other."""
    seconds = max(end.time - begin.time, 1e-9)
    waits = [end.waited[tid] - begin.waited[tid] for tid in end.waited if tid in begin.waited]
    return Quiet(max([0.0, *waits]) / seconds, max(0.0, end.stolen - begin.stolen) / seconds / end.cpus)


class OwnMachine:
    """The host itself: there is only steal to see, for its vCPU threads are what is measured."""

    def sample(self) -> Sample:
        """Steal of this machine."""
        return Sample(time.monotonic(), os.cpu_count() or 1, {}, stolen_seconds())


class SharedMachine:
    """The machine underneath the lab, by what its Sampler left in the shared folder."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._last: float | None = None

    def sample(self) -> Sample:
        """The newest sample. Raises OSError when none comes any more.

        Polls are counted, not only seconds: a VM that lost its CPU in mid-read finds an old file and much
        time passed.
        """
        begin = time.monotonic()
        for poll in itertools.count():
            with contextlib.suppress(OSError, ValueError):
                found = Sample(**json.loads(self._file.read_text()))
                if self._last is None or found.time > self._last:
                    self._last = found.time
                    return found
            if poll >= POLLS and time.monotonic() - begin > STALE_SECONDS:
                break
            time.sleep(INTERVAL_SECONDS / 5)
        raise OSError(f"nobody writes {self._file} any more: the machine underneath cannot be judged")


class Sampler(threading.Thread):
    """While entered, writes a Sample of the QEMU that is a child of this process to `file`."""

    def __init__(self, file: Path, cpus: int, name: str = "qemu-system-x86") -> None:
        super().__init__(daemon=True)
        self._file = file
        self._cpus = cpus
        self._name = name
        self._stop_now = threading.Event()

    def run(self) -> None:
        """The thread's own life."""
        pid: int | None = None
        while not self._stop_now.wait(INTERVAL_SECONDS):
            pid = pid if pid and Path(f"/proc/{pid}").exists() else child(self._name)
            if pid:
                sample = Sample(
                    time.monotonic(), os.cpu_count() or 1, waits(pid, self._cpus), stolen_seconds()
                )
                work = self._file.with_suffix(".new")
                work.write_text(json.dumps(asdict(sample)))
                work.replace(self._file)

    def __enter__(self) -> Sampler:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_now.set()
        self.join()


def sampled(file: Path, cpus: int, real: bool) -> contextlib.AbstractContextManager[object]:
    """Return a Sampler for a VM in real time, nothing for one in virtual time: no neighbour disturbs it."""
    return Sampler(file, cpus) if real else contextlib.nullcontext()


def child(name: str) -> int | None:
    """A child process of ours whose command is `name`."""
    for listed in Path("/proc/self/task").glob("*/children"):
        for pid in listed.read_text().split():
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/comm").read_text().strip() == name:
                    return int(pid)
    return None


def waits(pid: int, cpus: int) -> dict[str, float]:
    """Seconds that the process's `cpus` busiest threads, QEMU's vCPUs, waited for a CPU."""
    threads = []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with contextlib.suppress(OSError, ValueError):
            run, wait, _ = (task / "schedstat").read_text().split()
            threads.append((int(run), task.name, int(wait) / 1e9))
    return {tid: wait for _, tid, wait in sorted(threads, reverse=True)[:cpus]}


def stolen_seconds(stat: Path = Path("/proc/stat")) -> float:
    """Time that hypervisors below took from all CPUs together (proc.rst: the eighth column)."""
    columns = stat.read_text().splitlines()[0].split()
    return int(columns[8]) / os.sysconf("SC_CLK_TCK")
