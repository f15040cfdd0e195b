# SPDX-License-Identifier: Apache-2.0
"""The RPM packages, built from the source package by rpmbuild, in build/rpm.

Debian's rpm has none of the macros of Fedora and openSUSE, and dpkg knows what the build requires. So these
packages show that systemd/rpm/gangd.spec builds and what it packs; a distribution builds its own.

Usage: python3 -m vm.rpm     build them and say where they are
"""

import shutil
import sys
from pathlib import Path

from vm import packages
from vm.errors import LabError
from vm.paths import REPO
from vm.project import fingerprint, source_package
from vm.shell import call, lock, say

MORE = ("docs", "LICENSES")  # what is packaged and not installed in a VM
TARGET = REPO / "build" / "rpm"
TOOLS = ("file", "rpm")


def build() -> list[Path]:
    """gangd-*.rpm and gangd-dkms-*.rpm, made anew when the sources have changed since."""
    packages.need(TOOLS, "they build the RPM packages")
    mark = TARGET / "fingerprint"
    with lock("rpm"):
        if mark.exists() and mark.read_text() == fingerprint(*MORE):
            return sorted(TARGET.glob("*.rpm"))
        before = fingerprint(*MORE)
        shutil.rmtree(TARGET, ignore_errors=True)
        TARGET.mkdir(parents=True)
        say("building the RPM packages")
        macros = {
            "_topdir": TARGET / "tree",
            "_rpmdir": TARGET,
            "debug_package": "%{nil}",
            "_rpmfilename": "%%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm",
        }
        words = [word for name, value in macros.items() for word in ("--define", f"{name} {value}")]
        source = source_package(TARGET)
        call(["rpmbuild", "-tb", "--quiet", "--nodeps", *words, source], "build the packages")
        shutil.rmtree(TARGET / "tree")
        mark.write_text(before)
    return sorted(TARGET.glob("*.rpm"))


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
