# SPDX-License-Identifier: Apache-2.0
"""The kernel side on an emulated Intel host, and on an AMD one as the counter-test: `make test-intel`.

Not part of the default run; the row in kernels.toml says why (`apart`). Every boot is one process of Bochs,
which is deterministic: there is nothing that would come out otherwise at the next try.
"""

import ast
import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lab import bochsvm, share
from lab.observe import complaints
from lab.paths import LAB
from vm.boots.run import IN_VM

pytestmark = [pytest.mark.lab, pytest.mark.intel]

ROW = "6.18-intel"
SCRIPTS = Path(__file__).with_name("checks")
# The settings of checks/intel.py, by model.
SETTINGS = {"intel": ("apicv", "plain"), "amd": ("svm",)}
TIMEOUT = 3600.0  # of which a quiet machine needs a sixth
TWICE = ("once", "again")
PYTHON = " ".join(["PYTHONHASHSEED=0", *share.python("vm.checks.intel")])
# Results leave in one line, the last.
COMMAND = """\
mount --bind /lab/files /share
GANGD_MODEL={model} GANGD_ONLY={only} {python}
status=$?
tr -d '\\n' </share/intel.json
exit "$status"
"""


def checks() -> dict[str, str]:
    """The checks of checks/intel.py in their order, each with the sentence it proves."""
    tree = ast.parse((SCRIPTS / "intel.py").read_text())
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return {
        node.name: " ".join((ast.get_docstring(node) or "").split())
        for node in functions
        if node.name.startswith("check_")
    }


CASES = [(model, name, check) for model, names in SETTINGS.items() for name in names for check in checks()]


@dataclass(frozen=True)
class Run:
    """The outcome of one boot: results by check and settings, all that was printed, the kernel's console."""

    results: dict[str, Any]
    output: str
    console: str

    def require(self, case: str, claim: str) -> None:
        """Fail, with everything that was said, unless the check was made and held."""
        result = self.results.get(case)
        assert result is not None, f"{claim}\nThe check was not made.\n{self.output[-3000:]}"
        for text in result["notes"]:
            print(text)
        assert not result["error"], "\n".join([claim, *result["notes"], result["error"]])


def files(folder: Path) -> dict[str, bytes]:
    """Return the VM's /lab/files: the scripts, the payload, its VMM and a busy program, built here."""
    subprocess.run(["make", "-s", "-C", LAB / "guests/flat", f"OUT={folder}"], check=True)
    for name in ("vmm", "spin"):
        command = ["gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", folder / name]
        subprocess.run([*command, SCRIPTS / "inside" / f"{name}.c"], check=True)
    found = {name: (folder / name).read_bytes() for name in ("vmm", "spin", "loads.elf")}
    packages = folder / "share"
    share.add(packages, IN_VM)
    modules = sorted(packages.rglob("*.py"))
    return found | {file.relative_to(packages).as_posix(): file.read_bytes() for file in modules}


def boot(model: str, folder: Path, only: str = "") -> Run:
    """Boot Bochs once and run the whole script in it, or the checks whose names begin with `only`."""
    folder.mkdir()
    console = folder / "console"
    options = bochsvm.Options(model=model, timeout=TIMEOUT, files=files(folder), console=console)
    verdict = bochsvm.boot(ROW, [COMMAND.format(python=PYTHON, model=model, only=only)], options)
    assert verdict.status == 0, verdict.output[-3000:]
    results = json.loads(verdict.output.rpartition("\n")[2])
    return Run(results, verdict.output, console.read_text(errors="replace"))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[Run]]]:
    """A boot for each model and two short ones, two at a time: each needs one CPU."""
    folder = tmp_path_factory.mktemp("intel")
    with ThreadPoolExecutor(2) as pool:
        found = {model: pool.submit(boot, model, folder / model) for model in SETTINGS}
        for name in TWICE:
            found[name] = pool.submit(boot, "intel", folder / name, "check_kvm,check_exits")
        yield found


@pytest.mark.parametrize(("model", "settings", "check"), CASES, ids=["-".join(case) for case in CASES])
def test_intel(runs: dict[str, Future[Run]], model: str, settings: str, check: str) -> None:
    """The sentence is the docstring of the check."""
    runs[model].result().require(f"{check}-{settings}", f"{checks()[check]} ({settings})")


@pytest.mark.parametrize("model", SETTINGS)
def test_the_kernel_does_not_complain(runs: dict[str, Future[Run]], model: str) -> None:
    """Nothing in the console's log begins like a report of something wrong."""
    assert complaints.headlines(runs[model].result().console) == []


def test_twice_the_same(runs: dict[str, Future[Run]]) -> None:
    """Bochs is deterministic: two boots print the same, counts of exits and seconds included."""
    one, two = (runs[name].result() for name in TWICE)
    assert "check_exits_are_counted_by_reason-apicv" in one.results
    assert one.output == two.output
    assert one.console == two.console
