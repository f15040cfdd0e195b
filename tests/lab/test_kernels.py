# SPDX-License-Identifier: Apache-2.0
"""Every kernel of kernels.toml: what its row promises is what gangd finds there. One bare boot each.

The checks are in vm_tests/kernel.py. A check that is left out on a row has its reason in the row, and so
has a row that is left out (test_debug.py has those).
"""

import json
from dataclasses import asdict

import pytest
from labkit import vm
from labkit.errors import LabError
from labkit.kernels import Row, rows
from vm_tests import outside

pytestmark = pytest.mark.lab

ROWS = rows()
BOOTABLE = {name: row for name, row in ROWS.items() if not row.unbootable and not row.apart}
UNBOOTABLE = sorted(name for name, row in ROWS.items() if row.unbootable)


def kinds(row: Row) -> tuple[str, ...]:
    """Prefixes of the checks that are for this row."""
    able = "able_" if row.features.sched_ext else "unable_"
    return ("check_", able, *(["kvm_"] if row.features.kvm else []))


CASES = [(name, check) for name, row in BOOTABLE.items() for check in outside.checks("kernel", kinds(row))]


@pytest.fixture(scope="module")
def boots(tmp_path_factory: pytest.TempPathFactory) -> dict[str, outside.Boot]:
    """What came of each row, filled as rows are asked for."""
    return {}


@pytest.mark.parametrize(("row", "check"), CASES, ids=[f"{row}-{check}" for row, check in CASES])
def test_kernel(
    boots: dict[str, outside.Boot], tmp_path_factory: pytest.TempPathFactory, row: str, check: str
) -> None:
    """The sentence is the docstring of the check."""
    if check in ROWS[row].skip:
        pytest.skip(ROWS[row].skip[check])
    if row not in boots:
        features = {"GANGD_FEATURES": json.dumps(asdict(ROWS[row].features))}
        share = tmp_path_factory.mktemp("kernel")
        boots[row] = outside.boot(row, ["kernel"], share, bare=True, timeout=150, environment=features)
    boots[row].require("kernel", check)


@pytest.mark.parametrize("row", UNBOOTABLE)
def test_a_row_that_is_not_run_says_why(row: str) -> None:
    """The reason is in kernels.toml, and is what anybody hears who tries."""
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
