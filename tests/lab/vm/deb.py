# SPDX-License-Identifier: Apache-2.0
"""The Debian packages, built from the source package as Debian builds packages, in build/deb.

Usage: python3 -m vm.deb     build them and say where they are
"""

import os
import shutil
import sys
import tarfile
from pathlib import Path

from vm import packages
from vm.errors import LabError
from vm.paths import REPO
from vm.project import fingerprint, source_package
from vm.shell import call, lock, say

MORE = ("docs", "LICENSES")  # what is packaged and not installed in a VM
TARGET = REPO / "build" / "deb"
# Not in packages.txt: nothing else needs them, and the VM's root image would grow.
TOOLS = ("build-essential", "debhelper", "dh-apparmor", "dh-dkms", "dh-python", "pkgconf")


def build() -> list[Path]:
    """gangd_*.deb and gangd-dkms_*.deb, made anew when the sources have changed since."""
    packages.need(TOOLS, "they build the Debian packages")
    mark = TARGET / "fingerprint"
    with lock("deb"):
        if mark.exists() and mark.read_text() == fingerprint(*MORE):
            return sorted(TARGET.glob("*.deb"))
        before = fingerprint(*MORE)
        shutil.rmtree(TARGET, ignore_errors=True)
        TARGET.mkdir(parents=True)
        say("building the Debian packages")
        archive = source_package(TARGET)
        with tarfile.open(archive) as packed:
            packed.extractall(TARGET, filter="data")
        source = TARGET / archive.name.removesuffix(".tar.gz")
        # Debian's tools want this folder at the top.
        (source / "systemd" / "debian").rename(source / "debian")
        os.environ["DEB_BUILD_OPTIONS"] = "noautodbgsym"
        call(["dpkg-buildpackage", "--build=binary", "--no-sign"], "build the packages", cwd=source)
        shutil.rmtree(source)
        mark.write_text(before)
    return sorted(TARGET.glob("*.deb"))


def main() -> int:
    """Returns the exit status."""
    try:
        for package in build():
            print(package.relative_to(REPO))
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
