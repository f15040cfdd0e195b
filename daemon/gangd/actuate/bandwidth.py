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


def cpu_limit(root: Path, pid: int, tid: int) -> str | None:
    """The nearest limit on the CPU time of a thread, in words; None: there is none, or no thread."""
    for (mounts, name), path in _cgroups(root / f"proc/{pid}/task/{tid}/cgroup"):
        for mount in mounts:
            if (found := _limit(root / CGROUPS / mount, path, name)) is not None:
                return found
    return None


def _cgroups(file: Path) -> Iterator[tuple[tuple[tuple[str, ...], str], str]]:
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield V2, path.strip("/")
        elif "cpu" in controllers.split(","):
            yield V1, path.strip("/")


def _limit(base: Path, path: str, name: str) -> str | None:
    """From the cgroup `path` of a hierarchy up to its root, which has no limit."""
    while path:
        try:
            text = (base / path / name).read_text().strip()
        except OSError:
            text = UNLIMITED[0]
        if text.split()[0] not in UNLIMITED:
            return f"/{path} has {name} {text}"
        path = path.rpartition("/")[0]
    return None
