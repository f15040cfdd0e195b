# SPDX-License-Identifier: Apache-2.0
"""The end of a daemon: everything is put back, and nothing is done after that."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("libvirt")

from gangd.model.event import DomainSeen
from unit.test_daemon import WEB, Bench, marked


def test_nothing_is_done_after_the_undo(tmp_path: Path) -> None:
    """Undoing a pin is itself an event: it must not make the daemon pin again on its way out. Nor is a wish
    granted that nobody would take back."""
    bench = Bench(tmp_path, marked(WEB), interval=0.1)

    async def test() -> None:
        await bench.until(lambda: bench.gangs == ["web"])
        await bench.daemon.stop()
        before = len(bench.host.plans)
        bench.source.emit(DomainSeen(replace(marked(WEB), memory_kib=1)))
        asked = [asyncio.create_task(bench.answers.smt("on")), asyncio.create_task(bench.answers.undo(None))]
        await asyncio.sleep(0.3)
        assert (len(bench.host.plans), bench.host.ended) == (before, ["undo", "close"])
        for one in asked:
            one.cancel()

    bench.run(test)


def test_stop_undoes_then_closes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Pins first, kernel last; what could not be undone is said."""
    bench = Bench(tmp_path, WEB)
    asyncio.run(bench.daemon.stop())
    assert bench.host.ended == ["undo", "close"]
    assert "pinned by hand" in caplog.text
