# SPDX-License-Identifier: Apache-2.0
"""gang.ko: it builds without a warning for every kernel of kernels.toml, and DKMS installs it. What it does
there: see boots/table.py.
"""

import os
import re
import subprocess
from pathlib import Path

import pytest

from lab import kmod, packages
from lab.kernels import rows
from lab.paths import MODULE_SOURCE

pytestmark = pytest.mark.lab

ROWS = {name: row for name, row in rows().items() if not row.apart and row.builds_modules}
PACKAGED = ("6.1", "6.12", "6.18", "7.2")
OWN = "6.18"  # its compiler is the toolbox's own; with the others' headers apt would install theirs
COMPILER = os.environ | {"MAKEFLAGS": "CC=gcc"}
DKMS = ("dkms", "pahole")
VERSION = re.search(r'^PACKAGE_VERSION="(.+)"', (MODULE_SOURCE / "dkms.conf").read_text(), re.MULTILINE)[1]  # type: ignore[index]


@pytest.mark.parametrize("row", ROWS)
def test_builds_without_a_warning(row: str) -> None:
    """The source builds for every kernel, also those that cannot be booted here, and make says nothing."""
    built = kmod.module(ROWS[row])
    assert built.exists()
    assert kmod.said(built) == ""


@pytest.mark.parametrize("row", PACKAGED)
def test_dkms_installs_it(row: str, tmp_path: Path) -> None:
    """The two commands of the module's README, with trees of our own and Debian's headers: gang.ko is built
    with its BTF as Debian's own modules are, installed, and removed again without a trace."""
    packages.need(DKMS, "it installs gang.ko")
    kdir = kmod.headers(ROWS[row])
    env = None if row == OWN else COMPILER
    release, source, trees = kmod.release(kdir), tmp_path / "src", []
    for option, name in (("--sourcetree", "src"), ("--dkmstree", "dkms"), ("--installtree", "lib")):
        (tmp_path / name).mkdir()
        trees += [option, str(tmp_path / name)]
    (tmp_path / "lib" / release).mkdir()
    kernel = ["-k", release, "-a", "x86_64", "--kernelsourcedir", str(kdir), "--no-depmod"]

    def dkms(*words: str) -> str:
        command = ["dkms", *words, *trees]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
        logs = [log.read_text() for log in tmp_path.glob("dkms/gang/*/build/make.log")]
        assert done.returncode == 0, "\n".join([done.stdout, done.stderr, *logs])
        return done.stdout

    dkms("add", str(MODULE_SOURCE))
    dkms("install", f"gang/{VERSION}", *kernel)
    (built,) = (tmp_path / "lib" / release).rglob("gang.ko*")
    assert built.parent.name == "dkms"
    assert "installed" in dkms("status", f"gang/{VERSION}")
    dkms("remove", f"gang/{VERSION}", "--all", "--no-depmod")
    assert not list((tmp_path / "lib").rglob("gang.ko*"))
    assert not list(source.glob("gang-*/module/*.o"))
