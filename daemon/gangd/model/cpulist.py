# SPDX-License-Identifier: Apache-2.0
"""The kernel's way to write a set of CPUs. Apart, because every gangctl needs it, and little else."""

from __future__ import annotations

import re
from collections.abc import Iterable

# Six digits: far above any NR_CPUS, and a hostile "0-99999999999" costs nothing.
_RANGE = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?")
_ALLOWED = "Cpus_allowed_list:"


def parse_cpulist(text: str) -> frozenset[int]:
    """CPU numbers of a kernel list such as "0-2,5".

    Raises ValueError on anything else. Source: lib/bitmap.c, bitmap_parselist().
    """
    cpus: set[int] = set()
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        match = _RANGE.fullmatch(part)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise ValueError(f"not a list of CPUs: {text!r}")
        cpus.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return frozenset(cpus)


def allowed_in(status: str) -> frozenset[int]:
    """The CPUs that a thread may run on, by its /proc/TID/status: Cpus_allowed_list, proc_pid_status(5); none
    where the text has no such line."""
    found = next((line for line in status.splitlines() if line.startswith(_ALLOWED)), _ALLOWED)
    return parse_cpulist(found.removeprefix(_ALLOWED).strip())


def format_cpulist(cpus: Iterable[int]) -> str:
    """The kernel's list form of some CPU numbers: {0, 1, 2, 5} -> "0-2,5"."""
    runs: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
