# SPDX-License-Identifier: Apache-2.0
"""config-check: what is right, what is wrong, and that no daemon is asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gangd import config
from gangd.cli.main import main
from gangd.control import client as control


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No daemon, and two policies."""

    class Points:
        names = frozenset({"adaptive", "relaxed", "strict"})

    def never(*_args: object) -> None:
        pytest.fail("config-check asked for the daemon")

    monkeypatch.setattr(control, "connect", never)
    found = {"gangd.policies": Points}
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: found[group])


def test_a_valid_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "g\x1b.toml"
    file.write_text("[scheduler]\npolicy = 'strict'\n")
    assert main(["config-check", str(file), "-c", "qemu:///other"]) == 0
    assert capsys.readouterr().out == f"{tmp_path}/g\\x1b.toml: valid\n"
    assert main(["config-check", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "schema": 1,
        "file": str(file),
        "exists": True,
        "valid": True,
    }


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("[scheduler]\nturn_us = 1\n", ":2: scheduler.turn_us: expected `int` >= 1000"),
        ("[nope]\n", ":1: nope: unknown key"),
        (
            "[scheduler]\npolicy = 'lost'\n",
            ": scheduler.policy: no policy is called 'lost' (installed: adaptive, relaxed, strict)",
        ),
        (
            "[[select]]\nname = '*'\n\n[[select]]\nmarked = true\npolicy = 'lost'\n",
            ":4: no policy is called 'lost' (installed: adaptive, relaxed, strict)",
        ),
        (
            "[profile.x]\npolicy = 'lost'\n",
            ":1: no policy is called 'lost' (installed: adaptive, relaxed, strict)",
        ),
    ],
)
def test_an_invalid_file(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, cause: str) -> None:
    file = tmp_path / "gangd.toml"
    file.write_text(text)
    assert main(["config-check", str(file)]) == 1
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"error: failed to check {file}\nerror: {file}{cause}\n")
    assert main(["--json", "config-check", str(file)]) == 1
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "InvalidConfig"


def test_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The usual place may be empty, one that was named may not."""
    usual = tmp_path / "usual.toml"
    monkeypatch.setattr(config, "DEFAULT_PATH", usual)
    assert main(["config-check"]) == 0
    assert capsys.readouterr().out == f"{usual}: not there, every default holds\n"
    assert main(["config-check", str(usual)]) == 1
    assert "No such file" in capsys.readouterr().err
    usual.write_text("")
    assert main(["config-check"]) == 0
    assert capsys.readouterr().out == f"{usual}: valid\n"
