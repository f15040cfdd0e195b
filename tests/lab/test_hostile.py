# SPDX-License-Identifier: Apache-2.0
"""The kernel side against the rest of the host, and slots of several widths. One bare boot of 6.18 each.

The checks are in vm_tests/hostile.py (two CPUs) and vm_tests/matrix.py (four).
"""

import pytest
from vm_tests import outside

pytestmark = pytest.mark.lab

KERNEL = "6.18"
SCRIPTS = {"matrix": 4, "hostile": 2}  # and on how many CPUs
CASES = [(script, name) for script in SCRIPTS for name in outside.checks(script)]


@pytest.fixture(scope="module")
def boots() -> dict[str, outside.Boot]:
    """What came of each script, filled as they are asked for."""
    return {}


@pytest.mark.parametrize(("script", "name"), CASES, ids=[f"{script}-{name}" for script, name in CASES])
def test_hostile(
    boots: dict[str, outside.Boot], tmp_path_factory: pytest.TempPathFactory, script: str, name: str
) -> None:
    """The sentence is the docstring of the check."""
    if script not in boots:
        share = tmp_path_factory.mktemp(script)
        boots[script] = outside.boot(KERNEL, [script], share, bare=True, timeout=240, cpus=SCRIPTS[script])
    boots[script].require(script, name)
