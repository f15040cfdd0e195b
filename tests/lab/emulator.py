# SPDX-License-Identifier: Apache-2.0
"""The QEMU that lab VMs run on: Debian's source with patches/qemu, compiled once.

Debian's own binary loses guests (docs/upstream/qemu-svm.md) and has no clock that lets several emulated
CPUs run side by side on a machine that is busy with something else; decision 28 has the reasons.
"""

import os
import shutil
import time
from pathlib import Path

from lab import compiling, packages
from lab.paths import BUILD
from lab.shell import call, lock, say
from lab.source import Source

HOME = BUILD / "emulator"
SOURCE = Source(
    "pool/main/q/qemu",
    "qemu_10.2.2+ds.orig.tar.xz",
    "be05230fe47a6937cd29f28f562932c8125f9c93c2a82c625198f7a4aa601dfb",
    patches="qemu",
)
# Only building it needs these.
PACKAGES = (
    *("gcc", "libattr1-dev", "libc6-dev", "libglib2.0-dev", "meson", "ninja-build", "patch"),
    *("python3-pycotap", "python3-setuptools", "python3-tomli", "python3-venv", "xz-utils", "zlib1g-dev"),
)
# One machine, one accelerator, and of the devices those that lab.qemu names.
CONFIGURE = (
    *("--target-list=x86_64-softmmu", "--without-default-features", "--enable-system", "--enable-tcg"),
    *("--disable-kvm", "--enable-attr", "--enable-virtfs", "--enable-coroutine-pool", "--disable-user"),
    *("--disable-tools", "--disable-docs", "--disable-guest-agent", "--disable-install-blobs"),
    *("--disable-relocatable", "--disable-debug-info", "--disable-qom-cast-debug", "--disable-werror"),
    *("--disable-download", "--audio-drv-list=", "--prefix=/usr"),
    "--firmwarepath=/usr/share/qemu:/usr/share/seabios",
)


def program() -> Path:
    """The emulator, built unless that has been done from this source with these patches."""
    found, mark = HOME / "qemu-system-x86_64", HOME / "mark"
    with lock("emulator"):
        wanted = fingerprint()  # a patch that changes meanwhile is not in what is built
        if not (found.exists() and mark.exists() and mark.read_text() == wanted):
            mark.unlink(missing_ok=True)
            _build(found)
            mark.write_text(wanted)
    return found


def fingerprint() -> str:
    """A hash of everything the emulator is made from."""
    return SOURCE.fingerprint(*CONFIGURE)


def _build(target: Path) -> None:
    begin = time.monotonic()
    packages.need(PACKAGES, "the lab's emulator is compiled with them")
    tree = SOURCE.unpack(BUILD / "emulator.build")
    out = tree / "out"
    out.mkdir()
    call(["../configure", *CONFIGURE], f"configure {tree.name}", cwd=out)
    say(f"compiling {tree.name} at low priority: a quarter of an hour of CPU time")
    compiling.run(out, ["ninja", f"-j{len(os.sched_getaffinity(0))}", target.name])
    target.parent.mkdir(parents=True, exist_ok=True)
    call(["strip", "-o", target, out / target.name], f"strip {target.name}")
    shutil.rmtree(tree.parent)
    say(f"built {target.name} in {(time.monotonic() - begin) / 60:.0f} minutes")
