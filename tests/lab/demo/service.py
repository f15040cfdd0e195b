# SPDX-License-Identifier: Apache-2.0
"""gangd as its users meet it: the service, gangctl, and what the daemon costs."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demo import metrics

START_SECONDS = 60.0
_AT_ONCE = """
import contextlib, io, json, sys, time
from gangd.cli.main import main
for words in json.loads(sys.argv[1]):
    begin, cpu, said = time.monotonic(), time.process_time(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        status = main(words)
    print(json.dumps([status, time.monotonic() - begin, time.process_time() - cpu, said.getvalue()]))
"""


@dataclass(frozen=True)
class Call:
    """One gangctl: what it took. cpu_seconds is gangctl's own part, nearly all of it Python's start."""

    words: tuple[str, ...]
    seconds: float
    cpu_seconds: float
    output: str


@dataclass(frozen=True)
class Cost:
    """What the daemon used over a window in which nothing changed."""

    window_seconds: float
    cpu_share: float
    rss_bytes: int


class Daemon:
    """start: the command that starts it; address: of its exporter."""

    def __init__(self, start: str, address: str) -> None:
        self._start = start
        self.address = address

    def start(self) -> None:
        """Start the service and wait for its exporter. Raises OSError when it does not come."""
        done = subprocess.run(shlex.split(self._start), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise OSError(f"{self._start}: {done.stderr.strip()}")
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                self.scrape()
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)

    def scrape(self) -> metrics.Scrape:
        """/metrics now."""
        return metrics.scrape(self.address)

    def status(self) -> dict[str, Any]:
        """The document of `gangctl --json status`."""
        document: dict[str, Any] = json.loads(gangctl("--json", "status").output)
        return document


def journal(target: Path) -> None:
    """Keep what the daemon said, where there is systemd to ask."""
    command = ["journalctl", "-u", "gangd", "-o", "short-monotonic", "--no-pager"]
    with contextlib.suppress(OSError), target.open("w") as file:
        subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, check=False)


def gangctl(*words: str) -> Call:
    """Run one. Raises OSError with what it said if it fails."""
    return gangctls([words])[0]


def gangctls(commands: Sequence[Sequence[str]]) -> list[Call]:
    """Run several at once: on a busy host each waits for its turn, so they had better wait together."""
    begun = [(tuple(words), time.monotonic(), _begin(words)) for words in commands]
    return [_ended(words, begin, process) for words, begin, process in begun]


def gangctls_at_once(commands: Sequence[Sequence[str]]) -> list[Call]:
    """The same commands by gangctl's own main, but Python starts only once for all of them."""
    done = subprocess.run(
        [sys.executable, "-c", _AT_ONCE, json.dumps([list(words) for words in commands])],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    calls = []
    for words, line in zip(commands, done.stdout.splitlines(), strict=False):
        status, seconds, cpu_seconds, output = json.loads(line)
        if status != 0:
            raise OSError(f"gangctl {' '.join(words)}: {output.strip()}")
        calls.append(Call(tuple(words), seconds, cpu_seconds, output))
    if len(calls) != len(commands):
        raise OSError(f"gangctl: {done.stderr.strip()}")
    return calls


def _begin(words: Sequence[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(["gangctl", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _ended(words: tuple[str, ...], begin: float, process: subprocess.Popen[str]) -> Call:
    assert process.stdout is not None
    output = process.stdout.read()
    process.stdout.close()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise OSError(f"gangctl {' '.join(words)}: {output.strip()}")
    cpu = usage.ru_utime + usage.ru_stime
    return Call(words, time.monotonic() - begin, cpu, output)


def cost(pid: int, seconds: float) -> Cost:
    """Watch process `pid` for so long."""
    begin, before = time.monotonic(), cpu_seconds(pid)
    time.sleep(seconds)
    used, window = cpu_seconds(pid) - before, time.monotonic() - begin
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return Cost(window, used / window, pages * os.sysconf("SC_PAGE_SIZE"))


def cpu_seconds(pid: int) -> float:
    """CPU time of all threads, in nanosecond steps (/proc/PID/stat counts in hundredths of a second)."""
    files = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(file.read_text().split()[0]) for file in files) / 1e9
