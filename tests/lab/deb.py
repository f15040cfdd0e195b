# SPDX-License-Identifier: Apache-2.0
"""The Debian packages, built from the source package as Debian builds packages, in build/deb.

Usage: python3 -m lab.deb     build them and say where they are
"""

import os
import shutil
import sys
import tarfile
from pathlib import Path

from lab import packaged
from lab.shell import call

# Not in packages.txt: nothing else needs them, and the VM's root image would grow.
TOOLS = ("build-essential", "debhelper", "dh-apparmor", "dh-dkms", "dh-python", "pkgconf")


def build() -> list[Path]:
    """gangd_*.deb and gangd-dkms_*.deb, made anew when the sources have changed since."""
    return packaged.build("deb", TOOLS, _pack)


def _pack(archive: Path, target: Path) -> None:
    with tarfile.open(archive) as packed:
        packed.extractall(target, filter="data")
    source = target / archive.name.removesuffix(".tar.gz")
    # Debian's tools want this folder at the top.
    (source / "systemd" / "debian").rename(source / "debian")
    os.environ["DEB_BUILD_OPTIONS"] = "noautodbgsym"
    call(["dpkg-buildpackage", "--build=binary", "--no-sign"], "build the packages", cwd=source)
    shutil.rmtree(source)


if __name__ == "__main__":
    sys.exit(packaged.main(build))
