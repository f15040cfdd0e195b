# SPDX-License-Identifier: Apache-2.0
"""The daemon before it knows its host: nothing is done on a half of the news."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("libvirt")

from gangd.model.event import DomainSeen
from unit.test_daemon import WEB, Bench, FakeSource, marked


class SlowSource(FakeSource):
    """Connects, hears of a guest, and has not read everything yet."""

    read = False

    async def resync(self) -> None:
        self.emit(DomainSeen(marked(WEB)))
        while not self.read:
            await asyncio.sleep(0.01)
        await super().resync()


def test_nothing_is_done_before_everything_was_read(tmp_path: Path) -> None:
    """Neither is a guest refused for want of CPUs, nor undone what an earlier gangd left."""
    bench = Bench(tmp_path, marked(WEB), source=SlowSource)

    async def scenario() -> None:
        following = asyncio.create_task(bench.daemon.follow())
        await bench.until(lambda: bool(bench.answers.snapshot().state.domains))
        await asyncio.sleep(0.1)
        assert bench.answers.snapshot().state.connected and bench.host.plans == []
        bench.source.read = True  # type: ignore[attr-defined]
        await bench.until(lambda: bench.gangs == ["web"])
        assert len(bench.host.plans) == 1
        following.cancel()

    asyncio.run(scenario())
