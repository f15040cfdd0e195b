# SPDX-License-Identifier: Apache-2.0
"""Kernel modules: which ones a VM needs before it can see its disks, in loading order."""

from collections.abc import Sequence
from pathlib import Path

from lab import packing
from lab.errors import LabError
from lab.shell import call

# guest/init mounts these; ext4 asks for crc32c_generic by name on kernels before 6.16.
FILE_SYSTEMS = ("crc32c_generic", "ext4", "overlay")
# And what it finds its disks, ports and share with, by the row's machine and by what its disks are: in
# virtual time they are memory, and the share is a copy (lab/qemu.py). No more than that: an emulator is
# slow to check a module's signature. A PC's serial ports are built in; a kernel that is compiled here has no
# such memory.
MEMORY = ("virtio_pmem", "nd_pmem")
PORTS = ("virtio_pci", "virtio_console")
EARLY: dict[str, dict[str, tuple[str, ...]]] = {
    "qemu": {
        "disk": (*PORTS, "virtio_blk", *FILE_SYSTEMS, "9pnet_virtio", "9p"),
        "memory": (*PORTS, *MEMORY, *FILE_SYSTEMS),
    },
    "bochs": {"disk": ("ata_piix", "sd_mod", *FILE_SYSTEMS)},
}
OPTIONAL = frozenset({"crc32c_generic", *MEMORY})


def load_order(tree: Path, wanted: Sequence[str]) -> list[Path]:
    """The files of `wanted` and all they depend on, dependencies first; built-in ones need no file."""
    depends = _dependencies(tree / "modules.dep")
    by_name = {_name(path): path for path in depends}
    built_in = {_name(line) for line in (tree / "modules.builtin").read_text().split()}
    order: dict[str, None] = {}
    for name in wanted:
        if name in by_name:
            # modules.dep lists the deepest dependency last.
            for path in [*reversed(depends[by_name[name]]), by_name[name]]:
                order.setdefault(path)
        elif name not in built_in and name not in OPTIONAL:
            raise LabError(f"cannot boot the kernel of {tree}: it has no module {name}")
    return [tree / path for path in order]


def extracted(image: Path, version: str, wanted: Sequence[str], work: Path) -> list[Path]:
    """Read `wanted` and their dependencies out of a row's image into `work`; return them in loading order."""
    work.mkdir(parents=True, exist_ok=True)
    for index in ("modules.dep", "modules.builtin"):
        _extract(image, version, index, work)
    found = load_order(work, wanted)
    for module in found:
        _extract(image, version, str(module.relative_to(work)), work)
    return found


def _extract(image: Path, version: str, name: str, work: Path) -> None:
    """Read one file out of the image; debugfs tells of a failure only by a file that is not there."""
    target = work / name
    target.parent.mkdir(parents=True, exist_ok=True)
    call(["debugfs", "-R", f"dump /usr/lib/modules/{version}/{name} {target}", image], f"read {image.name}")
    if not target.exists() or not target.stat().st_size:
        raise LabError(f"cannot read the modules of kernel {version}: its image has no {name}")


def contents(path: Path) -> bytes:
    """A module's bytes, decompressed: busybox's insmod takes plain files only."""
    return packing.unpacked(path.read_bytes())


def _dependencies(file: Path) -> dict[str, list[str]]:
    table: dict[str, list[str]] = {}
    for line in file.read_text().splitlines():
        path, _, rest = line.partition(":")
        table[path] = rest.split()
    return table


def _name(path: str) -> str:
    return path.rsplit("/", 1)[-1].split(".ko", 1)[0].replace("-", "_")
