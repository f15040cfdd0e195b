# SPDX-License-Identifier: Apache-2.0
"""The journal after death at any byte, damage, and a full disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gangd.actuate import journal as module
from gangd.actuate.journal import Entry, Journal
from gangd.errors import GangError

ONE = Entry("0-3", written="1")
TWO = Entry("0-3", written="1", pending="2")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "journal"


def kept(path: Path, key: str = "a", entry: Entry = ONE) -> Journal:
    """A journal with that entry on disk."""
    journal = Journal(path)
    journal.put("pin", key, entry)
    journal.flush()
    return journal


def entries(path: Path) -> dict[tuple[str, str], Entry]:
    return dict(Journal(path).entries)


def test_a_new_journal_is_empty_and_makes_its_directory(path: Path) -> None:
    assert entries(path) == {}
    assert path.parent.is_dir()


def test_a_successor_reads_the_entries_that_were_flushed(path: Path) -> None:
    """No entry is on disk before the flush; a line has the last state of a setting since the flush before."""
    journal = kept(path)
    journal.put("pin", "b", TWO)
    journal.put("pin", "a", TWO)
    journal.drop("pin", "b")
    journal.drop("pin", "never")
    assert entries(path) == {("pin", "a"): ONE}
    journal.flush()
    assert len(path.read_bytes().splitlines()) == 3
    assert entries(path) == {("pin", "a"): TWO}
    assert Journal(path).problem is None


@given(key=st.text(), prior=st.text(), written=st.none() | st.text(), pending=st.none() | st.text())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_text_survives(
    path: Path, key: str, prior: str, written: str | None, pending: str | None
) -> None:
    path.unlink(missing_ok=True)
    for _ in range(2):
        kept(path, key, Entry(prior, written, pending))
    assert entries(path) == {("pin", key): Entry(prior, written, pending)}


def test_death_at_any_byte_loses_at_most_the_last_line(path: Path) -> None:
    journal = Journal(path)
    states = [{}]
    ends = [0]
    for key, entry in (("a", ONE), ("b\n", TWO), ("a", None), ("c", ONE)):
        if entry:
            journal.put("pin", key, entry)
        else:
            journal.drop("pin", key)
        journal.flush()
        states.append(dict(journal.entries))
        ends.append(path.stat().st_size)
    data = path.read_bytes()
    for cut in range(len(data) + 1):
        path.write_bytes(data[:cut])
        journal = Journal(path)
        expected = states[max(n for n, end in enumerate(ends) if end <= cut)]
        assert journal.problem is None
        assert dict(journal.entries) == expected
        journal.put("pin", "next", ONE)
        journal.flush()  # must not be glued to the torn line
        assert entries(path) == expected | {("pin", "next"): ONE}


WRONG_TYPES = [
    json.dumps({"actuator": "p", "key": "k", "prior": prior, "written": written, "pending": None}).encode()
    for prior, written in ((None, "1"), ("0", 1), ("0", ["1"]))
]
NONSENSE = [b"garbage", b"[]", b"{}", b"3", b"\xff\xfe", b"", b"[" * 9999, b'{"actuator":[],"key":{}}']


@pytest.mark.parametrize("line", [*NONSENSE, *WRONG_TYPES])
def test_damage_is_set_aside_and_the_rest_is_kept(path: Path, line: bytes) -> None:
    kept(path)
    damaged = line + b"\n" + path.read_bytes()
    path.write_bytes(damaged)
    journal = Journal(path)
    assert dict(journal.entries) == {("pin", "a"): ONE}
    assert "1 of 2 lines" in (journal.problem or "")
    assert path.with_name("journal.damaged-1").read_bytes() == damaged
    assert Journal(path).problem is None


def test_a_second_damage_does_not_replace_the_first(path: Path) -> None:
    for text in ("one\n", "two\n"):
        Journal(path)
        path.write_text(text)
        Journal(path)
    assert path.with_name("journal.damaged-1").read_text() == "one\n"
    assert path.with_name("journal.damaged-2").read_text() == "two\n"


@given(st.binary())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_no_file_crashes_it(path: Path, data: bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    kept(path)
    assert entries(path) == {("pin", "a"): ONE}


def test_it_does_not_grow_for_ever(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SLACK", 4)
    journal = Journal(path)
    for _ in range(100):
        journal.put("pin", "a", ONE)
        journal.flush()
    assert len(path.read_bytes().splitlines()) <= 7
    assert entries(path) == {("pin", "a"): ONE}


def test_a_full_disk_is_an_error_and_leaves_the_journal_whole(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = kept(path)

    def full(_descriptor: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(module.os, "fsync", full)
        journal.put("pin", "a", TWO)
        journal.put("pin", "b", TWO)
        with pytest.raises(GangError, match=r"cannot write the journal .*: No space left on device"):
            journal.flush()
        journal.drop("pin", "a")
        with pytest.raises(GangError):
            journal.flush()
        assert dict(journal.entries) == {("pin", "a"): ONE}
    journal.put("pin", "c", TWO)
    journal.flush()
    assert entries(path) == {("pin", "a"): ONE, ("pin", "c"): TWO}


def test_a_journal_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(GangError, match="cannot open the journal"):
        Journal(tmp_path / "file" / "journal")
