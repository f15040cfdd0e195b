# SPDX-License-Identifier: Apache-2.0
"""The folder that a VM sees as /share: it has packages of tests/ at its top, so that their names are the same
inside a VM and outside."""

from __future__ import annotations

import shutil
from pathlib import Path

from lab.paths import LAB

TESTS = LAB.parent
# Neither caches nor what is compiled outside of the VM.
UNWANTED = ("__pycache__", "*.c", "flat", "plant")


def python(module: str, folder: str = "/share") -> list[str]:
    """Return the words that start a module in the VM, from what was added to the share or from its copy."""
    return [f"PYTHONPATH={folder}", "PYTHONDONTWRITEBYTECODE=1", "python3", "-m", module]


def add(share: Path, packages: tuple[str, ...], without: tuple[str, ...] = ()) -> None:
    """Copy these packages (`bench/demo`), but for files of these names."""
    for package in packages:
        shutil.copytree(TESTS / package, share / package, ignore=shutil.ignore_patterns(*UNWANTED, *without))
