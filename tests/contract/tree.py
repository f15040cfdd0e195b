# SPDX-License-Identifier: Apache-2.0
"""The files of the project, as the tests of its rules see them."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GENERATED = {"build", "__pycache__", ".git", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis"}
GENERATED_SUFFIXES = {".so", ".o", ".d", ".pyc", ".tmp", ".elf"}
SOURCE_SUFFIXES = {".py", ".pyi", ".c", ".h", ".S", ".ld", ".service", ".socket", ".conf", ".sh"}


def files() -> list[Path]:
    """Every text file of the project."""
    found = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = sorted(f for f in folders if f not in GENERATED and not f.endswith(".egg-info"))
        found += [Path(folder, name) for name in sorted(names)]
    return [path for path in found if path.suffix not in GENERATED_SUFFIXES and path.is_file()]


def name(path: Path) -> str:
    """Return the path from the root of the project."""
    return path.relative_to(ROOT).as_posix()
