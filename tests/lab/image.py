# SPDX-License-Identifier: Apache-2.0
"""Makes ext4 images from directory trees, without mounting or loop devices."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lab import packages
from lab.errors import LabError
from lab.paths import ROOT_IMAGE, TOOLBOX_MARK
from lab.shell import call, lock, say

# The images are only read: no journal, no checksums to verify under emulation, no space kept for root.
# Blocks are pages, so that files can be mapped from an image that is memory (DAX).
FORMAT = [
    *("-q", "-F", "-t", "ext4", "-m", "0", "-b", "4096"),
    *("-O", "^has_journal,^metadata_csum", "-E", "lazy_itable_init=1"),
]
# Memory comes to a VM in pieces of this size.
PIECE = 2 << 20
# For the marks of images: of another one they are made anew.
RECIPE = " ".join([*FORMAT, str(PIECE)])


def make(tree: Path, target: Path) -> None:
    """Write `tree` into a new image; `target` appears only when it is complete."""
    work = target.with_name(f"{target.name}.new")
    work.unlink(missing_ok=True)
    kibibytes, files = _measure(tree)
    size = f"{kibibytes * 11 // 10 + 8 * 1024}k"
    call(["mke2fs", *FORMAT, "-N", str(files + 1024), "-d", tree, work, size], f"make {target.name}")
    os.truncate(work, -(-work.stat().st_size // PIECE) * PIECE)
    work.rename(target)


def root() -> Path:
    """The VM's root file system: the toolbox itself, without what is mounted in it."""
    if not TOOLBOX_MARK.exists():
        raise LabError("cannot make the root image: this is not the toolbox (use tests/lab/enter)")
    mark = ROOT_IMAGE.with_suffix(".fingerprint")
    fingerprint = f"{TOOLBOX_MARK.read_text()}{RECIPE}\n"
    with lock("root-image"):
        if ROOT_IMAGE.exists() and mark.exists() and mark.read_text() == fingerprint:
            return ROOT_IMAGE
        say("making the root image")
        mark.unlink(missing_ok=True)
        with packages.unchanging(), bare_root() as tree:
            make(tree, ROOT_IMAGE)
        mark.write_text(fingerprint)
    return ROOT_IMAGE


@contextmanager
def bare_root() -> Iterator[Path]:
    """Bind / to a folder, for the tree underneath /proc, /src and the like: a plain bind is not recursive.

    The folder is only removed by rmdir(2), which fails while / is still bound to it: to delete what is in it
    would delete the toolbox.
    """
    folder = Path(tempfile.mkdtemp(prefix="root-"))
    try:
        subprocess.run(["mount", "--bind", "/", folder], check=True)
        try:
            yield folder
        finally:
            subprocess.run(["umount", folder], check=True)
    finally:
        folder.rmdir()


def _measure(tree: Path) -> tuple[int, int]:
    """Disk blocks in KiB, and the number of files; hard links counted once."""
    seen: set[tuple[int, int]] = set()
    blocks = 0
    for folder, _, names in os.walk(tree):
        for path in (folder, *(f"{folder}/{name}" for name in names)):
            status = os.lstat(path)
            if (status.st_dev, status.st_ino) not in seen:
                seen.add((status.st_dev, status.st_ino))
                blocks += max(status.st_blocks // 2, 4)
    return blocks, len(seen)
