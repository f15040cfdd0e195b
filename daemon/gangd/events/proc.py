# SPDX-License-Identifier: Apache-2.0
"""Threads and cgroups of processes, as the kernel tells them.

Every function takes the root directory, so that a tree of files is the fixture, and treats a process that
vanishes midway as not found.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from gangd.model.cpulist import allowed_in, parse_cpulist

STARTTIME, POLICY = 22, 41  # fields of proc_pid_stat(5)
MARK = "user.gang"


@dataclass(frozen=True)
class Thread:
    """A host thread. starttime: clock ticks since boot; with it a reused tid is told apart. real_time: its
    policy is SCHED_FIFO or SCHED_RR."""

    tid: int
    starttime: int
    real_time: bool = field(default=False, compare=False)


def thread(pid: int, tid: int, root: Path) -> Thread | None:
    """Thread `tid` of process `pid`, None when it is gone."""
    fields = stat(pid, tid, root)
    started = number(fields.get(STARTTIME))
    if started is None:
        return None
    return Thread(tid, started, number(fields.get(POLICY)) in (os.SCHED_FIFO, os.SCHED_RR))


def start_time(pid: int, tid: int, root: Path = Path("/")) -> int | None:
    """Start of thread `tid` of process `pid` in clock ticks since boot, None when it is gone."""
    return number(stat(pid, tid, root).get(STARTTIME))


def stat(pid: int, tid: int, root: Path) -> dict[int, str]:
    """The fields of a thread by their numbers in proc_pid_stat(5), none when it is gone."""
    line = text(f"{root}/proc/{pid}/task/{tid}/stat") or ""
    # Field 2 is the name in parentheses and may hold spaces and parentheses itself:
    # count from the last ")", after which field 3 follows.
    return dict(enumerate(line.rpartition(")")[2].split(), 3))


def tids(pid: int, root: Path) -> list[int]:
    """The threads of a process, none when it is gone."""
    return sorted(int(name) for name in children(f"{root}/proc/{pid}/task") if name.isdecimal())


def children(folder: str) -> list[str]:
    """The names in a folder, none when it is gone."""
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries]
    except OSError:
        return []


def mounted(controllers: str, path: str, root: Path) -> list[str]:
    """Directories that a group may have: v2 is mounted at the top or, on a hybrid host, at "unified"; v1 at
    the controllers' joint name or at links for each of them."""
    names = ["", "unified"] if not controllers else [controllers, *controllers.split(",")]
    return [f"{root}/sys/fs/cgroup/{mount}/{path}" for mount in names]


def groups(pid: int, root: Path) -> Iterator[tuple[str, str]]:
    """Controllers ("" for v2) and path of the groups of a process or thread."""
    return groups_in(text(f"{root}/proc/{pid}/cgroup") or "")


def groups_in(lines: str) -> Iterator[tuple[str, str]]:
    """Yield controllers and path as groups() does, from the text of /proc/PID/cgroup."""
    for line in lines.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if ".." not in path.split("/"):
            yield controllers, path


def unified(lines: str) -> str | None:
    """The one of these groups that names a guest, v2 where the host has it; None: gangd cannot see it."""
    found = dict(groups_in(lines))
    path = found.get("", found.get("name=systemd", found.get("cpu,cpuacct")))
    return None if path is None else path.strip("/")


def may_run_on(tid: int, root: Path) -> frozenset[int]:
    """The CPUs that a thread may run on; none when it is gone."""
    return allowed_in(text(f"{root}/proc/{tid}/status") or "")


def online(root: Path) -> frozenset[int]:
    """The CPUs of the host that are online."""
    return parse_cpulist((text(root / "sys/devices/system/cpu/online") or "").strip())


def mark_of(folder: Path | str) -> bytes:
    """The extended attribute MARK of a cgroup's directory, empty where it has none."""
    try:
        return os.getxattr(folder, MARK)
    except OSError:
        return b""


def text(path: Path | str) -> str | None:
    """The text of a file, None when it cannot be read."""
    try:
        # a guest has dozens of files: Path's own way takes twice as long
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (OSError, ValueError):  # ValueError: a name no path can hold
        return None
    try:
        return b"".join(iter(partial(os.read, file, 1 << 16), b"")).decode(errors="replace")
    except OSError:
        return None
    finally:
        os.close(file)


def number(text: str | None) -> int | None:
    """A number as the kernel writes it, None for any other text."""
    word = (text or "").strip()
    return int(word) if word.isascii() and word.isdecimal() and len(word) < 20 else None
