# SPDX-License-Identifier: Apache-2.0
"""`gangd --undo` as an operator sees it."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("libvirt")

from gangd import config as settings
from gangd import service
from gangd.__main__ import main
from gangd.actuate.journal import Entry, Journal, claim, hand_over
from gangd.errors import GangError
from gangd.undo_command import remember

UUID = "11111111-2222-3333-4444-555555555555"
GANG = f"{UUID}/gang"
PINS = [("pin", f"{UUID}/vcpu/0"), ("pin", f"{UUID}/vcpu/1"), ("helper-pin", f"{UUID}/emulator")]


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that systemd makes for gangd."""
    folder = tmp_path / "run"
    folder.mkdir()
    monkeypatch.setattr(settings, "RUNTIME", folder)
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(folder))
    return folder


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Return a configuration of a libvirt that is not there."""
    file = tmp_path / "gangd.toml"
    file.write_text(
        f'[daemon]\nstate_dir = "{tmp_path}"\nlibvirt_uri = "qemu+unix:///system?socket={tmp_path}/none"\n'
        '[scheduler]\nbackend = "module"\n'
    )
    return file


def test_undo_leaves_settings_of_parts_that_are_gone(config: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A sentence names each part not in use, one counts the settings that stay; the rest is undone."""
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


def left(folder: Path) -> Path:
    """Leave what a dead daemon left in its folder: a gang, which ended with it."""
    journal = Journal(folder / "journal")
    journal.put("gang", GANG, Entry("", "1"))
    journal.flush()
    return journal.path


@pytest.mark.parametrize("text", ["[daemon]\nintervall = 5\n", "[daemon\n"])
def test_an_invalid_configuration_is_no_obstacle(
    config: Path, runtime: Path, capfd: pytest.CaptureFixture[str], text: str
) -> None:
    """An operator broke it while gangd ran: gangd warns of what is wrong in it, and undoes all the same."""
    path = left(runtime)
    config.write_text(text)
    assert main(["--undo", "--config", str(config)]) == 0
    err = capfd.readouterr().err
    assert err.startswith(f"warning: {config}:") and err.endswith(": the defaults are used for the undo\n")
    assert not Journal(path).entries


@pytest.mark.parametrize("valid", [True, False])
def test_another_state_dir_by_now(config: Path, runtime: Path, valid: bool) -> None:
    """The dead daemon remembered its own, which is looked at until nothing is left there."""
    used = config.parent / "used"
    path = left(used)
    remember(used)
    if not valid:
        config.write_text("[daemon\n")
    with claim(used):  # a daemon that lives
        assert main(["--undo", "--config", str(config)]) == 1
    assert Journal(path).entries and (runtime / "state_dir").readlink() == used
    assert main(["--undo", "--config", str(config)]) == 0
    assert not Journal(path).entries and not list(runtime.glob("state_dir"))


def test_the_default_state_dir_until_now(config: Path, runtime: Path) -> None:
    """The default folder needs no remembering: the undo looks there whatever is configured."""
    path = left(runtime)
    remember(runtime)
    assert not list(runtime.glob("state_dir"))
    assert main(["--undo", "--config", str(config)]) == 0
    assert not Journal(path).entries


def test_a_folder_that_fails_leaves_no_other_out(
    config: Path, runtime: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The configured folder cannot be made: one error, and the rest is undone."""
    path = left(runtime)
    (config.parent / "file").touch()
    config.write_text(f'[daemon]\nstate_dir = "{config.parent}/file/none"\n')
    assert main(["--undo", "--config", str(config)]) == 1
    assert capfd.readouterr().err.splitlines() == [
        f"error: failed to use {config.parent}/file/none",
        "error: Not a directory",
    ]
    assert not Journal(path).entries


@pytest.mark.parametrize("by_unit", [True, False])
def test_a_daemon_that_starts_remembers_its_folder(
    config: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch, by_unit: bool
) -> None:
    """A daemon remembers its folder once it has it to itself, unless systemd did not start it."""

    async def refused(*_args: object) -> None:
        raise GangError("no bus")

    monkeypatch.setattr(service.control, "serve", refused)
    if not by_unit:
        monkeypatch.delenv("RUNTIME_DIRECTORY")
    assert main(["--config", str(config)]) == 1
    assert [link.readlink() for link in runtime.glob("state_dir")] == [config.parent] * by_unit


def test_a_folder_that_cannot_be_remembered_is_a_warning(
    runtime: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The daemon starts all the same."""
    runtime.rmdir()
    remember(Path("/else"))
    assert "for the undo after a crash: No such file" in caplog.text


def test_a_restart_leaves_the_host_to_the_next_gangd(config: Path) -> None:
    """The undo after the stop does nothing, once. If the next one fails to start, the undo after it works."""
    path = left(config.parent)
    hand_over(config.parent)
    assert main(["--undo", "--config", str(config)]) == 0
    assert Journal(path).entries
    assert main(["--undo", "--config", str(config)]) == 0
    assert not Journal(path).entries


def test_a_restart_with_another_state_dir_hands_nothing_over(config: Path, runtime: Path) -> None:
    """The gangd that starts looks elsewhere, so that the undo of the one before is due."""
    used = config.parent / "used"
    path = left(used)
    remember(used)
    hand_over(used)
    assert main(["--undo", "--config", str(config)]) == 0
    assert not Journal(path).entries
