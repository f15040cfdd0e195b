# SPDX-License-Identifier: Apache-2.0
"""Fetches etcd, which Debian has and the toolbox has not, into build/fleet/etcd."""

from __future__ import annotations

from pathlib import Path

from lab import archive
from lab.shell import call

FOLDER = Path(__file__).resolve().parents[3] / "build/fleet"


def main() -> None:
    """Unpack it, unless it is there."""
    if not (FOLDER / "etcd").exists():
        (package,) = archive.fetch("trixie", ["etcd-server"], FOLDER)
        call(["dpkg-deb", "--extract", str(package), str(FOLDER / "etcd")], "unpack etcd")


if __name__ == "__main__":
    main()
