# SPDX-License-Identifier: Apache-2.0
"""Work on the host itself, beside the guests: hackbench, all of whose context switches end in an XRSTOR."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

COUNTS = Path("/run/linux-guests")
_LOOP = (
    'n=0; while {command} hackbench -g 1 -f 10 -l 100 >/dev/null; do n=$((n + 1)); echo "$n" >{file}; done'
)


def start(only: int | None) -> None:
    """Start one loop that the scheduler places and one on CPU 1, both endless; or just one, on CPU `only`.

    They run in a slice of their own: beside the guests' and the system's, with the same weight.
    """
    COUNTS.mkdir(exist_ok=True)
    commands = {"pinned": f"taskset -c {1 if only is None else only}"}
    if only is None:
        commands["unpinned"] = ""
    for name, command in commands.items():
        script = _LOOP.format(command=command, file=COUNTS / name)
        unit = ["systemd-run", "--quiet", "--slice=beside.slice", f"--unit=beside-{name}"]
        subprocess.run([*unit, "sh", "-c", script], check=True)


def rounds() -> dict[str, int]:
    """Return by loop its finished rounds."""
    found = {}
    for file in sorted(COUNTS.iterdir()):
        with contextlib.suppress(ValueError):  # it is just being written
            found[file.name] = int(file.read_text())
    return found


def context_switches() -> int:
    """Return the context switches of all CPUs since the boot."""
    lines = Path("/proc/stat").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("ctxt "))
