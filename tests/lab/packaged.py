# SPDX-License-Identifier: Apache-2.0
"""Packages of a distribution's kind, built from the source package, in build/KIND."""

import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from lab import packages
from lab.errors import LabError
from lab.paths import REPO
from lab.project import fingerprint, source_package
from lab.shell import lock, say

MORE = ("docs", "LICENSES")  # what is packaged and not installed in a VM


def build(kind: str, tools: Sequence[str], pack: Callable[[Path, Path], None]) -> list[Path]:
    """The packages of this kind ("deb"), made anew when the sources have changed since.

    tools: packages of what builds them, which nothing else needs. pack: makes them of the source package, in
    the folder given.
    """
    packages.need(tools, f"they build the {kind} packages")
    target = REPO / "build" / kind
    mark = target / "fingerprint"
    with lock(kind):
        if not mark.exists() or mark.read_text() != fingerprint(*MORE):
            before = fingerprint(*MORE)
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir(parents=True)
            say(f"building the {kind} packages")
            pack(source_package(target), target)
            mark.write_text(before)
    return sorted(target.glob(f"*.{kind}"))


def main(built: Callable[[], list[Path]]) -> int:
    """Build them and say where they are; returns the exit status."""
    try:
        for package in built():
            print(package.relative_to(REPO))
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    return 0
