# SPDX-License-Identifier: Apache-2.0
"""CFS bandwidth control of the cgroups around a thread: cpu.max, with v1 cpu.cfs_quota_us.

Source: Documentation/admin-guide/cgroup-v2.rst and Documentation/scheduler/sched-bwc.rst.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

CGROUPS = "sys/fs/cgroup"
# Where the hierarchy may be mounted, and the file with the limit, by the controllers of /proc/PID/cgroup.
V2 = (("", "unified"), "cpu.max")
V1 = (("cpu,cpuacct", "cpu"), "cpu.cfs_quota_us")
UNLIMITED = ("max", "-1")
# The kernel adds up in cpu.stat for how long each CPU of a group was held off; the unit in seconds.
THROTTLED = {"throttled_usec": 1e-6, "throttled_time": 1e-9}


def cpu_limit(root: Path, pid: int, tid: int) -> str | None:
    """The nearest limit on the CPU time of a thread, in words; None: there is none, or no thread."""
    for _, path, limit in _limits(root, pid, tid):
        return f"/{path} has {limit}"
    return None


def limited_groups(root: Path, pid: int, tid: int) -> tuple[str, ...]:
    """The folders of the groups around a thread that limit its CPU time, the nearest first."""
    return tuple(group for group, *_ in _limits(root, pid, tid))


def throttled_seconds(group: str) -> float | None:
    """For how long the limit of a group has held its tasks off, added up over CPUs; None: it is gone."""
    lines = (_text(f"{group}/cpu.stat") or "").splitlines()
    return next((int(n) * THROTTLED[key] for key, n in map(str.split, lines) if key in THROTTLED), None)


def _limits(root: Path, pid: int, tid: int) -> Iterator[tuple[str, str, str]]:
    """Folder, path and limit of each limited group around a thread, from its own up to the root's child."""
    top = str(root).rstrip("/")
    for (mounts, name), path in _cgroups(f"{top}/proc/{pid}/task/{tid}/cgroup"):
        for mount in mounts:
            base = f"{top}/{CGROUPS}/{mount}".rstrip("/")
            yield from ((f"{base}/{at}", at, f"{name} {text}") for at, text in _limits_from(base, path, name))


def _text(path: str) -> str | None:
    """A small file; None: there is none. A large host has thousands, and pathlib triples what they cost."""
    try:
        with open(path) as file:  # noqa: PTH123
            return file.read()
    except OSError:
        return None


def _cgroups(file: str) -> Iterator[tuple[tuple[tuple[str, ...], str], str]]:
    for line in (_text(file) or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield V2, path.strip("/")
        elif "cpu" in controllers.split(","):
            yield V1, path.strip("/")


def _limits_from(base: str, path: str, name: str) -> Iterator[tuple[str, str]]:
    """From the cgroup `path` of a hierarchy up to its root, which has no limit."""
    while path:
        text = (_text(f"{base}/{path}/{name}") or UNLIMITED[0]).strip()
        if text.split()[0] not in UNLIMITED:
            yield path, text
        path = path.rpartition("/")[0]
