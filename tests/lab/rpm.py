# SPDX-License-Identifier: Apache-2.0
"""The RPM packages, built from the source package by rpmbuild, in build/rpm.

Debian's rpm has none of the macros of Fedora and openSUSE, and dpkg knows what the build requires. So these
packages show that systemd/rpm/gangd.spec builds and what it packs; a distribution builds its own.

Usage: python3 -m lab.rpm     build them and say where they are
"""

import shutil
import sys
from pathlib import Path

from lab import packaged
from lab.shell import call

TOOLS = ("file", "rpm")


def build() -> list[Path]:
    """gangd-*.rpm and gangd-dkms-*.rpm, made anew when the sources have changed since."""
    return packaged.build("rpm", TOOLS, _pack)


def _pack(source: Path, target: Path) -> None:
    macros = {
        "_topdir": target / "tree",
        "_rpmdir": target,
        "debug_package": "%{nil}",
        "_rpmfilename": "%%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm",
    }
    words = [word for name, value in macros.items() for word in ("--define", f"{name} {value}")]
    call(["rpmbuild", "-tb", "--quiet", "--nodeps", *words, source], "build the packages")
    shutil.rmtree(target / "tree")


if __name__ == "__main__":
    sys.exit(packaged.main(build))
