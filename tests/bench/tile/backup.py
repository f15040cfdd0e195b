# SPDX-License-Identifier: Apache-2.0
"""The host's own task: one thread that is always busy, with nice 10, as of a backup that compresses."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from gangd.measure.proc import ThreadTimes, read_thread

NICE = 10
CGROUPS = Path("/sys/fs/cgroup")


class Backup:
    """A process that runs until it is closed, on any CPU; it begins stopped.

    Niceness counts within a cgroup only, and outside of all within the session (autogroup). The process
    therefore has a cgroup whose weight is that of its niceness, beside all guests' machine.slice.
    """

    def __init__(self, program: Path) -> None:
        self._process = subprocess.Popen([program, "1"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self.tid = int(self._process.stdout.readline())
        os.sched_setaffinity(self.tid, range(os.cpu_count() or 1))
        os.setpriority(os.PRIO_PROCESS, self.tid, NICE)
        (CGROUPS / "cgroup.subtree_control").write_text("+cpu")
        self._group = CGROUPS / "tile-backup"
        self._group.mkdir(exist_ok=True)
        (self._group / "cpu.weight.nice").write_text(str(NICE))
        (self._group / "cgroup.procs").write_text(str(self._process.pid))
        self.stop()

    def stop(self) -> None:
        """Let it rest."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it work."""
        self._process.send_signal(signal.SIGCONT)

    def times(self) -> ThreadTimes:
        """Return its times so far."""
        return read_thread(self._process.pid, self.tid)

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        self._group.rmdir()
