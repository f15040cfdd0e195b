# SPDX-License-Identifier: Apache-2.0
"""The session of a row of Bochs, with programs that do as Bochs would: a verdict, or why there is none."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from lab import bochsvm
from lab.errors import Cause, LostVM

MARK = "\\000end of output\\000"


def session(folder: Path, script: str, timeout: float = 30.0) -> bochsvm._Session:
    """A session whose emulator is a shell script, run in the folder."""
    program = folder / "emulator"
    program.write_text(f"#!/bin/sh\ncd {folder}\n{script}\n")
    program.chmod(0o755)
    return bochsvm._Session("x", program, folder, folder / "console", timeout)


def test_output_and_verdict(tmp_path: Path) -> None:
    """The output comes as it was printed, without the mark; the status is the verdict's, not the output's."""
    says = f"echo started >verdict; printf 'status 3\\nhello\\n{MARK}' >output"
    script = f"{says}; echo 'status 7' >>verdict; sleep 60"
    stream = io.BytesIO()
    verdict = session(tmp_path, script).verdict(stream)
    assert (verdict.status, verdict.output) == (7, "status 3\nhello\n")
    assert stream.getvalue() == b"status 3\nhello\n"
    assert verdict.seconds < 30


@pytest.mark.parametrize(
    ("script", "cause", "word"),
    [
        ("echo 'Kernel panic - not syncing' >console; sleep 60", Cause.PANICKED, "panicked"),
        ("echo 'no such file' ; exit 3", Cause.EMULATOR_DIED, "Bochs ended with 3"),
        ("echo started >verdict; exit 0", Cause.WENT_DOWN, "Bochs ended with 0"),
        ("echo started >verdict; sleep 60", Cause.HUNG, "stopped after"),
        ("sleep 60", Cause.NOT_STARTED, "stopped after"),
        ("printf 'status 0' >verdict; sleep 60", Cause.NOT_STARTED, "stopped after"),  # half a line
    ],
)
def test_no_verdict(tmp_path: Path, script: str, cause: Cause, word: str) -> None:
    """Every end without a verdict is a lost VM, with its cause."""
    with pytest.raises(LostVM, match=word) as lost:
        session(tmp_path, script, timeout=2.0).verdict(None)
    assert lost.value.cause is cause


def test_nothing_is_left_running(tmp_path: Path) -> None:
    """However the session ends, the emulator has ended too."""
    with pytest.raises(LostVM):
        session(tmp_path, "echo $$ >pid; exec sleep 60", timeout=2.0).verdict(None)
    assert not Path("/proc", (tmp_path / "pid").read_text().strip()).exists()
