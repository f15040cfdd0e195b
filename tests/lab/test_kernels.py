# SPDX-License-Identifier: Apache-2.0
"""Every kernel of kernels.toml: what its row promises is what gangd finds there; gang.ko does what it should,
and the rest of the host may be hostile. One bare boot each.

The checks are in vm_tests/kernel.py, module.py and hostile.py. A check that is left out on a row has its
reason in the row (and in tests/judge.py), and so has a row that is left out (test_debug.py has those).
"""

import shutil
import subprocess
from pathlib import Path

import pytest
from labkit import kmod, vm
from labkit.errors import LabError
from labkit.kernels import Row, rows
from labkit.paths import MODULE_SOURCE
from labkit.qemu import Clock
from vm_tests import outside

pytestmark = pytest.mark.lab

ROWS = rows()
BOOTABLE = {name: row for name, row in ROWS.items() if not row.unbootable and not row.apart}
UNBOOTABLE = sorted(name for name, row in ROWS.items() if row.unbootable)
MODULE_FULL = ("6.1", "6.12")  # where gang.ko is what gangd has
HOSTILE = ("6.18", "7.2-bpo")  # where tasks are pulled, and where they are pushed
TIMEOUT = 2400


def kinds(row: Row) -> tuple[str, ...]:
    """Prefixes of the checks of kernel.py that are for this row."""
    able = "able_" if row.features.sched_ext else "unable_"
    return ("check_", able, *(["kvm_"] if row.features.kvm else []))


def scripts(row: Row) -> dict[str, tuple[str, ...]]:
    """Return the scripts that run on a row, each with the prefixes of its checks."""
    module = ("check_", "full_") if row.name in MODULE_FULL else ("check_",)
    hostile = {"hostile": ("check_",)} if row.name in HOSTILE else {}
    return {"kernel": kinds(row), "module": module, **hostile}


def module_files(row: Row, folder: Path) -> list[Path]:
    """Make and return the files vm_tests/module.py needs, in `folder`: the module twice, and the fuzzer."""
    shutil.copy(kmod.module(row), folder / "gang.ko")
    shutil.copy(kmod.module(row, debug=True), folder / "gang-debug.ko")
    fuzz = [outside.HERE / "fuzz.c", f"-I{MODULE_SOURCE}/include", "-o", folder / "fuzz"]
    subprocess.run(["gcc", "-O2", "-Wall", "-Werror", *fuzz], check=True)
    return sorted(folder.iterdir())


CASES = [
    pytest.param(name, script, check, id=f"{name}-{script}-{check}", marks=outside.together("kernel", name))
    for name, row in BOOTABLE.items()
    for script, prefixes in scripts(row).items()
    for check in outside.checks(script, prefixes)
]
BOOTS = [pytest.param(row, id=row, marks=outside.together("kernel", row)) for row in BOOTABLE]


@pytest.fixture
def booted(
    request: pytest.FixtureRequest, boots: outside.Boots, tmp_path_factory: pytest.TempPathFactory
) -> outside.Boot:
    """The results of the row's boot."""
    row = ROWS[request.param]

    def boot(share: Path) -> outside.Boot:
        told = {"GANGD_MODULE": "full" if row.name in MODULE_FULL else "short"}
        files = module_files(row, tmp_path_factory.mktemp("files"))
        return outside.boot(row.name, list(scripts(row)), share, bare=True, timeout=TIMEOUT,
                            environment=told, files=files, clock=Clock.VIRTUAL)  # fmt: skip

    return boots("kernel", row.name, boot)


@pytest.mark.parametrize(("booted", "script", "check"), CASES, indirect=["booted"])
def test_kernel(booted: outside.Boot, script: str, check: str) -> None:
    """The sentence is the docstring of the check."""
    if check in ROWS[booted.row].skip:
        pytest.skip(ROWS[booted.row].skip[check])
    booted.require(script, check)


@pytest.mark.parametrize("booted", BOOTS, indirect=True)
def test_the_kernel_was_quiet(booted: outside.Boot) -> None:
    """Nothing is in its log that no check provoked, and every script came to its end."""
    booted.require_quiet()


@pytest.mark.parametrize("row", UNBOOTABLE)
def test_a_row_that_is_not_run_says_why(row: str) -> None:
    """The reason is in kernels.toml, and the lab tells it to a user who tries to boot the row."""
    reason = ROWS[row].unbootable
    assert reason
    with pytest.raises(LabError) as caught:
        vm.run(row, "true")
    assert reason in str(caught.value)


def test_the_matrix_covers_what_can_differ() -> None:
    """There are rows with and without sched_ext, and one where tasks have to be pushed to CPUs."""
    kinds = {(row.features.sched_ext, row.features.kick_cpu) for row in BOOTABLE.values()}
    assert kinds == {(False, False), (True, True), (True, False)}


def test_exclusions_name_checks_that_exist() -> None:
    """An exclusion of a check that is gone would hide nothing but look as if."""
    for row in ROWS.values():
        assert set(row.skip) <= set(outside.checks("kernel", ("check_", "able_", "unable_", "kvm_")))
