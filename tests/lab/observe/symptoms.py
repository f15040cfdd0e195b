# SPDX-License-Identifier: Apache-2.0
"""The reason why a guest counts no more: its vCPU threads want a CPU and get none, which is the scheduler's
fault, or they run, sleep or are gone, which is not."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gangd.measure.proc import read_thread

SECONDS = 1.0
STARVED_SHARE = 0.1  # kernels since 6.12 see to it that a starved task has about 0.05 all the same


@dataclass(frozen=True)
class Thread:
    """The activity of one thread. state: the letter of /proc, None when it is gone; used: share of a CPU."""

    state: str | None
    cpu: int | None
    used: float | None

    @property
    def starved(self) -> bool:
        """True if the thread was runnable and had less than STARVED_SHARE of a CPU."""
        return self.state == "R" and self.used is not None and self.used < STARVED_SHARE

    def __str__(self) -> str:
        if self.state is None or self.used is None:
            return "is gone"
        return f"is {self.state} on CPU {self.cpu} and had {self.used:.1%} of a CPU"


@dataclass(frozen=True)
class Symptoms:
    """The activity of every vCPU's thread of a guest within `seconds`."""

    vcpus: Mapping[int, Thread]
    seconds: float

    @property
    def starved(self) -> bool:
        """True if at least one vCPU was starved."""
        return any(thread.starved for thread in self.vcpus.values())

    def __str__(self) -> str:
        found = ", ".join(f"vCPU {vcpu} {thread}" for vcpu, thread in sorted(self.vcpus.items()))
        return f"within {self.seconds:.1f} s {found or 'it had no vCPU'}"


def symptoms(pid: int, tids: Mapping[int, int], seconds: float = SECONDS) -> Symptoms:
    """Look at the threads (vCPU number -> thread id) of a process for some time."""
    before, begin = {tid: read_thread(pid, tid).cpu_seconds for tid in tids.values()}, time.monotonic()
    time.sleep(seconds)
    passed = time.monotonic() - begin
    return Symptoms({vcpu: _thread(pid, tid, before[tid], passed) for vcpu, tid in tids.items()}, passed)


def _thread(pid: int, tid: int, before: float | None, seconds: float) -> Thread:
    after = read_thread(pid, tid).cpu_seconds
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/task/{tid}/stat").read_text().rpartition(")")[2].split()
        used = None if before is None or after is None else (after - before) / seconds
        return Thread(words[0], int(words[36]), used)
    return Thread(None, None, None)
