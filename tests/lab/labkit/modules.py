# SPDX-License-Identifier: Apache-2.0
"""Kernel modules: which ones a VM needs before it can see its disks, in loading order."""

import lzma
import subprocess
from collections.abc import Sequence
from pathlib import Path

from labkit.errors import LabError

# What guest/init mounts, crc32c_generic: ext4 asks for it by name on kernels before 6.16.
FILE_SYSTEMS = ("crc32c_generic", "ext4", "overlay")
# And what it finds its disks and ports with, by the row's machine. A PC's serial ports are built in.
# Disks are memory in virtual time (labkit/qemu.py); a kernel that is compiled here does not run in it.
MEMORY = ("virtio_pmem", "nd_pmem")
EARLY = {
    "qemu": ("virtio_pci", "virtio_blk", "virtio_console", *MEMORY, *FILE_SYSTEMS, "9pnet_virtio", "9p"),
    "bochs": ("ata_piix", "sd_mod", *FILE_SYSTEMS),
}
OPTIONAL = frozenset({"crc32c_generic", *MEMORY})


def load_order(tree: Path, wanted: Sequence[str] = EARLY["qemu"]) -> list[Path]:
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


def contents(path: Path) -> bytes:
    """A module's bytes, decompressed: busybox's insmod takes plain files only."""
    if path.suffix == ".xz":
        return lzma.decompress(path.read_bytes())
    if path.suffix == ".zst":
        return subprocess.run(["zstd", "-dcq", str(path)], check=True, capture_output=True).stdout
    return path.read_bytes()


def _dependencies(file: Path) -> dict[str, list[str]]:
    table: dict[str, list[str]] = {}
    for line in file.read_text().splitlines():
        path, _, rest = line.partition(":")
        table[path] = rest.split()
    return table


def _name(path: str) -> str:
    return path.rsplit("/", 1)[-1].split(".ko", 1)[0].replace("-", "_")
