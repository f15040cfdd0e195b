# SPDX-License-Identifier: Apache-2.0
"""libvirt's modular daemon for QEMU, with its units. Debian 13 compiles it and packages it nowhere
(debian/not-installed of libvirt), so it is compiled here from the same release, against the libvirt that
Debian does package: only the daemon's own objects, since the driver is a module that the packages have.
"""

import re
import shutil
from pathlib import Path

from lab import archive, compiling, packages
from lab.paths import BUILD
from lab.shell import call, lock

POOL, FILE = "pool/main/libv/libvirt", "libvirt_11.3.0.orig.tar.xz"
SHA256 = "6bcb0c42c4580436fea262ced56f68a6afe20f7390b1bea2116718cc034a0283"
HOME = BUILD / "virtqemud"
PACKAGES = (
    *("gcc", "libglib2.0-dev", "libgnutls28-dev", "libjson-c-dev", "libtirpc-dev", "libxml2-dev"),
    *("libxml2-utils", "meson", "ninja-build", "rpcsvc-proto", "xsltproc", "xz-utils"),
)
OPTIONS = (
    *("--prefix=/usr", "--libdir=lib/x86_64-linux-gnu", "--sysconfdir=/etc", "--localstatedir=/var"),
    *("-Drunstatedir=/run", "-Dinitconfdir=/etc/default", "-Dauto_features=disabled", "-Ddocs=disabled"),
    *("-Dtests=disabled", "-Dno_git=true", "-Dinit_script=systemd", "-Ddriver_remote=enabled"),
    *("-Ddriver_libvirtd=enabled", "-Ddriver_qemu=enabled", "-Djson_c=enabled"),
    *("-Dqemu_user=libvirt-qemu", "-Dqemu_group=libvirt-qemu"),
)
ADMIN = "src/admin/libvirt_admin_driver.a"
LIBRARIES = ("libvirt.so.0", "libvirt-lxc.so.0", "libvirt-qemu.so.0")  # no package has their links for ld
UNITS = ("virtqemud.service", "virtqemud.socket", "virtqemud-ro.socket", "virtqemud-admin.socket")


def files() -> list[Path]:
    """The program and its units, made unless they have been from this source."""
    found, mark = [HOME / name for name in ("virtqemud", *UNITS)], HOME / "mark"
    made_from = "\0".join([SHA256, *OPTIONS])
    with lock("virtqemud"):
        if not (mark.exists() and mark.read_text() == made_from):
            _build()
            mark.write_text(made_from)
    return found


def _build() -> None:
    packages.need(PACKAGES, "virtqemud is compiled with them")
    home = BUILD / "virtqemud.build"
    for folder in (home, HOME):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    packed = archive.fetch_pool(POOL, FILE, SHA256, BUILD / "sources")
    call(["tar", "-C", home, "--strip-components=1", "--no-same-owner", "-xf", packed], f"unpack {FILE}")
    out = home / "out"
    call(["meson", "setup", *OPTIONS, out, home], "configure libvirt")
    targets = call(["ninja", "-C", out, "-t", "targets", "all"], "list what libvirt is made of")
    objects = re.findall(r"^(src/virtqemud\.p/\S+\.o):", targets, re.MULTILINE)
    compiling.run(out, ["ninja", *objects, ADMIN])
    words = ["gcc", "-pie", "-Wl,-export-dynamic", "-s", "-o", HOME / "virtqemud", *objects, ADMIN]
    words += [f"-l:{name}" for name in LIBRARIES]
    words += ["-lgnutls", "-lgobject-2.0", "-lgio-2.0", "-lglib-2.0", "-lxml2", "-ltirpc"]
    call(words, "link virtqemud", cwd=out)
    for unit in UNITS:
        shutil.copy(out / "src" / unit, HOME)
    shutil.rmtree(home)
