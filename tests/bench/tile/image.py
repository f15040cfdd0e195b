# SPDX-License-Identifier: Apache-2.0
"""The initrd of the tile's own guests, web and idle; those of the other guests are the seeds'."""

from __future__ import annotations

import tempfile
from pathlib import Path

from bench.seeds import image
from lab import modules
from lab.cpio import Archive
from lab.kernels import Kernel
from lab.meaning import meaning
from lab.shell import call

GUEST = Path(__file__).with_name("guest")
DRIVERS = ("virtio_pci", "virtio_net")


def fingerprint() -> str:
    """A hash of what runs in the guests, and of how they are run."""
    here = Path(__file__).parent
    ours = [here / f"{name}.py" for name in ("arms", "guests", "image", "parties")]
    return meaning([*sorted(GUEST.iterdir()), *ours]) + image.fingerprint()


def initrd(kernel: Kernel) -> bytes:
    """Return the archive from which web and idle boot."""
    image.HOME.mkdir(parents=True, exist_ok=True)
    target = image.HOME / "tile"
    options = ["-O2", "-Wall", "-Wextra", "-Werror", "-static", "-pthread"]
    call(["gcc", *options, "-o", target, GUEST / "init.c"], "compile the tile's init.c")
    archive = Archive()
    for folder in ("dev", "modules"):
        archive.directory(folder)
    archive.file("init", target.read_bytes(), 0o755)
    with tempfile.TemporaryDirectory() as folder:
        found = modules.extracted(kernel.modules, kernel.version, DRIVERS, Path(folder))
        for number, module in enumerate(found):
            archive.file(f"modules/{number:02}", modules.contents(module))
    return archive.finish()
