# SPDX-License-Identifier: Apache-2.0
"""The initrd of a stock Linux guest: drivers of the row's own kernel, busybox, hackbench, and its orders.

It is made outside the VM, which is slow: the modules are read from the row's image without mounting it.
"""

from __future__ import annotations

import re
from pathlib import Path

from labkit import modules
from labkit.cpio import Archive
from labkit.errors import LabError
from labkit.kernels import Kernel
from labkit.shell import call

from linux_guests.guest import INIT

DRIVERS = ("virtio_pci", "virtio_blk", "virtio_net")
BUSYBOX, HACKBENCH = Path("/usr/bin/busybox"), Path("/usr/bin/hackbench")


def pack(kernel: Kernel, work: Path) -> bytes:
    """The archive's bytes; what is taken from the image is left in `work`."""
    archive = Archive()
    for folder in ("dev", "proc", "sys", "tmp"):
        archive.directory(folder)
    for number, module in enumerate(_drivers(kernel, work)):
        archive.file(f"modules/{number:02}-{module.name.split('.ko')[0]}.ko", modules.contents(module))
    archive.file("bin/busybox", BUSYBOX.read_bytes(), 0o755)
    for file in (HACKBENCH, *_libraries(HACKBENCH)):
        archive.file(str(file).lstrip("/"), file.read_bytes(), 0o755)
    archive.file("init", INIT.encode(), 0o755)
    return archive.finish()


def _drivers(kernel: Kernel, work: Path) -> list[Path]:
    """Read the drivers into `work` and return them in loading order."""
    work.mkdir(parents=True, exist_ok=True)
    for index in ("modules.dep", "modules.builtin"):
        _read(kernel, index, work)
    found = modules.load_order(work, DRIVERS)
    for module in found:
        _read(kernel, str(module.relative_to(work)), work)
    return found


def _read(kernel: Kernel, name: str, work: Path) -> None:
    """Read one file out of the row's image; debugfs tells of a failure only by a file that is not there."""
    target = work / name
    target.parent.mkdir(parents=True, exist_ok=True)
    order = f"dump /usr/lib/modules/{kernel.version}/{name} {target}"
    call(["debugfs", "-R", order, kernel.modules], f"read {kernel.modules.name}")
    if not target.exists() or not target.stat().st_size:
        raise LabError(f"cannot make the guests of kernel {kernel.row.name}: its image has no {name}")


def _libraries(program: Path) -> list[Path]:
    """The shared objects that it is loaded with, its loader among them."""
    return [Path(found) for found in re.findall(r"(/\S+) \(0x", call(["ldd", program], f"read {program}"))]
