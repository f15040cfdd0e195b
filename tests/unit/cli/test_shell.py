# SPDX-License-Identifier: Apache-2.0
"""Commands at a prompt, from a pipe, and in one word."""

from __future__ import annotations

import io
import json
import shlex
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes import FakeService, guest, local_client, snapshot
from gangd.cli import shell
from gangd.cli.main import main
from gangd.control import client as control
from gangd.errors import InvalidArgument

from .terminal import gangctl


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> FakeService:
    made = FakeService(snapshot(guest("web", 3), guest("my vm", 4), guest("a#b;c", 5)))
    monkeypatch.setattr(control, "connect", lambda bus=None, timeout=0, **others: local_client(made))
    return made


def run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, text: str | bytes, *words: str
) -> tuple[int, str, str]:
    """main() with `text` on standard input."""
    data = text.encode() if isinstance(text, str) else text
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data), "utf-8"))
    code = main(words)
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize(
    ("line", "commands"),
    [
        ("", []),
        (" ; ;; ", []),
        ("# list", []),
        ("list --all", [["list", "--all"]]),
        ("mark web;list # both", [["mark", "web"], ["list"]]),
        ("mark 'my vm' ; mark \"a#b;c\"", [["mark", "my vm"], ["mark", "a#b;c"]]),
        ("mark a#b\\;c", [["mark", "a#b;c"]]),
        ("mark my\\ vm", [["mark", "my vm"]]),
        ("x '' \"\"", [["x", "", ""]]),
        ('x \'a\\b\' "c\\"d"', [["x", "a\\b", 'c"d']]),
        ("x a'b'\"c\"", [["x", "abc"]]),
        ("x \\", [["x", ""]]),
    ],
)
def test_a_line_becomes_commands(line: str, commands: list[list[str]]) -> None:
    assert shell.split(line) == commands


@pytest.mark.parametrize("line", ["mark 'web", 'mark "web', "mark web; x 'y"])
def test_a_quote_has_to_end(line: str) -> None:
    with pytest.raises(InvalidArgument, match="missing"):
        shell.split(line)


@given(st.lists(st.text(), min_size=1))
def test_quoted_words_come_back(words: list[str]) -> None:
    """The words that a shell would quote are read as the shell would read them."""
    assert shell.split(shlex.join(words)) == [words]


def test_a_pipe_is_read_to_its_end(
    service: FakeService, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that fails ends nothing, and is remembered by the exit status."""
    code, out, err = run(capsys, monkeypatch, "mark web\nunmark nope\n\nmark 'my vm'; dominfo 'open\nlist\n")
    assert code == 1
    assert out.startswith("Domain 'web' marked") and " Id   Name" in out
    assert err == (
        "error: failed to unmark domain 'nope'\n"
        "error: Domain not found: no domain with matching name 'nope'\n"
        "error: failed to parse the command\n"
        "error: missing '\n"
    )
    assert [c[1] for c in service.calls if c[0] == "mark"] == ["web"]


def test_nothing_after_quit(
    service: FakeService, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for leave in shell.LEAVE:
        assert run(capsys, monkeypatch, f"mark web; {leave}; mark nope\nmark nope\n")[0] == 0
    assert run(capsys, monkeypatch, "") == (0, "", "")


def test_options_hold_for_every_line(
    service: FakeService, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = run(capsys, monkeypatch, "status\nmark '\n", "--json")
    status, _, rest = out.partition("\n}\n")
    assert (code, err) == (1, "")
    assert json.loads(status + "}")["schema"] == 1
    assert json.loads(rest)["error"]["code"] == "InvalidArgument"


def test_no_command_in_a_line_is_no_new_prompt(
    service: FakeService, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, err = run(capsys, monkeypatch, "--quiet\n")
    assert code == 1 and "no command was given" in err


def test_bytes_that_are_no_text(
    service: FakeService, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, err = run(capsys, monkeypatch, b"dominfo \xff\nstatus\n")
    assert code == 1 and err.startswith("error: failed to show domain '\\xff'\n")


def test_several_commands_in_one_word(
    service: FakeService, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A word holds several commands, as for virsh; an argument that has blanks holds none."""
    code, out, _ = run(capsys, monkeypatch, "", "-q", "mark web; dominfo 'my vm'")
    assert code == 0 and out.startswith("Domain 'web' marked") and "my vm" in out
    assert run(capsys, monkeypatch, "", "mark web; bogus; unmark web")[0] == 1
    assert service.calls[-1] == ("resolve", "web")
    assert run(capsys, monkeypatch, "", "dominfo", "my vm")[0] == 0


def test_where_history_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/h")
    monkeypatch.setenv("XDG_STATE_HOME", "/s")
    assert shell.history_file() == Path("/s/gangctl/history")
    for other in ("", "relative"):
        monkeypatch.setenv("XDG_STATE_HOME", other)
        assert shell.history_file() == Path("/h/.local/state/gangctl/history")


def test_the_prompt(tmp_path: Path) -> None:
    """Commands, errors, Ctrl-C, completion and the end, on a terminal; lines are kept for their owner."""
    state = {"XDG_STATE_HOME": str(tmp_path / "state")}
    with gangctl(env=state) as terminal:
        terminal.wait_for("'quit' to quit.*gangctl [#>] ")
        terminal.send("dominfo web\n")
        terminal.wait_for("Name: +web.*gangctl [#>] ")
        terminal.send("dominfo nope; help event\n")
        terminal.wait_for("error: Domain not found.*--timestamp.*gangctl [#>] ")
        terminal.send("half a line")
        terminal.wait_for("half a line")
        terminal.wait_for("gangctl [#>] ", again="\x03")
        terminal.send("dominfo w\t\n")
        terminal.wait_for("dominfo web .*Name: +web.*gangctl [#>] ")
        terminal.send("topo\t\n")
        terminal.wait_for("package 0.*gangctl [#>] ")
        terminal.send("exit\n")
        assert terminal.end() == 0
        assert "Traceback" not in terminal.text
    kept = tmp_path / "state/gangctl/history"
    assert kept.read_text().splitlines()[:2] == ["dominfo web", "dominfo nope; help event"]
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    with gangctl("--quiet", env=state) as terminal:
        terminal.wait_for("gangctl [#>] ")
        terminal.send("\x1b[A")
        terminal.wait_for("exit")
        terminal.send("\x15\x04")
        assert terminal.end() == 0


def test_a_prompt_without_a_home() -> None:
    """A prompt says where it cannot keep history, and nothing else is missing."""
    with gangctl(env={"XDG_STATE_HOME": "/proc/1/nowhere"}) as terminal:
        terminal.wait_for("no history is kept: /proc/1/nowhere/gangctl/history: .*gangctl [#>] ")
        terminal.send("quit\n")
        assert terminal.end() == 0
