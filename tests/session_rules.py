# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin: the verdict on a session, beyond that of its tests.

A skip for a reason that is not listed here fails the session; so do more lost virtual machines than now and
then one. Both are said at the end, and how long every check in a virtual machine took.
"""

from __future__ import annotations

import re
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

import boot_log

# The machine's own kernel alone decides these. A missing tool, library or right is no reason: the toolbox has
# them all.
ACCEPTED_SKIPS = (
    r"needs root and cgroup v1",
    r"no cpu controller",
    r"this file system has no extended attributes for users",  # tmpfs before 6.6
    r"this kernel has no struct_ops for TCP",
)
LOST_MAX = 2  # emulators that died by themselves, or never came to the command


def accepted(reason: str) -> bool:
    """True if a test may be left out for this reason."""
    return any(re.fullmatch(f"(Skipped: )?{known}", reason) for known in ACCEPTED_SKIPS)


class Judge:
    """In the process that prints the summary."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="gangd-tests-")
        boot_log.begin(Path(self._folder.name, "ledger"))
        self._skips: dict[str, set[str]] = defaultdict(set)

    def pytest_runtest_logreport(self, report: Any) -> None:
        """A test that was left out."""
        self._skip(report)

    def pytest_collectreport(self, report: Any) -> None:
        """A whole file that was."""
        self._skip(report)

    def _skip(self, report: Any) -> None:
        if report.skipped:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            self._skips[reason].add(report.nodeid)

    def verdict(self) -> list[str]:
        """Why the session has failed whatever its tests say; nothing if it has not."""
        found = [f"skipped for a reason that is not accepted (tests/session_rules.py): {reason}"
                 for reason in self._skips if not accepted(reason)]  # fmt: skip
        lost = len(boot_log.entries("lost"))
        if lost > LOST_MAX:
            found.append(f"{lost} virtual machines were lost, more than {LOST_MAX}: the lab is no judge")
        return found

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: Any) -> None:
        """Nothing that was left out in silence ends as a success."""
        if self.verdict() and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print the ledger of the session."""
        self._tell_checks(terminalreporter)
        for entry in boot_log.entries("lost"):
            terminalreporter.section("a virtual machine was lost")
            terminalreporter.line(f"{entry['row']}: {entry['cause']}: {', '.join(entry['scripts'])}")
            terminalreporter.line(entry["text"])
        if self._skips:
            terminalreporter.section("left out")
        for reason, tests in sorted(self._skips.items()):
            known = "accepted" if accepted(reason) else "NOT ACCEPTED"
            terminalreporter.line(f"{known}: {reason}: {', '.join(sorted(tests))}")
        for sentence in self.verdict():
            terminalreporter.line(f"FAILED: {sentence}", red=True)

    @staticmethod
    def _tell_checks(terminal: Any) -> None:
        boots = boot_log.entries("boot")
        if boots:
            terminal.section("seconds of the checks in virtual machines")
        for boot in boots:
            row, scripts = boot["row"], ", ".join(boot["scripts"])
            terminal.line(f"{row} {scripts}: {boot['seconds']:.0f} s, {boot['boot_seconds']:.0f} s to boot, "
                          f"{boot['cpu_seconds']:.0f} s of the machine's CPUs")  # fmt: skip
            for script, checks in boot["checks"].items():
                for name, seconds in checks.items():
                    terminal.line(f"  {seconds:7.1f}  {script} {name}")

    def pytest_unconfigure(self) -> None:
        """The ledger goes."""
        self._folder.cleanup()


def pytest_configure(config: Any) -> None:
    """Register one judge a session, not one a worker."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Judge(), "gangd-judge")
