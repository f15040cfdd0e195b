# SPDX-License-Identifier: Apache-2.0
"""gang.ko on every kernel of kernels.toml: it builds without a warning for all of them, and does on those
that boot what vm_tests/module.py says. One bare boot each; everything on the rows that need it, 6.1 and 6.12,
loading and unloading on the others.
"""

import shutil
import subprocess
from pathlib import Path

import pytest
from labkit import kmod
from labkit.kernels import Row, rows
from labkit.paths import MODULE_SOURCE
from vm_tests import outside

pytestmark = pytest.mark.lab

ROWS = {name: row for name, row in rows().items() if not row.apart}
FULL = ("6.1", "6.12")
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
