# SPDX-License-Identifier: Apache-2.0
"""`gangd --undo` as an operator sees it."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("libvirt")

from gangd.__main__ import main
from gangd.actuate.journal import Entry, Journal

UUID = "11111111-2222-3333-4444-555555555555"
GANG = f"{UUID}/gang"
PINS = [("pin", f"{UUID}/vcpu/0"), ("pin", f"{UUID}/vcpu/1"), ("helper-pin", f"{UUID}/emulator")]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """With a libvirt that is not there."""
    file = tmp_path / "gangd.toml"
    file.write_text(
        f'[daemon]\nstate_dir = "{tmp_path}"\nlibvirt_uri = "qemu+unix:///system?socket={tmp_path}/none"\n'
        '[scheduler]\nbackend = "module"\n'
    )
    return file


def test_what_an_older_gangd_journaled_stays(config: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A sentence for each part that is in use no more, and how many settings stay; the rest is undone."""
    path = config.parent / "journal"
    journal = Journal(path)
    for actuator, key in [*PINS, ("gang", GANG)]:
        journal.put(actuator, key, Entry("", "1") if actuator == "gang" else Entry("0-3", "1"))
    journal.flush()
    assert main(["--undo", "--config", str(config)]) == 1
    assert capfd.readouterr().err.splitlines() == [
        "error: cannot undo changes made by 'pin': it is not in use now",
        "error: cannot undo changes made by 'helper-pin': it is not in use now",
        f"error: 3 settings stay in {path} for the next gangd",
    ]
    assert list(Journal(path).entries) == PINS


def test_nothing_to_undo_asks_nobody(config: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Not even libvirt."""
    assert main(["--undo", "--config", str(config)]) == 0
    assert capfd.readouterr() == ("", "")


def test_damage_is_told_where_the_journal_is_mended(config: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """systemd runs this before the next gangd, which finds the journal whole: nobody else can tell."""
    path = config.parent / "journal"
    path.write_text("{}\n")
    assert main(["--undo", "--config", str(config)]) == 1
    assert capfd.readouterr().err == (
        f"error: the journal {path} was damaged (1 of 1 lines): kept as {path}.damaged-1; "
        f"what those lines held cannot be undone\n"
    )
    assert main(["--undo", "--config", str(config)]) == 0
