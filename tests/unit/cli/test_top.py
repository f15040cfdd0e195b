# SPDX-License-Identifier: Apache-2.0
"""The rates on a screen: what is in a frame, and that no terminal is too strange."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from fakes import FakeService, guest, local_client, snapshot
from gangd.cli.main import main
from gangd.cli.rates import rates
from gangd.cli.table import width
from gangd.cli.top import SORTS, Order, cut, frame
from gangd.control import client as control
from gangd.control import documents
from gangd.control.structs import plain
from gangd.errors import GangError
from gangd.model.domain import Mark

from .terminal import gangctl


class Running(FakeService):
    """Each measurement is 10 s after the one before."""

    async def measured(self) -> Any:
        await self.refresh()
        return self.snapshot()


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> FakeService:
    made = Running(snapshot(guest("a", 3, 1), guest("web", 4, mark=Mark()), guest("evil\x1b[31m", 5, 1)))
    monkeypatch.setattr(control, "connect", lambda bus=None, timeout=0, **others: local_client(made))
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    monkeypatch.setenv("TZ", "UTC")
    return made


def test_a_frame(service: FakeService, capsys: pytest.CaptureFixture[str]) -> None:
    """The domain that waits longest comes first; sums over vCPUs; names cannot reach the terminal."""
    assert main(["top", "--batch", "-n", "1"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"\d\d:\d\d:\d\d   3 running, 1 marked   rates over 10\.0 s   by Run delay/s", out[0])
    assert [line.split()[0] for line in out[4:]] == ["web", "a", "evil\\x1b[31m"]
    assert out[2].split()[:3] == ["Domain", "Policy", "CPU"]
    row = " ".join(out[4].split())
    assert row == "web relaxed 100.0 % ████████ 80.0 % 250.0 ms 200.0 50.0 600.0 200.0"


def test_batch_goes_on(service: FakeService, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "web", "--batch", "--iterations", "3", "-q"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines() if line] == ["web"] * 3
    assert main(["top", "--json", "-n", "2"]) == 0
    made = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [d["interval_seconds"] for d in made] == [10.0, 10.0]


def test_unknown_is_not_zero() -> None:
    """A guest without probes has a CPU share and no exits; one that just came has nothing."""
    before = plain(documents.stats(snapshot(guest("web", 3), read_at=1.0)))
    after = plain(documents.stats(snapshot(guest("web", 3), guest("new", 4), read_at=2.0)))
    after["domains"][1]["vcpus"][0]["pause_exits"] = None
    lines = frame(rates(before, after), Order())
    web, new = (next(line for line in lines if f" {name} " in line).split() for name in ("web", "new"))
    assert web[:4] == ["web", "-", "0.0", "%"] and web[7] == "-"
    assert new == ["new", *["-"] * 8]
    nobody = {"time_seconds": 0.0, "interval_seconds": 1.0, "domains": []}
    assert frame(nobody, Order())[2:] == [" no domain is running"]


@pytest.mark.parametrize("step", [-3600.0, 3600.0])
def test_rates_outlive_a_clock_step(step: float) -> None:
    """The interval is 2 s, although somebody set the clock in between."""
    first = snapshot(guest("web", 3))
    before = plain(documents.stats(first))
    after = plain(documents.stats(replace(first, time=first.time + 2 + step, read_at=502.0)))
    assert rates(before, after)["interval_seconds"] == 2.0
    older = {key: value for key, value in before.items() if key != "monotonic_seconds"}
    if step > 0:  # a gangd of another version: the clock of day is all there is
        assert rates(older, after)["interval_seconds"] == 2.0 + step
    else:
        with pytest.raises(GangError, match="longer interval"):
            rates(older, after)


@pytest.mark.parametrize("sort", SORTS)
def test_any_column_is_an_order(sort: str) -> None:
    """Text ascends, numbers descend, both the other way round on request; unknown comes last either way."""
    column = SORTS.index(sort)
    rows = [("b", *[1] * 8), ("c", *[None] * 8), ("a", *[1] * 8), ("d", *[2] * 8)]
    for reverse in (False, True):
        order = Order(sort, reverse)
        names = "".join(row[0] for row in order.sorted(rows))
        texts = {"name": "abcd", "policy": "abdc"}.get(sort, "dabc")
        assert names == ({"name": "dcba", "policy": "dabc"}.get(sort, "abdc") if reverse else texts)
    order.press("KEY_RIGHT")
    assert order.sort == (column + 1) % len(SORTS)
    order.press("r")
    assert not order.reverse


@pytest.mark.parametrize("cells", range(-1, 9))
def test_lines_are_cut_to_cells(cells: int) -> None:
    for text in ("abcdefgh", "東京東京", "e\u0301e\u0301e\u0301", ""):
        assert width(cut(text, cells)) <= max(0, cells)
    assert cut("東京", 3) == "東" and cut("abc", 3) == "abc"


def test_not_a_terminal(service: FakeService, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top"]) == 1
    assert capsys.readouterr().err == (
        "error: failed to watch the domains\nerror: this is not a terminal (--batch prints plain text)\n"
    )
    assert main(["top", "nope", "--batch"]) == 1
    assert "Domain not found" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("-n", "0"), ("-n", "x\x1b"), ("--interval", "0"), ("-n", "99999999999")])
def test_usage(service: FakeService, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    assert main(["top", "--batch", *words]) == 1
    assert "\x1b" not in (err := capsys.readouterr().err) and "failed to parse" in err


@pytest.mark.parametrize("kind", ["dumb", "no-such-terminal", ""])
def test_a_terminal_that_cannot_be_drawn_on(kind: str) -> None:
    with gangctl("top", env={"TERM": kind}) as terminal:
        terminal.wait_for(f"error: a terminal of type {kind or 'none'} cannot be drawn on")
        assert terminal.end() == 1


def test_the_screen() -> None:
    """Drawn at once, again when resized, also to next to nothing; q ends it and the screen is given back."""
    with gangctl("top", "--interval", "0.3") as terminal:
        terminal.wait_for("measuring")
        terminal.wait_for("rates over 10.0 s.*web.*東京|東京.*web")
        for size in ((3, 10), (1, 1), (2, 2), (50, 300), (24, 80)):
            terminal.resize(*size)
        terminal.wait_for("rates over 10.0 s")
        terminal.send("x")
        terminal.send("q")
        assert terminal.end() == 0
        assert "Traceback" not in terminal.text and "error" not in terminal.text
        assert "\x1b[?1049l" in terminal.text


@pytest.mark.parametrize("size", [(1, 1), (2, 5), (4, 200)])
def test_a_tiny_terminal(size: tuple[int, int]) -> None:
    with gangctl("top", "--interval", "0.1", "-n", "3", size=size) as terminal:
        assert terminal.end() == 0
        assert "Traceback" not in terminal.text


def test_more_domains_than_lines() -> None:
    """The rows scroll below the header, as far as there are any."""
    with gangctl("top", "--interval", "0.2", size=(6, 100)) as terminal:
        terminal.wait_for(r"\.\.\. 2 more")
        for _ in range(9):
            terminal.send("\x1bOB")
        terminal.wait_for("evil")
        terminal.send("\x1bOC")
        terminal.wait_for("PAUSE")  # of "by PAUSE/s": curses writes what is new
        terminal.send("r")
        terminal.wait_for(", reversed")
        terminal.send("q")
        assert terminal.end() == 0


def test_ctrl_c_ends_it() -> None:
    with gangctl("top", "--interval", "60") as terminal:
        terminal.wait_for("measuring")
        terminal.send("\x03")
        assert terminal.end() == 0
        assert "Traceback" not in terminal.text


@pytest.mark.parametrize("size", [(24, 100), (7, 60)])
def test_letters_the_terminal_does_not_have(size: tuple[int, int]) -> None:
    """They are escaped, also where that fills the bottom line."""
    words = ("top", "--interval", "0.2", "-n", "1", "--sort", "name")
    with gangctl(*words, size=size, env={"LC_ALL": "C"}) as terminal:
        terminal.wait_for("web.*#")  # a bar, which curses writes as one # to repeat
        assert terminal.end() == 0
        assert "Traceback" not in terminal.text
