# SPDX-License-Identifier: Apache-2.0
"""Every boot of the table (boots/table.py): each check holds, and the kernel complained of nothing else.

A check left out on a row has its reason in the row (and in tests/session_rules.py), and so has a row that is
left out.
"""

import re
from collections import Counter
from pathlib import Path

import pytest

from vm.boots import run
from vm.boots.table import BOOTABLE, BOOTS, ROWS, TURNS

pytestmark = pytest.mark.lab

TIMEOUT = 3600.0


def marks(name: str) -> list[pytest.MarkDecorator]:
    """Return the marks of a boot's tests: one process has them all."""
    return [pytest.mark.xdist_group(name), *([pytest.mark.long] if BOOTS[name].long else [])]


CASES = [
    pytest.param(name, script, check, id=f"{name}-{script}-{check}", marks=marks(name))
    for name, plan in BOOTS.items()
    for script, prefixes in plan.scripts.items()
    for check in run.checks(script, prefixes)
]


@pytest.fixture
def booted(
    request: pytest.FixtureRequest, boots: run.Boots, tmp_path_factory: pytest.TempPathFactory
) -> run.Boot:
    """The results of the boot of this name."""
    plan = BOOTS[request.param]

    def boot(share: Path) -> run.Boot:
        files = plan.files(ROWS[plan.row], tmp_path_factory.mktemp("files"))
        return run.boot(plan.row, list(plan.scripts), share, bare=not plan.whole, cpus=plan.cpus,
                            timeout=TIMEOUT, environment=plan.environment, files=files,
                            project=plan.project, append=plan.append)  # fmt: skip

    return boots(request.param, boot)


@pytest.mark.parametrize(("booted", "script", "check"), CASES, indirect=["booted"])
def test_check(booted: run.Boot, script: str, check: str) -> None:
    """The sentence is the docstring of the check."""
    if check in ROWS[booted.row].skip:
        pytest.skip(ROWS[booted.row].skip[check])
    booted.require(script, check)


@pytest.mark.parametrize(
    "booted", [pytest.param(name, id=name, marks=marks(name)) for name in BOOTS], indirect=True
)
def test_the_kernel_was_quiet(booted: run.Boot) -> None:
    """Nothing is in its log that no check provoked, and every script came to its end."""
    booted.require_quiet()


def test_the_rows_cover_what_can_differ() -> None:
    """There are rows with and without sched_ext, and one where other code pushes tasks to CPUs."""
    kinds = {(row.features.sched_ext, row.features.kick_cpu) for row in BOOTABLE.values()}
    assert kinds == {(False, False), (True, True), (True, False)}
    assert {ROWS[name].features.kick_cpu for name in TURNS} == {True, False}


def test_no_check_is_in_no_boot() -> None:
    """A function that no other calls is a check, whatever its name. An exclusion of a check that is gone
    would hide nothing but look as if."""
    apart = {"intel", "starved", "panics", "plant", "watch"}  # test_intel.py, test_faults.py, test_debug.py
    texts = {path.stem: path.read_text() for path in run.CHECKS.glob("*.py")}
    words = Counter(
        re.findall(r"\w+", "".join([*texts.values(), *(p.read_text() for p in run.INSIDE.glob("*.py"))]))
    )
    alone = {(s, name) for s in texts for name in run.checks(s, ("",)) if words[name] == 1 and s not in apart}
    plans = [item for plan in BOOTS.values() for item in plan.scripts.items()]
    assert alone <= {(script, name) for script, prefixes in plans for name in run.checks(script, prefixes)}
    assert {script for script in texts if run.checks(script)} - apart == {script for script, _ in plans}
    for row in ROWS.values():
        assert set(row.skip) <= set(run.checks("kernel", ("check_", "able_", "unable_", "kvm_")))
