# SPDX-License-Identifier: Apache-2.0
"""The checks seen from outside the VM: which there are, one boot for many, one verdict each."""

from __future__ import annotations

import ast
import json
import resource
import shlex
import shutil
import subprocess
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import boot_log
from lab import kernels, session, share
from lab.errors import LostVM
from lab.observe import complaints
from lab.observe.machine import sampled
from lab.paths import LAB, REPO
from lab.qemu import Clock
from lab.shell import lock

CHECKS = Path(__file__).parents[1] / "checks"  # the scripts
INSIDE = CHECKS / "inside"  # what they import in the VM
PAYLOAD = LAB / "guests/flat"
IN_VM = ("vm/checks", "lab/guests", "lab/observe")  # packages that a VM sees
COPY = "/tmp/lab"  # a copy of the share: its files are read often
CPUS = 2
OUTPUT_LINES = 60
ATTEMPTS = 2  # boots, if the emulator ends by itself
BUILT = REPO / "build" / "payload"
KERNEL_LOG = "log_buf_len=4M"  # sched_ext's dumps are long: without it the beginning is gone


def checks(script: str, prefixes: tuple[str, ...] = ("check_",)) -> list[str]:
    """Names of a script's checks, in the order they are run in."""
    return [name for name in _functions(script) if name.startswith(prefixes)]


def sentence(script: str, name: str) -> str:
    """Return the claim that a check proves, from its docstring."""
    return " ".join((ast.get_docstring(_functions(script)[name]) or "").split())


def _functions(script: str) -> dict[str, ast.FunctionDef]:
    tree = ast.parse((CHECKS / f"{script}.py").read_text())
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


@dataclass
class Boot:
    """The outcome of one VM. results: by script, then by check; ended: exit status of the scripts that came
    to their end; lost: why there is no more; logs: of the kernel, one a boot; log: the ends of the kernel's
    and the daemon's; cpu_seconds: of the machine, that the emulator used."""

    row: str = ""
    results: dict[str, dict[str, Any]] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)
    output: str = ""
    lost: LostVM | None = None
    logs: list[str] = field(default_factory=list)
    log: str = ""
    seconds: float = 0.0
    boot_seconds: float = 0.0
    cpu_seconds: float = 0.0

    def require(self, script: str, name: str) -> None:
        """Fail, with everything that was said, unless the check was made and held."""
        result = self.results.get(script, {}).get(name)
        claim = f"{sentence(script, name)}\n"
        if result is None:
            tail = "\n".join(self.output.splitlines()[-OUTPUT_LINES:])
            raise AssertionError(f"{claim}The check was not made. {self.lost or ''}\n{tail}")
        for text in result["notes"]:
            print(text)
        assert not result["error"], "\n".join([claim, *result["notes"], result["error"], self.log])

    def require_quiet(self) -> None:
        """Fail unless every script ended as it should, the VM stood, and its kernel complained of nothing but
        what the checks provoked on purpose (complaints.PROVOKED)."""
        assert self.lost is None, str(self.lost)
        assert set(self.ended.values()) == {0}, (
            f"a script ended otherwise: {self.ended}\n{self.output[-4000:]}"
        )
        made = [(script, name) for script, found in self.results.items() for name in found]
        for log in self.logs:
            assert "Linux version" in log[:4000], f"the kernel's log has lost its beginning:\n{log[:4000]}"
        wrong = complaints.unexpected("\n".join(self.logs), made)
        assert not wrong, "\n".join([*wrong, "", *complaints.excerpts("\n".join(self.logs))])


class Boots:
    """The boots of a session."""

    def __init__(self, folder: Callable[[str], Path]) -> None:
        self._folder = folder
        self._made: dict[str, Boot] = {}

    def __call__(self, name: str, make: Callable[[Path], Boot]) -> Boot:
        """Return the outcome of this boot, made with an empty folder to share unless it has been made."""
        if name not in self._made:
            self._made[name] = make(self._folder(name.replace(" ", "-")))
        return self._made[name]


@dataclass(frozen=True)
class _Order:
    """A boot: what runs in it, and how."""

    row: str
    scripts: Sequence[str]
    share: Path
    bare: bool
    timeout: float
    environment: Mapping[str, str]
    files: Sequence[Path]
    cpus: int
    project: bool
    clock: Clock
    append: str


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
    clock: Clock = Clock.VIRTUAL,
    append: str = "",
) -> Boot:
    """Boot a row and run the scripts one after the other; `files` are put beside them.

    environment: besides GANGD_FEATURES, which has the row's; project: whether gangd is in the VM;
    append: words for the kernel's command line, besides the row's.

    A VM that is lost once its command runs may have been lost by what is tested: that is a result. An
    emulator that ends by itself is none, and neither is a VM that never came to the command: what is left is
    done in a second boot, which is counted (tests/session_rules.py). What the first one found stands.
    """
    told = {"GANGD_FEATURES": json.dumps(asdict(kernels.row(row).features)), **(environment or {})}
    found = Boot(row)
    for _ in range(ATTEMPTS):
        left = [script for script in scripts if script not in found.ended]
        order = _Order(row, left, share, bare, timeout, told, files, cpus, project, clock, append)
        one = _boot_once(order)
        _add(found, one)
        spent = {script: {name: r["seconds"] for name, r in one.results[script].items()} for script in left}
        boot_log.note("boot", row=row, scripts=left, seconds=one.seconds, boot_seconds=one.boot_seconds,
                    cpu_seconds=one.cpu_seconds, checks=spent)  # fmt: skip
        if one.lost is None or not one.lost.cause.is_the_labs:
            break
        warnings.warn(f"kernel {row}, {', '.join(left)}: {one.lost.reason}", stacklevel=2)
        boot_log.note("lost", row=row, scripts=left, cause=one.lost.cause.value, text=str(one.lost))
    return found


