# SPDX-License-Identifier: Apache-2.0
"""A host with SMT as a tree of files."""

from __future__ import annotations

from pathlib import Path

CPUS = "sys/devices/system/cpu"


def tree(root: Path, control: str | None = "on", active: str = "1") -> Path:
    """Two cores of two threads: CPUs 0 and 2, 1 and 3."""
    files = {f"{CPUS}/online": "0-3", f"{CPUS}/present": "0-3"}
    for cpu in range(4):
        siblings = f"{cpu % 2},{cpu % 2 + 2}"
        files[f"{CPUS}/cpu{cpu}/topology/thread_siblings_list"] = siblings
    if control is not None:
        files |= {f"{CPUS}/smt/control": control, f"{CPUS}/smt/active": active}
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root
