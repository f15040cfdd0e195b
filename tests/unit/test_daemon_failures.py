# SPDX-License-Identifier: Apache-2.0
"""The actions that failed: the guests they concern, and where they are shown."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("libvirt")

from gangd.actuate.base import Report
from gangd.model.domain import Mark
from gangd.model.event import DomainSeen
from gangd.model.mark_change import MarkChange
from unit.test_daemon import DB, WEB, Bench


def test_failures_are_shown_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A failure stays visible until the action succeeds; --verbose adds the kernel's log, once."""
    caplog.set_level("DEBUG", "gangd")
    bench = Bench(tmp_path, WEB)

    async def test() -> None:
        bench.host.report = Report(writes=2, failures=("failed to pin",), failed=1)
        bench.host.verifier_log = "0: R1\nR1 invalid mem access"
        await bench.answers.refresh()
        assert [r.getMessage() for r in caplog.records if r.levelname == "DEBUG"] == [
            *("0: R1", "R1 invalid mem access"),
        ]
        bench.source.troubles = ("cannot read domain 'db': access denied",)
        assert bench.answers.snapshot().failures == (*bench.source.troubles, "failed to pin")
        bench.source.troubles = ()
        bench.host.report = Report()
        await bench.answers.refresh()
        shown = bench.answers.snapshot()
        assert shown.failures == ()
        assert (shown.own.writes, shown.own.write_failures) == (2, 1)

    bench.run(test)


@pytest.mark.parametrize("again", [frozenset(), frozenset({DB.uuid})])
def test_a_lasting_failure_has_nobody_else_looked_at(tmp_path: Path, again: frozenset[str]) -> None:
    """An event makes its guest stale; a failed setting makes its guest stale after a pause."""
    bench = Bench(tmp_path, WEB, DB)

    async def test() -> None:
        bench.host.report = Report(missing=("gang: no gang.ko",), failures=("failed to pin",), again=again)
        await bench.answers.refresh()
        for number, pause in ((1, 0.0), (2, 0.3)):
            await asyncio.sleep(pause)
            before = len(bench.host.plans)
            bench.source.emit(DomainSeen(replace(WEB, memory_kib=number)))
            await bench.until(lambda known=before: len(bench.host.plans) > known)
        assert bench.host.stale[-2:] == [{WEB.uuid}, {WEB.uuid, *again}]

    bench.run(test)


def test_the_watchdog_does_not_wait_for_libvirt(tmp_path: Path) -> None:
    """A call about one guest that does not return: gangd is alive all the same, and so are the others. What
    an ejection took from all is looked for with the next of them."""
    bench = Bench(tmp_path, WEB, DB)

    async def hangs(*_: object) -> None:
        await asyncio.Event().wait()

    async def test() -> None:
        bench.source.set_mark = bench.source.resync = hangs  # type: ignore[assignment, method-assign]
        waiting = [asyncio.create_task(bench.answers.mark("web", MarkChange())) for _ in range(20)]
        waiting.append(asyncio.create_task(bench.answers.refresh()))
        await asyncio.sleep(0.05)
        bench.host.thrown_out = ("ejected: stall",)
        async with asyncio.timeout(2):
            await bench.daemon.alive()
        bench.source.emit(DomainSeen(replace(DB, mark=Mark())))
        await bench.until(lambda: bench.gangs == ["db"])
        assert bench.host.stale[-1] is None
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    bench.run(test)
