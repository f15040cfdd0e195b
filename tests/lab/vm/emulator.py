# SPDX-License-Identifier: Apache-2.0
"""The QEMU that lab VMs run on: Debian's source with patches/qemu, compiled once.

Debian's own binary loses guests (docs/upstream/qemu-svm.md) and has no clock that lets several emulated
CPUs run side by side on a machine that is busy with something else; decision 28 has the reasons.
"""

import hashlib
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from vm import archive, compiling, packages
from vm.errors import LabError
from vm.paths import BUILD
from vm.shell import call, lock, say

PATCHES = Path(__file__).with_name("patches") / "qemu"
HOME = BUILD / "emulator"
POOL = "pool/main/q/qemu"
# What only building it needs.
PACKAGES = (
    *("gcc", "libattr1-dev", "libc6-dev", "libglib2.0-dev", "meson", "ninja-build", "patch"),
    *("python3-pycotap", "python3-setuptools", "python3-tomli", "python3-venv", "xz-utils", "zlib1g-dev"),
)
# One machine, one accelerator, and of the devices those that vm.qemu names.
CONFIGURE = (
    *("--target-list=x86_64-softmmu", "--without-default-features", "--enable-system", "--enable-tcg"),
    *("--disable-kvm", "--enable-attr", "--enable-virtfs", "--enable-coroutine-pool", "--disable-user"),
    *("--disable-tools", "--disable-docs", "--disable-guest-agent", "--disable-install-blobs"),
    *("--disable-relocatable", "--disable-debug-info", "--disable-qom-cast-debug", "--disable-werror"),
    *("--disable-download", "--audio-drv-list=", "--prefix=/usr"),
    "--firmwarepath=/usr/share/qemu:/usr/share/seabios",
)


@dataclass(frozen=True)
class Source:
    """A release that Debian's archive holds; which files it may be is known by their SHA256."""

    version: str
    sha256: str

    @property
    def file(self) -> str:
        """The source's file name in the archive."""
        return f"qemu_{self.version}.orig.tar.xz"


SOURCE = Source("10.2.2+ds", "be05230fe47a6937cd29f28f562932c8125f9c93c2a82c625198f7a4aa601dfb")


def program() -> Path:
    """The emulator, built unless that has been done from this source with these patches."""
    found, mark = HOME / "qemu-system-x86_64", HOME / "mark"
    with lock("emulator"):
        if not (found.exists() and mark.exists() and mark.read_text() == fingerprint()):
            mark.unlink(missing_ok=True)
            _build(found)
            mark.write_text(fingerprint())
    return found


def fingerprint() -> str:
    """A hash of everything the emulator is made from."""
    digest = hashlib.sha256("\0".join([SOURCE.sha256, *CONFIGURE]).encode())
    for patch in patches():
        digest.update(patch.read_bytes())
    return digest.hexdigest()


def patches() -> list[Path]:
    """Return the patches in the order in which they are applied."""
    return sorted(PATCHES.glob("*.patch"))


def _build(target: Path) -> None:
    begin = time.monotonic()
    packages.need(PACKAGES, "the lab's emulator is compiled with them")
    tree = _tree(BUILD / "emulator.build")
    out = tree / "out"
    out.mkdir()
    call(["../configure", *CONFIGURE], f"configure {tree.name}", cwd=out)
    say(f"compiling {tree.name} at low priority: a quarter of an hour of CPU time")
    compiling.run(out, ["ninja", f"-j{len(os.sched_getaffinity(0))}", target.name])
    target.parent.mkdir(parents=True, exist_ok=True)
    call(["strip", "-o", target, out / target.name], f"strip {target.name}")
    shutil.rmtree(tree.parent)
    say(f"built {target.name} in {(time.monotonic() - begin) / 60:.0f} minutes")


def _tree(home: Path) -> Path:
    """The source, unpacked and patched."""
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    packed = archive.fetch_pool(POOL, SOURCE.file, SOURCE.sha256, BUILD / "sources")
    say(f"unpacking {packed.name}")
    call(["tar", "-C", home, "--no-same-owner", "-xf", packed], f"unpack {packed.name}")
    trees = [path.parent for path in home.glob("*/configure")]
    if len(trees) != 1:
        raise LabError(f"cannot build the emulator: {packed.name} holds {len(trees)} trees instead of one")
    for patch in patches():
        call(["patch", "-p1", "--fuzz=0", "-i", patch], f"apply {patch.name}", cwd=trees[0])
    return trees[0]
