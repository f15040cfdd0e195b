# SPDX-License-Identifier: Apache-2.0
"""The words that gangctl offers for the last one, and the completions that bash makes of them."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes import FakeService, guest, local_client, snapshot
from gangd.cli.complete import candidates, plain
from gangd.cli.main import commands, main, parser
from gangd.control import client as control
from gangd.errors import NoDaemon

REPO = Path(__file__).resolve().parents[3]
HOSTILE = [
    "$(reboot)",
    "a b",
    "`id`",
    "x;y",
    "--all",
    "7",
    "e\x1b[31m",
    "\u202eevil",
    "new\nline",
    "it's",
    "a:b",
    "*",
    "",
]
UUIDS = sorted(guest(name).uuid for name in HOSTILE)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """The buses that were asked; behind each are web, web-2, db and hostile names."""
    service = FakeService(
        snapshot(*[guest(name, 10 + i) for i, name in enumerate(["web", "web-2", *HOSTILE])], guest("db"))
    )
    buses: list[str | None] = []

    def connect(bus: str | None = None, timeout: float = 0, start: bool = True) -> control.Client:
        assert 0 < timeout <= 5 and not start
        buses.append(bus)
        return local_client(service)

    monkeypatch.setattr(control, "connect", connect)
    return buses


def of(*words: str) -> list[str]:
    return candidates(parser(), words)


def test_commands_and_options(asked: list[str | None]) -> None:
    assert set(of("")) == {c.name for c in commands()} | {"help"}
    assert of("policy-") == ["policy-list", "policy-show"]
    assert of("help", "dom") == ["domain", "dominfo"]
    assert of("plan", "--e") == ["--explain"]
    assert of("event", "--event", "libvirt") == ["libvirt-found", "libvirt-lost"]
    assert of("smt", "") == ["off", "on", "show"] and of("smt", "on", "") == []
    assert "--connect" in of("-") and "--version" in of("--v")
    assert of("-q", "--bus", "session", "vcpu") == ["vcpuinfo"]
    assert (
        of("bogus", "") == of("status", "") == of("stats", "--interval", "") == of("config-check", "") == []
    )
    assert asked == []


def test_domains_and_policies(asked: list[str | None]) -> None:
    assert of("mark", "web") == ["web", "web-2"]
    assert of("mark", "d") == sorted(word for word in ["db", *UUIDS] if word.startswith("d"))
    assert of("policy-show", "") == ["relaxed", "strict"]
    assert of("mark", "web", "--policy", "") == ["default", "dense", "latency", "off", "relaxed", "strict"]
    assert of("mark", "web", "--policy", "=", "st") == ["strict"]
    assert of("mark", "web", "--weight", "5", "") == of("mark", "web", "") == []
    assert of("advise", "db", "web") == of("advise", "--domain", "db", "web") == ["web", "web-2"]
    assert of("undo", "--all", "--resume", "web") == of("set", "--config", "web") == ["web", "web-2"]
    assert of("stats", "web", "--since", "") == ["mark"]
    assert of("set", "web", "--policy", "r") == ["relaxed"]
    assert of("stats", "--domain", "web-") == of("plan", "--explain", "--domain", "=", "web-") == ["web-2"]
    assert of("dominfo", "--domain", "web", "") == of("plan", "--domain", "=", "web", "") == []
    assert of("--bus", "session", "stats", "--interval", "5", "web-") == ["web-2"]
    assert (
        of("--bus=unix:path=/x", "unmark", "web-")
        == of("--bus", "=", "unix:path=/x", "unmark", "web-")
        == ["web-2"]
    )
    assert asked[-3:] == ["session", "unix:path=/x", "unix:path=/x"]


def test_hostile_names_are_offered_by_uuid(asked: list[str | None]) -> None:
    assert of("dominfo", "") == sorted(["web", "web-2", "db", *UUIDS])


@given(st.text())
def test_a_plain_name_is_one_word_anywhere(name: str) -> None:
    if plain(name):
        assert shlex.split(name) == [name] and name.isprintable() and not name.startswith("-")


def test_no_daemon_is_silent(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def absent(bus: str | None = None, timeout: float = 0, start: bool = True) -> control.Client:
        raise NoDaemon("gangd is not running")

    monkeypatch.setattr(control, "connect", absent)
    assert main(["--complete", "mark", ""]) == 0
    assert main(["--complete", "dominfo", "--"]) == 0
    out, err = capsys.readouterr()
    assert err == "" and out.splitlines()[:2] == ["--bus", "--connect"]


@pytest.fixture
def bash(tmp_path: Path) -> Callable[..., list[str]]:
    """Return a function that gives bash's completions of words; its gangctl knows hostile names."""
    shell = shutil.which("bash")
    if shell is None:
        pytest.skip("bash is not installed")
    names = ["web", "db", *HOSTILE]
    program = tmp_path / "gangctl"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nfrom gangd.cli.main import main\nfrom gangd.control import client\n"
        "from fakes import FakeService, guest, local_client, snapshot\n"
        f"service = FakeService(snapshot(*[guest(n) for n in {names!r}]))\n"
        "client.connect = lambda bus=None, timeout=0, **others: local_client(service)\nsys.exit(main())\n"
    )
    program.chmod(0o755)

    def offered(*words: str) -> list[str]:
        array = " ".join(map(shlex.quote, ("gangctl", *words)))
        script = (
            f"source {REPO}/daemon/completion/gangctl; COMP_WORDS=({array}); COMP_CWORD={len(words)}; "
            f'_gangctl gangctl; for w in "${{COMPREPLY[@]}}"; do printf \'%s\\0\' "$w"; done; '
            "complete -p gangctl >&2"
        )
        env = {
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "PYTHONPATH": f"{REPO / 'daemon'}:{REPO / 'tests'}",
            "LC_ALL": "C.UTF-8",
        }
        done = subprocess.run([shell, "-c", script], env=env, capture_output=True, text=True, check=True)
        assert done.stderr == "complete -F _gangctl gangctl\n"
        return done.stdout.split("\0")[:-1]

    return offered


def test_bash(bash: Callable[..., list[str]], tmp_path: Path) -> None:
    assert bash("ma") == ["mark"]
    assert bash("mark", "") == sorted(["web", "db", *UUIDS])
    assert bash("mark", "web", "--policy", "=", "rel") == ["relaxed"]
    assert bash("mark", "nothing-like-it") == []
    assert bash("mark", f"$(touch {tmp_path}/never)") == []
    assert not (tmp_path / "never").exists()
