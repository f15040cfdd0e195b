# SPDX-License-Identifier: Apache-2.0
"""The initrd of the tile's own guests, web and idle; those of the other guests are the seeds'."""

from __future__ import annotations

from pathlib import Path

from bench.seeds import image
from lab.kernels import Kernel
from lab.meaning import meaning

GUEST = Path(__file__).with_name("guest")
DRIVERS = ("virtio_pci", "virtio_net")


def fingerprint() -> str:
    """A hash of what runs in the guests, and of how they are run."""
    here = Path(__file__).parent
    ours = [here / f"{name}.py" for name in ("arms", "image", "parties")]
    return meaning([*sorted(GUEST.iterdir()), *ours]) + image.fingerprint()


def initrd(kernel: Kernel) -> bytes:
    """Return the archive from which web and idle boot."""
    return image.with_drivers(GUEST / "init.c", kernel, DRIVERS)
