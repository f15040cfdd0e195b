# SPDX-License-Identifier: Apache-2.0
"""All that follows from a file, such as by imports or includes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path


def closure(start: Path, following: Callable[[Path], Iterable[Path]]) -> set[Path]:
    """Return `start`, the files that follow from it, those that follow from these, and so on."""
    found: set[Path] = set()
    left = [start]
    while left:
        path = left.pop()
        if path not in found:
            found.add(path)
            left += following(path)
    return found
