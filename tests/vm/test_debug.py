# SPDX-License-Identifier: Apache-2.0
"""Checks once more, on a kernel that watches its own locks and memory: `make test-debug`.

Not part of the default run; the row in kernels.toml says why (`apart`). What gangd does is judged as
on any row, with patience; what the kernel noticed meanwhile is judged by checks/watch.py.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

from lab import kernels
from lab.kernels import Row, rows
from lab.qemu import Clock
from vm.boots import run
from vm.boots.table import kinds, module_files

pytestmark = [pytest.mark.lab, pytest.mark.debug]

# Scripts of checks that need no systemd, in the order they run in. watch comes last: it judges the others.
SCRIPTS = ("kernel", "module", "watch")
PATIENCE = 10  # times as long as on other rows
TIMEOUT = 1800.0
ROWS = {name: row for name, row in rows().items() if row.is_debug}
CASES = [
    (name, script, check)
    for name, row in ROWS.items()
    for script in SCRIPTS
    for check in run.checks(script, ("check_", "full_") if script == "module" else kinds(row))
]
PLANTS = [(name, check) for name in ROWS for check in run.checks("plant")]
PLANT = Path(__file__).with_name("checks") / "plant"


ENVIRONMENT = {
    "GANGD_MODULE": "full",
    "GANGD_PATIENCE": str(PATIENCE),
}


@pytest.fixture(scope="module")
def boots() -> dict[str, run.Boot]:
    """The results of the boots, filled as tests ask for them."""
    return {}


@pytest.mark.parametrize(("row", "script", "check"), CASES, ids=["-".join(case) for case in CASES])
def test_debug(
    boots: dict[str, run.Boot],
    tmp_path_factory: pytest.TempPathFactory,
    row: str,
    script: str,
    check: str,
) -> None:
    """The sentence is the docstring of the check."""
    if check in ROWS[row].skip:
        pytest.skip(ROWS[row].skip[check])
    if row not in boots:
        share = tmp_path_factory.mktemp("debug")
        files = module_files(ROWS[row], tmp_path_factory.mktemp("files"))
        boots[row] = run.boot(
            row, SCRIPTS, share, bare=True, timeout=TIMEOUT, environment=ENVIRONMENT, files=files,
            clock=Clock.REAL,
        )  # fmt: skip
    boots[row].require(script, check)


@pytest.mark.parametrize(("row", "check"), PLANTS, ids=["-".join(case) for case in PLANTS])
def test_mistakes_are_noticed(
    boots: dict[str, run.Boot], tmp_path_factory: pytest.TempPathFactory, row: str, check: str
) -> None:
    """The sentence is the docstring of the check: a judge that never convicts would be none."""
    name = f"{row} with mistakes"
    if name not in boots:
        module = built(ROWS[row], tmp_path_factory.mktemp("plant"))
        boots[name] = run.boot(
            row, ["plant"], tmp_path_factory.mktemp("debug"), bare=True, timeout=TIMEOUT,
            environment=ENVIRONMENT, files=[module], clock=Clock.REAL,
        )  # fmt: skip
    boots[name].require("plant", check)


def built(row: Row, folder: Path) -> Path:
    """The module with the mistakes, compiled for the row: modules outside its tree can be."""
    headers = kernels.prepare(row).headers
    assert headers is not None
    shutil.copytree(PLANT, folder, dirs_exist_ok=True)
    # No BTF: nothing reads this module's. A pahole that DKMS brought along would be asked for its version.
    without = ["CONFIG_DEBUG_INFO_BTF_MODULES=", "CONFIG_PAHOLE_VERSION=0", "PAHOLE=no-pahole"]
    words = ["make", "-s", "-C", headers, f"M={folder}", *without]
    done = subprocess.run([*words, "modules"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return folder / "plant.ko"
