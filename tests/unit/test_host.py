# SPDX-License-Identifier: Apache-2.0
"""The host thread's own rules, without a kernel."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gangd.config import Config, Daemon, Scheduler
from gangd.errors import GangError, NoLibvirt
from gangd.host import Host
from gangd.model.plan import Plan


def refuse() -> object:
    raise NoLibvirt("not now")


def config(folder: Path) -> Config:
    return Config(daemon=Daemon(state_dir=str(folder)), scheduler=Scheduler(backend="none"))


def test_two_gangds_do_not_share_a_journal(tmp_path: Path) -> None:
    """The second is told so in one sentence; when the first is gone it may start."""

    async def scenario() -> None:
        first = Host(config(tmp_path), refuse, tmp_path)
        with pytest.raises(GangError, match="another gangd is running"):
            Host(config(tmp_path), refuse, tmp_path)
        await first.close()
        await Host(config(tmp_path), refuse, tmp_path).close()

    asyncio.run(scenario())


def test_nothing_wanted_asks_nothing_of_libvirt(tmp_path: Path) -> None:
    """An empty plan on an untouched host needs no connection and changes nothing."""

    async def scenario() -> None:
        host = Host(config(tmp_path), refuse, tmp_path)
        report = await host.reconcile(Plan(), [])
        assert (report.writes, report.undone, report.failures, report.missing) == (0, 0, (), ())
        _, stats, backend, probes = await host.sample([])
        assert stats == {}
        assert not backend.usable and "switched off" in backend.reason
        assert not probes.active
        await host.close()

    asyncio.run(scenario())