def _add(found: Boot, one: Boot) -> None:
    """Add a further boot's outcome. A check that was made twice keeps its first result."""
    for script, results in one.results.items():
        found.results[script] = {**results, **found.results.get(script, {})}
    found.ended |= one.ended
    found.logs += one.logs
    found.output += one.output
    found.seconds += one.seconds
    found.boot_seconds += one.boot_seconds
    found.cpu_seconds += one.cpu_seconds
    found.lost, found.log = one.lost, one.log


def _boot_once(order: _Order) -> Boot:
    folder = order.share
    shutil.rmtree(folder)
    folder.mkdir()
    _fill(folder)
    for file in order.files:
        shutil.copy(file, folder)
    found, begin, used = Boot(order.row), time.monotonic(), _cpu_seconds()
    try:
        with sampled(folder / "machine.json", order.cpus, order.clock is Clock.REAL):
            verdict = session.run(
                order.row,
                "\n".join(_words(order)),
                smp=order.cpus,
                share=folder,
                timeout=order.timeout,
                bare=order.bare,
                append=f"{KERNEL_LOG} {order.append}".strip(),
                project=order.project,
                console=folder / "console",
                clock=order.clock,
            )
        found.output, found.boot_seconds = verdict.output, verdict.boot_seconds
    except LostVM as lost:
        found.lost = lost
    found.seconds, found.cpu_seconds = time.monotonic() - begin, _cpu_seconds() - used
    _read(found, order)
    print(f"kernel {order.row}: {', '.join(order.scripts)}: {found.seconds:.0f} s")
    return found


def _cpu_seconds() -> float:
    """Return the CPU seconds of our child processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _words(order: _Order) -> list[str]:
    """The command. The kernel's log is kept after every script: a VM that is lost later leaves that much."""
    told = {**order.environment, "GANGD_CLOCK": order.clock.value}
    words = [f"export {name}={shlex.quote(value)}" for name, value in told.items()]
    words += [f"cp -r /share {COPY}"]
    for script in order.scripts:
        start = " ".join(share.python(f"vm.checks.{script}", COPY))
        words += [f"{start}; echo $? >/share/{script}.status"]
        words += ["dmesg >/share/dmesg.new && mv /share/dmesg.new /share/dmesg"]
        words += [f"mv /share/{script}.status /share/{script}.ended"]
    return [*words, "journalctl -u gangd --no-pager -o short-monotonic >/share/journal 2>&1"]


def _read(found: Boot, order: _Order) -> None:
    """Read what the VM left in the share; if it was lost, the console, too, which has the last of its log."""
    for script in order.scripts:
        file, end = order.share / f"{script}.json", order.share / f"{script}.ended"
        found.results[script] = json.loads(file.read_text()) if file.exists() else {}
        if end.exists():
            found.ended[script] = int(end.read_text())
    texts = {name: order.share / name for name in ("dmesg", "console", "journal")}
    read = {name: file.read_text(errors="replace") for name, file in texts.items() if file.exists()}
    if found.lost:
        found.logs.append("\n".join([read.get("dmesg", ""), read.get("console", "")]))
        found.lost.console[:0] = complaints.excerpts(read.get("console", ""))
    else:
        found.logs.append(read["dmesg"])
    kernel = [line for line in read.get("dmesg", "").splitlines() if "systemd" not in line][
        -OUTPUT_LINES // 2 :
    ]
    found.log = "\n".join([*kernel, *read.get("journal", "").splitlines()[-OUTPUT_LINES:]])


def _fill(folder: Path) -> None:
    """The scripts, the payload and a busy program; both are built once, out here, because the VM is slow."""
    share.add(folder, IN_VM)
    spin, source = BUILT / "spin", INSIDE / "spin.c"
    with lock("payload"):
        subprocess.run(["make", "-s", "-C", PAYLOAD, f"OUT={BUILT}"], check=True)
        if not spin.exists() or spin.stat().st_mtime < source.stat().st_mtime:
            subprocess.run(["gcc", "-O2", "-pthread", "-o", spin, source], check=True)
    for built in (BUILT / "loads.elf", spin):
        shutil.copy(built, folder)
