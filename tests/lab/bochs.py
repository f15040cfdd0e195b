# SPDX-License-Identifier: Apache-2.0
"""Bochs, the emulator of the Intel row: Debian's source with patches/bochs, compiled once.

It emulates what QEMU's TCG does not: VMX with pause-loop exiting and APICv (docs/decisions/0030). Debian's
own binary is built with a debugger, which makes it slow, and brings a desktop's libraries along.
"""

import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from lab import archive, compiling, packages
from lab.paths import BUILD
from lab.shell import call, lock, say
from lab.source import Source

HOME = BUILD / "bochs"
SOURCE = Source(
    "pool/main/b/bochs",
    "bochs_3.0+dfsg.orig.tar.xz",
    "78f6c73d4a6472d5130a87ab9dc306d02c7c71ed8e25b3a8ef642e2a7acd282b",
    patches="bochs",
)
BUILD_PACKAGES = ("g++", "libc6-dev", "make", "patch", "xz-utils")
# No debugger, no screen, and no device that a server would not have.
CONFIGURE = (
    *("--enable-cpu-level=6", "--enable-x86-64", "--enable-smp", "--enable-all-optimizations"),
    *("--enable-vmx=2", "--enable-svm", "--enable-avx", "--enable-evex", "--enable-protection-keys"),
    *("--disable-debugger", "--disable-docbook", "--with-nogui", "CXXFLAGS=-O2 -w", "CFLAGS=-O2 -w"),
)
# A PC needs these before its disks: the packages are only unpacked, none of this runs here.
FIRMWARE_SUITE = "trixie"
FIRMWARE = {
    "bochsbios": "usr/share/bochs/BIOS-bochs-latest",
    "vgabios": "usr/share/vgabios/vgabios.bin",
    "isolinux": "usr/lib/ISOLINUX/isolinux.bin",
    "syslinux-common": "usr/lib/syslinux/modules/bios/ldlinux.c32",
}


@dataclass(frozen=True)
class Installed:
    """The emulator and what it boots with."""

    program: Path
    bios: Path
    vga: Path
    isolinux: Path
    ldlinux: Path


def installed() -> Installed:
    """Return program and firmware, built and fetched unless that was done from these sources and patches."""
    found = Installed(HOME / "bochs", *(HOME / Path(path).name for path in FIRMWARE.values()))
    mark = HOME / "mark"
    with lock("bochs"):
        wanted = fingerprint()  # a patch that changes meanwhile is not in what is built
        if not (mark.exists() and mark.read_text() == wanted):
            mark.unlink(missing_ok=True)
            HOME.mkdir(parents=True, exist_ok=True)
            _fetch_firmware()
            _build(found.program)
            mark.write_text(wanted)
    return found


def fingerprint() -> str:
    """A hash of everything the emulator is made from."""
    return SOURCE.fingerprint(*CONFIGURE, *FIRMWARE.values())


def _fetch_firmware() -> None:
    unpacked = HOME / "firmware.new"
    shutil.rmtree(unpacked, ignore_errors=True)
    for package in archive.fetch(FIRMWARE_SUITE, list(FIRMWARE), BUILD / "sources"):
        call(["dpkg-deb", "-x", package, unpacked], f"unpack {package.name}")
    for path in FIRMWARE.values():
        shutil.copy(unpacked / path, HOME)
    shutil.rmtree(unpacked)


def _build(target: Path) -> None:
    begin = time.monotonic()
    packages.need(BUILD_PACKAGES, "the emulator of the Intel row is compiled with them")
    tree = SOURCE.unpack(BUILD / "bochs.build")
    call(["./configure", *CONFIGURE], f"configure {tree.name}", cwd=tree)
    say(f"compiling {tree.name} at low priority: five minutes of CPU time")
    compiling.run(tree, ["make", f"-j{len(os.sched_getaffinity(0))}"])
    call(["strip", "-o", target, tree / "bochs"], "strip bochs")
    shutil.rmtree(tree.parent)
    say(f"built bochs in {(time.monotonic() - begin) / 60:.0f} minutes")
