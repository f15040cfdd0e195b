# SPDX-License-Identifier: Apache-2.0
"""gangd as its users meet it: the service, gangctl, and what the daemon costs."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from gangd.cli.main import main
from lab.observe import metrics

UNIT = "gangd"
EJECTIONS = "gangd_scheduler_ejections_total"
START_SECONDS = 60.0


@dataclass(frozen=True)
class Call:
    """A gangctl: what it took. cpu_seconds is gangctl's own part, nearly all of it Python's start."""

    words: tuple[str, ...]
    seconds: float
    cpu_seconds: float
    output: str


@dataclass(frozen=True)
class Cost:
    """The CPU and memory that the daemon used in all windows in which nothing changed."""

    window_seconds: float
    cpu_share: float
    rss_bytes: int


class Daemon:
    """gangd's service. address: of its exporter."""

    def __init__(self, address: str) -> None:
        self._started = False
        self._pid: int | None = None
        self._used = self._watched = 0.0
        self._pages = 0
        self._scrapes: list[metrics.Scrape] = []
        self.address = address

    def start(self) -> None:
        """Start the service and wait for its exporter. Raises OSError when it does not come."""
        self._started = _systemctl("is-active", "--quiet", UNIT).returncode != 0
        done = _systemctl("start", UNIT)
        if done.returncode != 0:
            raise OSError(f"systemctl start {UNIT}: {done.stderr.strip()}")
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                self.scrape()
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)

    def stop(self) -> None:
        """If it was started here. Raises OSError when it does not stop."""
        if not self._started:
            return
        done = _systemctl("stop", UNIT)
        if done.returncode != 0:
            raise OSError(f"systemctl stop {UNIT}: {done.stderr.strip()}")

    def watch(self, seconds: float) -> None:
        """Let so much time pass, and see what the daemon costs meanwhile."""
        pid = self._pid = self._pid or int(_systemctl("show", "--value", "--property=MainPID", UNIT).stdout)
        begin, before = time.monotonic(), cpu_seconds(pid)
        time.sleep(seconds)
        self._used += cpu_seconds(pid) - before
        self._watched += time.monotonic() - begin
        self._pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])

    def cost(self) -> Cost | None:
        """Return the daemon's cost while it was watched; None when it never was."""
        if not self._watched:
            return None
        return Cost(self._watched, self._used / self._watched, self._pages * os.sysconf("SC_PAGE_SIZE"))

    def scrape(self) -> metrics.Scrape:
        """Return /metrics as of now."""
        self._scrapes.append(metrics.scrape(self.address))
        return self._scrapes[-1]

    @property
    def ejections(self) -> float | None:
        """The scheduler's ejections in the last scrape that has them (it was loaded); None if none has."""
        values = (scrape.value(EJECTIONS) for scrape in reversed(self._scrapes))
        return next((value for value in values if value is not None), None)


def _systemctl(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["systemctl", *words], capture_output=True, text=True, check=False)


def journal(target: Path) -> None:
    """Keep what the daemon said, where there is systemd to ask."""
    command = ["journalctl", "-u", "gangd", "-o", "short-monotonic", "--no-pager"]
    with contextlib.suppress(OSError), target.open("w") as file:
        subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, check=False)


def gangctl(*words: str) -> Call:
    """Run one. Raises OSError with what it said if it fails."""
    begin = time.monotonic()
    process = subprocess.Popen(
        ["gangctl", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    with process.stdout:
        output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise OSError(f"gangctl {' '.join(words)}: {output.strip()}")
    return Call(words, time.monotonic() - begin, usage.ru_utime + usage.ru_stime, output)


def gangctls(commands: Sequence[Sequence[str]]) -> list[Call]:
    """Several side by side, as each of them waits for its turn on a busy host.

    By gangctl's own main in forks of this process, for Python's start takes seconds when emulated.
    Raises OSError with what the first one said that failed.
    """
    with ProcessPoolExecutor(len(commands), mp_context=get_context("fork")) as pool:
        calls = list(pool.map(_forked, commands))
    for call, status in calls:
        if status != 0:
            raise OSError(f"gangctl {' '.join(call.words)}: {call.output.strip()}")
    return [call for call, _ in calls]


def _forked(words: Sequence[str]) -> tuple[Call, int]:
    begin, cpu, said = time.monotonic(), time.process_time(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        status = main(list(words))
    seconds, own = time.monotonic() - begin, time.process_time() - cpu
    return Call(tuple(words), seconds, own, said.getvalue()), status


def cpu_seconds(pid: int) -> float:
    """CPU time of all threads, ended ones too, in nanosecond steps. ProcessLookupError: no such process.

    /proc/PID/stat counts in hundredths of a second, and a thread may end while its file is read: so the clock
    of clock_getcpuclockid(3), which is MAKE_PROCESS_CPUCLOCK in the kernel's linux/posix-timers_types.h.
    """
    try:
        return time.clock_gettime(~pid << 3 | 2)
    except OSError:
        raise ProcessLookupError(f"cannot read the CPU time of process {pid}: it is not there") from None
