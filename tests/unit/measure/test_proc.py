# SPDX-License-Identifier: Apache-2.0
"""/proc as files: what is read of a thread, and what is not claimed."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from gangd.measure.proc import Threads, ThreadTimes, last_cpu, own_usage, read_thread

STAT = "8 (CPU ) 0/KVM) S " + " ".join(str(field) for field in range(4, 53))


def thread(root: Path, schedstat: str | None = "2500000000 125000000 42\n") -> Path:
    base = root / "proc/7/task/8"
    base.mkdir(parents=True)
    for name, text in (("schedstat", schedstat), ("stat", STAT)):
        if text is not None:
            (base / name).write_text(text)
    return root


def test_reads_all(tmp_path: Path) -> None:
    """Nanoseconds become seconds, and the last CPU is field 39 of stat."""
    assert read_thread(7, 8, thread(tmp_path)) == ThreadTimes(2.5, 0.125, 42)
    assert last_cpu(7, 8, tmp_path) == 39


def test_a_thread_that_is_gone(tmp_path: Path) -> None:
    """Unknown, not zero."""
    assert read_thread(7, 9, thread(tmp_path)) == ThreadTimes(None, None, None)
    assert last_cpu(7, 9, tmp_path) is None


def open_files() -> int:
    """How many this process has."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_files_of_threads_stay_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read anew each time; those of threads that left are closed, and no more are kept than half of
    what the process may open."""
    threads, file = Threads(thread(tmp_path)), tmp_path / "proc/7/task/8/schedstat"
    assert threads.read(7, 8).switches == 42
    monkeypatch.setattr("os.open", lambda *_: pytest.fail("the file is open"))
    file.write_text("1000000000 2000000000 43\n")
    assert threads.read(7, 8) == ThreadTimes(1.0, 2.0, 43)
    monkeypatch.undo()
    before = open_files()
    threads.keep(set())
    assert open_files() == before - 1
    assert threads.read(7, 9) == ThreadTimes()
    monkeypatch.setattr(resource, "getrlimit", lambda _: (0, 0))
    crowded = Threads(tmp_path)
    assert crowded.read(7, 8).switches == 43
    assert open_files() == before - 1


@pytest.mark.parametrize("text", ["", "0 0\n", "a b c\n", None])
def test_a_kernel_without_schedstat(tmp_path: Path, text: str | None) -> None:
    """No account, no numbers."""
    assert read_thread(7, 8, thread(tmp_path, schedstat=text)) == ThreadTimes()


def test_this_very_thread() -> None:
    """The real /proc has what the fixture has."""
    times = read_thread(os.getpid(), os.getpid())
    assert times.cpu_seconds is not None and times.cpu_seconds > 0
    assert times.switches is not None


def test_own_usage() -> None:
    """A Python process uses some CPU and between 1 MiB and 10 GiB."""
    cpu, resident = own_usage()
    assert cpu > 0
    assert 1 << 20 < resident < 10 << 30
