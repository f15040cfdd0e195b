# SPDX-License-Identifier: Apache-2.0
"""Settings are changed in chunks, each with two flushes of the journal, which may fail."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from gangd.actuate import executor as executor_module
from gangd.actuate.executor import Executor, next_step
from gangd.actuate.journal import Journal
from unit.actuate.test_executor import UUID, Fake, fresh, journal, plan

__all__ = ["journal"]


def full(_self: Journal, _lines: list[bytes]) -> None:
    raise OSError(28, "No space left on device")


def test_no_journal_no_change(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Journal, "_append", full)
    pin = Fake("pin", fresh())
    report = Executor([pin], journal).reconcile(plan(1, 2))
    (failure,) = report.failures
    assert "No space left" in failure
    assert report.failed == 2
    assert pin.host == fresh()
    assert not pin.log


def test_a_disk_that_is_full_after_a_write(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """A report names the full disk, and what was written can be undone."""
    pin = Fake("pin", fresh())
    write = pin.write

    def last_write(key: str, value: str) -> None:
        write(key, value)
        monkeypatch.setattr(Journal, "_append", full)

    monkeypatch.setattr(pin, "write", last_write)
    (failure,) = Executor([pin], journal).reconcile(plan(1)).failures
    assert "No space left" in failure
    assert [entry.pending for entry in journal.entries.values()] == ["1"]
    monkeypatch.undo()
    assert Executor([pin], journal).undo().failures == ()
    assert pin.host == fresh()


def test_a_full_disk_keeps_nothing_from_being_put_back(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report names the full disk; what it still has of the settings does no harm to what was put back."""
    pin = Fake("pin", fresh())
    assert Executor([pin], journal).reconcile(plan(1, 2)).writes == 2
    with monkeypatch.context() as patch:
        patch.setattr(Journal, "_append", full)
        report = Executor([pin], journal).undo()
    assert (report.undone, pin.host) == (2, fresh())
    assert ["No space left" in failure for failure in report.failures] == [True]
    assert Executor([pin], Journal(journal.path)).undo().undone == 0
    assert pin.host == fresh()


def test_settings_are_written_in_chunks(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two chunks the caller may do something else, and the journal is flushed twice for each."""
    monkeypatch.setattr(executor_module, "CHUNK", 2)
    flushed = Mock(wraps=journal._append)
    monkeypatch.setattr(journal, "_append", flushed)
    pin = Fake("pin", {f"{UUID}/pin/{vcpu}": "0-3" for vcpu in range(5)})
    executor = Executor([pin], journal)
    for steps, writes in ((executor.reconciling(plan(1, 2, 3, 1, 2)), 5), (executor.undoing(), 5)):
        flushed.reset_mock()
        pin.log.clear()
        seen = []
        while (report := next_step(steps)) is None:
            seen.append(len(pin.log))
        assert seen == [2, 4, 5]
        assert flushed.call_count == 6
        assert (report.writes + report.undone, report.failures) == (writes, ())
    assert not journal.entries
