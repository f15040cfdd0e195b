# SPDX-License-Identifier: Apache-2.0
"""gangctl trace: lines, account, files, and what is said of what was not seen."""

from __future__ import annotations

import json
import time
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from fakes import FakeService
from gangd import config
from gangd.bpf.abi import TraceKind as Kind
from gangd.trace import recorder
from gangd.trace.kept import kept
from gangd.trace.recorder import Event, Recording
from unit.cli.conftest import EVIL
from unit.cli.test_gangctl import run

BEGIN, SECOND = 1_000_000_000, 1_000_000_000


@pytest.fixture
def asked(
    service: FakeService, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> list[tuple[list[int], float]]:
    """The threads and seconds of each recording. In each the first thread runs and the second waits. gangd's
    runtime directory is tmp_path."""
    found: list[tuple[list[int], float]] = []

    def record(tids: Any, seconds: float, told: Any) -> Recording:
        found.append((list(tids), seconds))
        first, second, *_ = (*tids, 0)
        events = [
            Event(BEGIN, first, 0, 0, Kind.RUN),
            Event(BEGIN, second, 0, 1, Kind.WAIT),
            Event(BEGIN + SECOND // 2, first, 0, 0, Kind.PAUSE),
        ]
        return Recording(BEGIN, BEGIN + SECOND, events, 3, {}, {}, ("turns: no gang scheduler is loaded",))

    monkeypatch.setattr(recorder, "record", record)
    monkeypatch.setattr(config, "RUNTIME", tmp_path)
    return found


def test_trace_shows_lines_and_an_account(
    asked: list[tuple[list[int], float]], capsys: pytest.CaptureFixture[str]
) -> None:
    """Stdout has the middle of the recording as lines and an account of all, stderr what is missing."""
    code, out, err = run(capsys, "trace", "web", "--seconds", "1")
    assert code == 0 and len(asked) == 1 and asked[0][1] == 1.0
    assert out.startswith(" 100 ms of 1.00 s, from 0.45 s on; a column is ")
    assert " CPU 0    aaaa" in out and " a 1      ░░░░" in out
    account = out.splitlines()[-1].split()
    assert account[:9] == ["a", "web", "1.00", "s", "1.00", "s", "0.0", "%", "0"]
    assert account[9:] == ["1", "1", "0"]
    assert err.splitlines() == [
        "gangctl: not seen are turns: no gang scheduler is loaded",
        "gangctl: 3 events were lost: the host was faster than this program read them",
    ]


def test_every_running_domain(
    asked: list[tuple[list[int], float]], capsys: pytest.CaptureFixture[str]
) -> None:
    """gangctl traces all domains if none is named, and one that is named twice once; names are untrusted."""
    out = run(capsys, "trace", "-q")[1]
    run(capsys, "trace", "web", "web")
    assert len(asked[0][0]) > len(asked[1][0]) == len(set(asked[1][0]))
    assert "evil" in out and not any(char in out for char in "\x1b\r\u202e")


def test_files(
    asked: list[tuple[list[int], float]], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The picture has the window, the trace for Perfetto all; a file that cannot be written is named."""
    picture, trace = tmp_path / "a.svg", tmp_path / "a.json"
    assert run(capsys, "trace", "--svg", str(picture), "--perfetto", str(trace), "--window", "10")[0] == 0
    ET.parse(picture)
    slices = [one for one in json.loads(trace.read_text())["traceEvents"] if one["name"] == "runs"]
    assert [one["dur"] for one in slices] == [1e6]
    code, _, err = run(capsys, "trace", "--svg", str(tmp_path / "none" / "a.svg"))
    assert code == 1 and "cannot write" in err and "No such file" in err


def test_json(asked: list[tuple[list[int], float]], capsys: pytest.CaptureFixture[str]) -> None:
    """The document has every run and wait; times are microseconds since the recording began."""
    document = json.loads(run(capsys, "--json", "trace", "web")[1])
    assert (document["seconds"], document["lost"], len(document["missing"])) == (1.0, 3, 1)
    assert document["runs"] == [{"cpu": 0, "begin": 0.0, "end": 1e6, "guest": 0, "vcpu": 0}]
    assert document["waits"] == [{"begin": 0.0, "end": 1e6, "guest": 0, "vcpu": 1}]
    assert document["pauses"][0]["lhp"] is True
    assert document["domains"][0]["name"] == "web" and document["domains"][0]["corun_ratio"] == 0.0


def test_every_trace_keeps_its_picture(
    asked: list[tuple[list[int], float]], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A picture is kept without an option, of --json too, and replaces the last; names are text in it."""
    before = time.time()
    for words in (("--json", "trace", "web"), ("trace", "--window", "10")):
        assert run(capsys, *words)[0] == 0
        picture = kept(tmp_path)
        assert before - 1 < picture.recorded <= time.time()
        texts = [one.text or "" for one in ET.fromstring(picture.svg).iter()]
        assert [text for text in texts if " ms of " in text] == [
            "100 ms of 1 guests" if "web" in words else "10 ms of 3 guests"
        ]
        assert not any(char in text for text in texts for char in "\x1b\r\u202e")
    assert [file.name for file in tmp_path.iterdir()] == ["trace.svg"]


def test_a_picture_that_cannot_be_kept_fails_no_trace(
    asked: list[tuple[list[int], float]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """The trace is printed, and a sentence on stderr says why the picture is not kept."""
    monkeypatch.setattr(config, "RUNTIME", tmp_path / "none")
    code, out, err = run(capsys, "--json", "trace", "web")
    assert code == 0 and json.loads(out)["seconds"] == 1.0
    said = f"cannot keep the picture of this trace in '{tmp_path}/none': No such file or directory"
    assert err == f"gangctl: {said}\n"


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (("--seconds", "61"), "'61' is more than 60 seconds"),
        (("--seconds", "x"), "'x' is not a number of seconds"),
        (("--window", "0"), "'0' is not a number of milliseconds"),
        (("nobody",), "nobody"),
        (("東京",), "no vCPU of a running domain has a thread"),
    ],
)
def test_bad_requests(
    asked: list[tuple[list[int], float]],
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    cause: str,
) -> None:
    """Nothing is recorded, and one sentence says why."""
    code, _, err = run(capsys, "trace", *words)
    assert code == 1 and cause in err and not asked
    assert EVIL not in err
