# SPDX-License-Identifier: Apache-2.0
"""The checks of vm_tests, seen from outside the VM: which there are, one boot for many, one verdict each."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from demo.machine import Sampler
from labkit import vm
from labkit.errors import LostVM

HERE = Path(__file__).parent
LAB = HERE.parent
PAYLOAD = LAB / "payload"
CPUS = 2
OUTPUT_LINES = 60
ATTEMPTS = 2  # boots of a VM that gives no verdict


def checks(script: str, prefixes: tuple[str, ...] = ("check_",)) -> list[str]:
    """Names of a script's checks, in the order they are run in."""
    return [name for name in _functions(script) if name.startswith(prefixes)]


def sentence(script: str, name: str) -> str:
    """What a check proves."""
    return " ".join((ast.get_docstring(_functions(script)[name]) or "").split())


def _functions(script: str) -> dict[str, ast.FunctionDef]:
    tree = ast.parse((HERE / f"{script}.py").read_text())
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


@dataclass
class Boot:
    """What came of one VM. results: by script, then by check; ended: scripts that ran to their end; lost: why
    there is no more; log: the end of the daemon's and the kernel's."""

    results: dict[str, dict[str, Any]] = field(default_factory=dict)
    ended: frozenset[str] = frozenset()
    output: str = ""
    lost: str = ""
    log: str = ""
    seconds: float = 0.0

    def require(self, script: str, name: str) -> None:
        """Fail, with everything that was said, unless the check was made and held."""
        result = self.results.get(script, {}).get(name)
        claim = f"{sentence(script, name)}\n"
        if result is None:
            tail = "\n".join(self.output.splitlines()[-OUTPUT_LINES:])
            raise AssertionError(f"{claim}The check was not made. {self.lost}\n{tail}")
        for text in result["notes"]:
            print(text)
        assert not result["error"], "\n".join([claim, *result["notes"], result["error"], self.log])


def boot(
    row: str,
    scripts: Sequence[str],
    share: Path,
    *,
    bare: bool = False,
    timeout: float = 400,
    environment: Mapping[str, str] | None = None,
    files: Sequence[Path] = (),
    cpus: int = CPUS,
    project: bool = True,
) -> Boot:
    """Boot a row and run the scripts one after the other; `files` are put beside them.

    project: whether gangd is in the VM.

    Again for what is left if the VM was lost, since no verdict is not "failed"; lost twice is a result, too.
    """
    results: dict[str, dict[str, Any]] = {}
    left = list(scripts)
    for _ in range(ATTEMPTS):
        found = _boot_once(row, left, share, bare, timeout, environment or {}, files, cpus, project)
        results |= found.results
        left = [script for script in left if script not in found.ended]
        if not found.lost or not left:
            break
        print(f"kernel {row}: the VM was lost\n{found.lost}")
    return replace(found, results=results)


def _boot_once(
    row: str,
    scripts: Sequence[str],
    share: Path,
    bare: bool,
    timeout: float,
    environment: Mapping[str, str],
    files: Sequence[Path],
    cpus: int,
    project: bool,
) -> Boot:
    shutil.rmtree(share)
    share.mkdir()
    _fill(share)
    for file in files:
        shutil.copy(file, share)
    words = [f"export {name}='{value}'" for name, value in environment.items()]
    words += ["cp -r /share /tmp/lab && export PYTHONPATH=/tmp/lab"]
    words += [f"python3 /tmp/lab/{script}.py; touch /share/{script}.ended" for script in scripts]
    words += [
        "{ dmesg | grep -v systemd | tail -n 30",
        "journalctl -u gangd --no-pager -o short-monotonic; } >/share/log 2>&1",
    ]
    found = Boot()
    try:
        with Sampler(share / "machine.json", cpus):
            options = {"share": share, "bare": bare, "timeout": timeout, "smp": cpus, "project": project}
            verdict = vm.run(row, "\n".join(words), **options)  # type: ignore[arg-type]
        found.output, found.seconds = verdict.output, verdict.seconds
    except LostVM as lost:
        found.lost = "\n".join([str(lost), *lost.console])
    for script in scripts:
        file = share / f"{script}.json"
        found.results[script] = json.loads(file.read_text()) if file.exists() else {}
    found.ended = frozenset(file.stem for file in share.glob("*.ended"))
    log = share / "log"
    found.log = (
        "\n".join(log.read_text(errors="replace").splitlines()[-OUTPUT_LINES:]) if log.exists() else ""
    )
    print(f"kernel {row}: {', '.join(scripts)}: {found.seconds:.0f} s")
    return found


def _fill(share: Path) -> None:
    """The scripts, the payload and a busy program, all built here: the VM is slow."""
    for script in HERE.glob("*.py"):
        shutil.copy(script, share)
    shutil.copy(PAYLOAD / "counters.py", share)
    (share / "demo").mkdir()
    for name in ("__init__.py", "machine.py"):
        shutil.copy(LAB / "demo" / name, share / "demo")
    subprocess.run(["make", "-s", "-C", PAYLOAD, f"OUT={share}"], check=True)
    subprocess.run(["gcc", "-O2", "-pthread", "-o", share / "spin", HERE / "spin.c"], check=True)
