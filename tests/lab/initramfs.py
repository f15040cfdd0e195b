# SPDX-License-Identifier: Apache-2.0
"""Packs the initramfs of one VM: busybox, the early modules, the guest scripts and the command."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.cpio import Archive
from lab.kernels import Kernel
from lab.paths import ROOT_FILES

BUSYBOX = Path("/usr/bin/busybox")
APPLETS = ("sh", "cat", "cp", "insmod", "ln", "mkdir", "mount", "rm", "switch_root")
SCRIPTS = ("bare", "runner", "save", "lab.service", "qemu.conf")


@dataclass(frozen=True)
class Orders:
    """The orders for the VM. share: whether a folder outside appears in it; shared: that folder, if it is
    copied; disks: the names of the disks that are memory, in the kernel's order."""

    command: Sequence[str]
    mark: bytes
    bare: bool
    share: bool
    interactive: bool
    shared: Path | None = None
    disks: Sequence[str] = ()


def pack(kernel: Kernel, orders: Orders, files: Mapping[str, bytes] | None = None) -> bytes:
    """The archive's bytes. Uncompressed: unpacking would take longer under emulation than copying.

    files: what is to be found in /lab/files, executable.
    """
    archive = Archive()
    for folder in ("dev", "proc", "sys"):
        archive.directory(folder)
    archive.file("bin/busybox", BUSYBOX.read_bytes(), 0o755)
    for applet in APPLETS:
        archive.symlink(f"bin/{applet}", "busybox")
    archive.file("init", (ROOT_FILES / "init").read_bytes(), 0o755)
    for module in kernel.early["memory" if orders.disks else "disk"]:
        archive.file(f"lab/modules/{module.name}", module.read_bytes())
    for script in (ROOT_FILES / name for name in SCRIPTS):
        archive.file(f"lab/{script.name}", script.read_bytes(), script.stat().st_mode & 0o777)
    archive.file("lab/command", script_of(orders.command).encode(), 0o755)
    archive.file("lab/mark", orders.mark)
    for name, content in (files or {}).items():
        archive.file(f"lab/files/{name}", content, 0o755)
    if orders.shared:
        _copy(archive, orders.shared)
    if orders.disks:
        archive.file("lab/disks", "".join(f"{name}\n" for name in orders.disks).encode())
    flags = {"bare-mode": orders.bare, "share": orders.share, "interactive": orders.interactive}
    for name, wanted in flags.items():
        if wanted:
            archive.file(f"lab/{name}", b"")
    return archive.finish()


def _copy(archive: Archive, folder: Path) -> None:
    """Copy everything below `folder` to /lab/shared."""
    archive.directory("lab/shared")
    for path in sorted(folder.rglob("*")):
        name = f"lab/shared/{path.relative_to(folder)}"
        if path.is_dir():
            archive.directory(name)
        elif path.is_file():
            archive.file(name, path.read_bytes(), path.stat().st_mode & 0o777)


def script_of(command: Sequence[str]) -> str:
    """Return the script: one word is a line for the shell, several are a program and its arguments."""
    words = ["sh", "-c", command[0]] if len(command) == 1 else command
    return f"#!/bin/sh\nexec {shlex.join(words)}\n"
