# SPDX-License-Identifier: Apache-2.0
"""CPU time of the host's threads that are no party of the tile: what takes from all of them shows here."""

from __future__ import annotations

import contextlib
from pathlib import Path

SHOWN = 4  # names in a round's line
Times = dict[tuple[str, int, int], float]  # by name, process and thread


def seconds(proc: Path = Path("/proc")) -> Times:
    """Return the CPU seconds of each thread so far (schedstat)."""
    found: Times = {}
    for place in proc.glob("[0-9]*/task/[0-9]*"):
        with contextlib.suppress(OSError):  # the thread has ended
            spent = int((place / "schedstat").read_text().split()[0])
            name = (place / "comm").read_text().strip()
            found[name, int(place.parent.parent.name), int(place.name)] = spent / 1e9
    return found


def between(before: Times, after: Times, parties: set[int], span: float) -> dict[str, float]:
    """Return the CPUs of each name of threads between two readings, `span` seconds apart, without the threads
    `parties`, the most first."""
    found: dict[str, float] = {}
    for thread, spent in after.items():
        if thread[2] not in parties:
            found[thread[0]] = found.get(thread[0], 0.0) + spent - before.get(thread, 0.0)
    most = sorted(found.items(), key=lambda item: -item[1])
    return {name: round(spent / span, 4) for name, spent in most if spent > 0.001 * span}


def told(cpus: dict[str, float]) -> str:
    """Return the sum and the largest in words."""
    most = ", ".join(f"{name} {share:.2f}" for name, share in list(cpus.items())[:SHOWN])
    return f"others {sum(cpus.values()):.2f} ({most})"
