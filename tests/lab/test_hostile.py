# SPDX-License-Identifier: Apache-2.0
"""The kernel side against the rest of the host, and gangs of several widths. Two bare boots of 6.18.

The checks are in vm_tests/hostile.py (two CPUs), vm_tests/matrix.py and vm_tests/partial.py (four).
"""

import pytest
from vm_tests import outside

pytestmark = pytest.mark.lab

KERNEL = "6.18"
SCRIPTS = {4: ("matrix", "partial"), 2: ("hostile",)}  # by number of CPUs
CASES = [
    (cpus, script, name)
    for cpus, scripts in SCRIPTS.items()
    for script in scripts
    for name in outside.checks(script)
]


@pytest.fixture(scope="module")
def boots() -> dict[int, outside.Boot]:
    """What came of each boot, filled as they are asked for."""
    return {}


@pytest.mark.parametrize(("cpus", "script", "name"), CASES, ids=[f"{case[1]}-{case[2]}" for case in CASES])
def test_hostile(
    boots: dict[int, outside.Boot],
    tmp_path_factory: pytest.TempPathFactory,
    cpus: int,
    script: str,
    name: str,
) -> None:
    """The sentence is the docstring of the check."""
    if cpus not in boots:
        share = tmp_path_factory.mktemp("hostile")
        boots[cpus] = outside.boot(KERNEL, SCRIPTS[cpus], share, bare=True, timeout=400, cpus=cpus)
    boots[cpus].require(script, name)
