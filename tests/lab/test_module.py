# SPDX-License-Identifier: Apache-2.0
"""gang.ko: it builds without a warning for every kernel of kernels.toml, DKMS installs it, and it schedules
libvirt guests (vm_tests/fallback.py, one boot). What it does on each kernel: see test_kernels.py.
"""

import os
import re
import subprocess
from pathlib import Path

import pytest
from labkit import kmod, packages
from labkit.kernels import rows
from labkit.paths import MODULE_SOURCE, REPO
from labkit.qemu import Clock
from vm_tests import outside

pytestmark = pytest.mark.lab

ROWS = {name: row for name, row in rows().items() if not row.apart}
LIBVIRT = "6.12"
TIMEOUT = 1200
PACKAGED = ("6.1", "6.12", "6.18", "7.2")
OWN = "6.18"  # its compiler is the toolbox's own; with the others' headers apt would install theirs
COMPILER = os.environ | {"MAKEFLAGS": "CC=gcc"}
DKMS = ("dkms", "pahole")
VERSION = re.search(r'^PACKAGE_VERSION="(.+)"', (MODULE_SOURCE / "dkms.conf").read_text(), re.MULTILINE)[1]  # type: ignore[index]


@pytest.mark.parametrize("row", ROWS)
def test_builds_without_a_warning(row: str) -> None:
    """One source builds for every kernel, also those that cannot be booted here, and make says nothing."""
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


@pytest.fixture
def fallback(boots: outside.Boots) -> outside.Boot:
    """The results of the checks with libvirt guests."""
    files = [kmod.module(ROWS[LIBVIRT]), REPO / "systemd" / "gangd-module.conf"]

    def boot(share: Path) -> outside.Boot:
        return outside.boot(LIBVIRT, ["fallback"], share, files=files, timeout=TIMEOUT, clock=Clock.VIRTUAL)

    return boots("fallback", LIBVIRT, boot)


@outside.together("kernel", LIBVIRT)  # after that shorter boot, not last of all
@pytest.mark.parametrize("check", outside.checks("fallback"))
def test_libvirt_guests(fallback: outside.Boot, check: str) -> None:
    """The sentence is the docstring of the check."""
    fallback.require("fallback", check)


@outside.together("kernel", LIBVIRT)  # after that shorter boot, not last of all
def test_the_kernel_was_quiet(fallback: outside.Boot) -> None:
    """Nothing is in its log that no check provoked, and the script came to its end."""
    fallback.require_quiet()
