# SPDX-License-Identifier: Apache-2.0
"""gang.ko on every kernel of kernels.toml: it builds without a warning for all of them, and does on those
that boot what vm_tests/module.py says. One bare boot each; everything on the rows that need it, 6.1 and 6.12,
loading and unloading on the others. Then libvirt guests are scheduled by it: vm_tests/fallback.py, one boot.
"""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from labkit import kmod, packages
from labkit.kernels import Row, rows
from labkit.paths import MODULE_SOURCE, REPO
from vm_tests import outside

pytestmark = pytest.mark.lab

ROWS = {name: row for name, row in rows().items() if not row.apart}
FULL = ("6.1", "6.12")
LIBVIRT = "6.12"
PACKAGED = "6.18"  # its compiler is the toolbox's own
DKMS = ("dkms", "pahole")
VERSION = re.search(r'^PACKAGE_VERSION="(.+)"', (MODULE_SOURCE / "dkms.conf").read_text(), re.MULTILINE)[1]  # type: ignore[index]
CASES = [
    (name, check)
    for name, row in ROWS.items()
    if not row.unbootable
    for check in outside.checks("module", ("check_", "full_") if name in FULL else ("check_",))
]


@pytest.fixture(scope="module")
def boots() -> dict[str, outside.Boot]:
    """What came of each row, filled as rows are asked for."""
    return {}


def module_files(row: Row, folder: Path) -> list[Path]:
    """What vm_tests/module.py needs in the VM, made in `folder`: the module twice, and who misuses it."""
    shutil.copy(kmod.module(row), folder / "gang.ko")
    shutil.copy(kmod.module(row, debug=True), folder / "gang-debug.ko")
    fuzz = [outside.HERE / "fuzz.c", f"-I{MODULE_SOURCE}/include", "-o", folder / "fuzz"]
    subprocess.run(["gcc", "-O2", "-Wall", "-Werror", *fuzz], check=True)
    return sorted(folder.iterdir())


@pytest.mark.parametrize("row", ROWS)
def test_builds_without_a_warning(row: str) -> None:
    """One source builds for every kernel, also those that cannot be booted here, and make says nothing."""
    built = kmod.module(ROWS[row])
    assert built.exists()
    assert kmod.said(built) == ""


@pytest.mark.parametrize(("row", "check"), CASES, ids=[f"{row}-{check}" for row, check in CASES])
def test_module(
    boots: dict[str, outside.Boot], tmp_path_factory: pytest.TempPathFactory, row: str, check: str
) -> None:
    """The sentence is the docstring of the check."""
    if row not in boots:
        files = module_files(ROWS[row], tmp_path_factory.mktemp("files"))
        environment = {"GANGD_MODULE": "full" if row in FULL else "short"}
        share = tmp_path_factory.mktemp("module")
        boots[row] = outside.boot(
            row,
            ["module"],
            share,
            bare=True,
            timeout=220,
            environment=environment,
            files=files,
        )
    boots[row].require("module", check)


def test_dkms_installs_it(tmp_path: Path) -> None:
    """The two commands of the module's README, with trees of our own and Debian's headers: gang.ko is built
    with its BTF as Debian's own modules are, installed, and removed again without a trace."""
    packages.need(DKMS, "it installs gang.ko")
    kdir = kmod.headers(ROWS[PACKAGED])
    release, source, trees = kmod.release(kdir), tmp_path / "src", []
    for option, name in (("--sourcetree", "src"), ("--dkmstree", "dkms"), ("--installtree", "lib")):
        (tmp_path / name).mkdir()
        trees += [option, str(tmp_path / name)]
    (tmp_path / "lib" / release).mkdir()
    kernel = ["-k", release, "-a", "x86_64", "--kernelsourcedir", str(kdir), "--no-depmod"]

    def dkms(*words: str) -> str:
        done = subprocess.run(["dkms", *words, *trees], capture_output=True, text=True, check=False)
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


@pytest.fixture(scope="module")
def fallback(tmp_path_factory: pytest.TempPathFactory) -> outside.Boot:
    """What came of the checks with libvirt guests."""
    files = [kmod.module(ROWS[LIBVIRT]), REPO / "systemd" / "gangd-module.conf"]
    return outside.boot(LIBVIRT, ["fallback"], tmp_path_factory.mktemp("fallback"), files=files)


@pytest.mark.parametrize("check", outside.checks("fallback"))
def test_libvirt_guests(fallback: outside.Boot, check: str) -> None:
    """The sentence is the docstring of the check."""
    fallback.require("fallback", check)
