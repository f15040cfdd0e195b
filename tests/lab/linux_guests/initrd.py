# SPDX-License-Identifier: Apache-2.0
"""The initrd of a stock Linux guest: drivers of the row's own kernel, busybox, hackbench, and its orders.

It is made outside the VM, which is slow: the modules are read from the row's image without mounting it.
"""

from __future__ import annotations

from pathlib import Path

from experiments.seeds.image import libraries
from vm import modules
from vm.cpio import Archive
from vm.kernels import Kernel

from linux_guests.guest import INIT

DRIVERS = ("virtio_pci", "virtio_blk", "virtio_net")
BUSYBOX, HACKBENCH = Path("/usr/bin/busybox"), Path("/usr/bin/hackbench")


def pack(kernel: Kernel, work: Path) -> bytes:
    """The archive's bytes; what is taken from the image is left in `work`."""
    archive = Archive()
    for folder in ("dev", "proc", "sys", "tmp"):
        archive.directory(folder)
    for number, module in enumerate(modules.extracted(kernel.modules, kernel.version, DRIVERS, work)):
        archive.file(f"modules/{number:02}-{module.name.split('.ko')[0]}.ko", modules.contents(module))
    archive.file("bin/busybox", BUSYBOX.read_bytes(), 0o755)
    for file in (HACKBENCH, *libraries(HACKBENCH)):
        archive.file(str(file).lstrip("/"), file.read_bytes(), 0o755)
    archive.file("init", INIT.encode(), 0o755)
    return archive.finish()
