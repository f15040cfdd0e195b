# SPDX-License-Identifier: Apache-2.0
"""Gangs of several widths on four CPUs, on every kernel that can schedule gangs. One bare boot each, in
virtual time: four CPUs run side by side only there, and the checks tell microseconds of a shared core.

The checks are in vm_tests/matrix.py; vm_tests/hostile.py, with two CPUs, runs in the boots of
test_kernels.py.
"""

from pathlib import Path

import pytest
from labkit.kernels import rows
from labkit.qemu import Clock
from vm_tests import outside

pytestmark = pytest.mark.lab

SCRIPTS = ("matrix",)
DEFAULT = "6.18"  # the other rows are `make test-long`
CPUS = 4
TIMEOUT = 1800
ROWS = [
    name for name, row in rows().items() if row.features.sched_ext and not row.unbootable and not row.apart
]


def marks(row: str) -> list[pytest.MarkDecorator]:
    """Return the marks of a row's tests."""
    return [outside.together("matrix", row), *([] if row == DEFAULT else [pytest.mark.long])]


CASES = [
    pytest.param(row, script, name, id=f"{row}-{script}-{name}", marks=marks(row))
    for row in ROWS
    for script in SCRIPTS
    for name in outside.checks(script)
]
BOOTS = [pytest.param(row, id=row, marks=marks(row)) for row in ROWS]


@pytest.fixture
def booted(request: pytest.FixtureRequest, boots: outside.Boots) -> outside.Boot:
    """The results of the row's boot."""
    row: str = request.param

    def boot(share: Path) -> outside.Boot:
        return outside.boot(row, SCRIPTS, share, bare=True, cpus=CPUS, timeout=TIMEOUT, clock=Clock.VIRTUAL)

    return boots("matrix", row, boot)


@pytest.mark.parametrize(("booted", "script", "name"), CASES, indirect=["booted"])
def test_hostile(booted: outside.Boot, script: str, name: str) -> None:
    """The sentence is the docstring of the check."""
    booted.require(script, name)


@pytest.mark.parametrize("booted", BOOTS, indirect=True)
def test_the_kernel_was_quiet(booted: outside.Boot) -> None:
    """Nothing is in its log that no check provoked, and every script came to its end."""
    booted.require_quiet()


@pytest.mark.long
def test_a_storm(tmp_path: Path) -> None:
    """No task is lost while everything changes at once for ten minutes, and the kernel logs no complaint."""
    told = {"GANGD_STORM": "600"}
    storm = outside.boot(DEFAULT, ["storm"], tmp_path, bare=True, cpus=CPUS, timeout=2 * TIMEOUT,
                         environment=told, clock=Clock.VIRTUAL)  # fmt: skip
    for name in outside.checks("storm"):
        storm.require("storm", name)
    storm.require_quiet()


def test_the_row_that_pushes_is_among_them() -> None:
    """Pushing tasks to CPUs is other code than pulling them."""
    assert {rows()[name].features.kick_cpu for name in ROWS} == {True, False}
