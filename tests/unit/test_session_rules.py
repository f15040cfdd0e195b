# SPDX-License-Identifier: Apache-2.0
"""The faults that a session may not hide: sessions of pytest with something wrong in them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
SKIPS = """
import pytest

@pytest.mark.skip(reason="{reason}")
def test_left_out():
    pass

def test_made():
    pass
"""
IMPORTS = """
import pytest

pytest.importorskip("a_library_that_is_not_there")
"""
LOSES = """
import boot_log

def test_loses():
    for _ in range({lost}):
        boot_log.note("lost", row="6.18", scripts=["gang"], cause="it died", text="the console's last words")
    checks = {{"gang": {{"check_it": 12.34}}}}
    boot_log.note("boot", row="6.18", scripts=["gang"], seconds=30, boot_seconds=9, cpu_seconds=41,
                checks=checks)
"""
WAYS = pytest.mark.parametrize("way", [(), ("-n", "2", "--dist", "loadgroup")], ids=["one", "two processes"])


def session(folder: Path, text: str, way: tuple[str, ...]) -> tuple[int, str]:
    """Exit status and output of a session with this file of tests."""
    (folder / "test_it.py").write_text(text)
    words = [sys.executable, "-m", "pytest", "-p", "session_rules", "-p", "no:cacheprovider"]
    words += ["--rootdir", str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    done = subprocess.run(
        [*words, *way, folder], capture_output=True, text=True, env=environment, check=False
    )
    return done.returncode, done.stdout + done.stderr


@WAYS
@pytest.mark.parametrize(
    ("text", "reason", "status"),
    [
        (SKIPS.format(reason="the moon is full"), "NOT ACCEPTED: Skipped: the moon is full", 1),
        (SKIPS.format(reason="needs root and cgroup v1"), "accepted: Skipped: needs root and cgroup v1", 0),
        (IMPORTS, "NOT ACCEPTED: Skipped: could not import 'a_library_that_is_not_there'", 1),
    ],
    ids=["unknown", "known", "a whole file"],
)
def test_a_skip_needs_a_reason_that_is_accepted(
    tmp_path: Path, way: tuple[str, ...], text: str, reason: str, status: int
) -> None:
    """Any other fails the session, although every test that ran has passed; all are listed."""
    found, output = session(tmp_path, text, way)
    assert (found, reason in output) == (status, True), output


@WAYS
@pytest.mark.parametrize(("lost", "status"), [(2, 0), (3, 1)])
def test_lost_machines_are_shown_and_are_few(
    tmp_path: Path, way: tuple[str, ...], lost: int, status: int
) -> None:
    """Two may be lost in a session, each is shown; a third fails it. Seconds of the checks are shown."""
    found, output = session(tmp_path, LOSES.format(lost=lost), way)
    assert found == status, output
    assert output.count("the console's last words") == lost
    assert "30 s, 9 s to boot, 41 s of" in output and "12.3  gang check_it" in output
