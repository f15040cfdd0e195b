# SPDX-License-Identifier: Apache-2.0
"""The host's own task: one thread that is always busy, with nice 10, as of a backup that compresses."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from gangd.measure.proc import read_thread

NICE = 10
ROOT = Path("/sys/fs/cgroup/cgroup.procs")  # in no group: its weight is its niceness beside machine.slice


class Backup:
    """A process that runs until it is closed, on any CPU; it begins stopped."""

    def __init__(self, program: Path) -> None:
        self._process = subprocess.Popen([program, "1"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self._tid = int(self._process.stdout.readline())
        os.sched_setaffinity(self._tid, range(os.cpu_count() or 1))
        os.setpriority(os.PRIO_PROCESS, self._tid, NICE)
        ROOT.write_text(str(self._process.pid))
        self.stop()

    def stop(self) -> None:
        """Let it rest."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it work."""
        self._process.send_signal(signal.SIGCONT)

    def seconds(self) -> float:
        """Return its CPU time so far."""
        return read_thread(self._process.pid, self._tid).cpu_seconds or 0.0

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
