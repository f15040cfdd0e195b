# SPDX-License-Identifier: Apache-2.0
"""A marked guest moves from one host to another, or its QEMU hangs: two real libvirtds, each in namespaces of
its own, a gangd's source and executor beside each."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
import time
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("libvirt")

import libvirt

from gangd.actuate.affinity import Affinity
from gangd.actuate.executor import Executor
from gangd.actuate.journal import Journal
from gangd.errors import TimedOut
from gangd.events import loop
from gangd.events.domain_reader import read_domain
from gangd.events.threads import qemu_pid, thread_groups
from gangd.model.domain import Mark
from gangd.model.placement import Standing
from gangd.model.plan import Plan
from gangd.model.state import State
from gangd.planner import load_policies, make_plan
from host.system.conftest import GUEST, Libvirtd
from host.system.test_libvirt_pins import Watch, running

CPUS = sorted(os.sched_getaffinity(0))
pytestmark = pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs")
STALLED = 6  # seconds, and looks
QUICK = 2.0  # seconds
MARK = '<gangd:gang xmlns:gangd="urn:gangd:domain:1" policy="relaxed" weight="300"/>'


@pytest.fixture
def hosts() -> Iterator[list[Libvirtd]]:
    """Two, which do not take each other for themselves."""
    loop.start()
    made: list[Libvirtd] = []
    folders = [tempfile.TemporaryDirectory(prefix="gangd-") for _ in range(2)]
    try:
        for folder in folders:
            made.append(Libvirtd(Path(folder.name), "[]"))
            with (Path(folder.name) / "libvirtd.conf").open("a") as conf:
                conf.write(f'host_uuid = "{uuid.uuid4()}"\n')
            made[-1].start()
        yield made
    finally:
        for daemon in made:
            daemon.close()
        for folder in folders:
            folder.cleanup()


def runs(state: State) -> bool:
    return any(domain.running for domain in state.domains.values())


def migrate(dom: Any, target: Any, way: Path, mib_a_second: int = 0) -> Any:
    """Live, over a socket that both hosts see; 0: as fast as may be."""
    flags = libvirt.VIR_MIGRATE_LIVE | libvirt.VIR_MIGRATE_UNSAFE
    wanted = {libvirt.VIR_MIGRATE_PARAM_URI: f"unix://{way}"}
    slow = {libvirt.VIR_MIGRATE_PARAM_BANDWIDTH: mib_a_second} if mib_a_second else {}
    return dom.migrate3(target, wanted | slow, flags)


def moved_with(conn: Any, name: str, metadata: str = "") -> Any:
    """A guest that runs as long as its virDomain says."""
    emulator = shutil.which("qemu-system-x86_64")
    return conn.createXML(GUEST.format(name=name, uuid=uuid.uuid4(), metadata=metadata, emulator=emulator))


def places(plan: Plan, uuid: str) -> list[tuple[int, int]]:
    """Which vCPU of a guest is on which CPU."""
    gang = plan.gang(uuid)
    return [(place.vcpu, place.cpu) for place in gang.placements] if gang else []


@contextlib.contextmanager
def stopped(pid: int | None) -> Iterator[None]:
    """The process does nothing meanwhile."""
    assert pid
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


async def quick(watch: Watch, uuid: str) -> None:
    """A full read, a look and a mark of another guest take no longer than ever."""
    begin = time.monotonic()
    await watch.source.resync()
    await watch.source.find(uuid)
    await watch.source.set_mark(uuid, Mark("balance", int(begin) % 100 + 1))
    assert time.monotonic() - begin < QUICK, "one guest held up another"


def test_a_migration_that_takes_long(hosts: list[Libvirtd]) -> None:
    """An arriving guest is busy, and no gang yet; a leaving one stays one; no other guest waits for them."""
    here, there = (libvirt.open(host.uri) for host in hosts)
    dom = moved_with(here, "traveller", MARK)
    identity = dom.UUIDString()
    others = [moved_with(conn, "other").UUIDString() for conn in (here, there)]
    policies = load_policies()

    async def body() -> None:
        async with running(hosts[0]) as left, running(hosts[1]) as right:
            plan = make_plan(left.state, {}, policies)
            leaving = asyncio.create_task(
                asyncio.to_thread(migrate, dom, there, hosts[1].directory / "way", 1)
            )
            await right.until(lambda: identity in right.state.domains)
            with stopped(qemu_pid("traveller", identity, hosts[1].root)):
                for _ in range(STALLED):
                    for watch, other in zip((left, right), others, strict=True):
                        await quick(watch, other)
                    arriving = right.state.domains[identity]
                    assert arriving.busy == "it is being migrated"
                    found = make_plan(right.state, {}, policies)
                    assert [one.reason for one in found.refused] == ["busy: it is being migrated"]
                    assert "traveller" not in [gang.name for gang in found.gangs]
                    again = make_plan(left.state, {}, policies, Standing(plan))
                    assert places(again, identity) == places(plan, identity) != []
                    assert not leaving.done()
                    await asyncio.sleep(1)
            await leaving
            await right.until(lambda: not right.state.domains[identity].busy)
            await left.until(lambda: identity not in left.state.domains)
            assert make_plan(right.state, {}, policies).gang(identity)

    try:
        asyncio.run(body())
    finally:
        end(here, there)


def test_a_guest_whose_qemu_is_stopped(hosts: list[Libvirtd]) -> None:
    """While libvirt waits for its monitor, others are marked and read as ever; its own mark is in time, or an
    error in time."""
    (conn,) = (libvirt.open(host.uri) for host in hosts[:1])
    dom, *others = (moved_with(conn, f"vm-{number}") for number in range(4))
    identity = dom.UUIDString()

    async def body() -> None:
        async with running(hosts[0]) as watch:
            pid = qemu_pid("vm-0", identity, hosts[0].root)
            with stopped(pid):
                asking = asyncio.create_task(asyncio.to_thread(dom.memoryStats))  # a job of 30 s at most
                for _ in range(STALLED):
                    for other in others:
                        await quick(watch, other.UUIDString())
                    await asyncio.sleep(1)
                with contextlib.suppress(TimedOut):
                    await watch.source.set_mark(identity, Mark("balance"))
                await quick(watch, others[0].UUIDString())
            with contextlib.suppress(libvirt.libvirtError):
                await asking
            await watch.until(lambda: not watch.state.domains[identity].busy)
            marked = await watch.source.set_mark(identity, Mark("balance", 7))
            assert marked.mark == Mark("balance", 7) and marked.running

    try:
        asyncio.run(body())
    finally:
        end(conn)


def end(*conns: Any) -> None:
    """All guests."""
    for conn in conns:
        for left in conn.listAllDomains():
            left.destroy()


def test_the_mark_travels_and_the_other_side_schedules_it(hosts: list[Libvirtd], tmp_path: Path) -> None:
    """Here it was a gang, which is forgotten; there it is one, on CPUs of that host, and its definition says
    nothing of either."""
    here, there = (libvirt.open(host.uri) for host in hosts)
    dom = moved_with(here, "traveller", MARK)
    identity = dom.UUIDString()
    policies = load_policies()

    async def body() -> None:
        async with running(hosts[0]) as left, running(hosts[1]) as right:
            sides = [
                Executor([Affinity(partial(thread_groups, root=host.root))], Journal(tmp_path / name))
                for host, name in zip(hosts, ("left", "right"), strict=True)
            ]
            plan = make_plan(left.state, {}, policies)
            assert [gang.name for gang in plan.gangs] == ["traveller"], plan
            assert sides[0].reconcile(plan).failures == ()
            assert len(sides[0].journal.entries) == 2
            await asyncio.to_thread(migrate, dom, there, hosts[1].directory / "way")
            await right.until(
                lambda: identity in right.state.domains and right.state.domains[identity].running
            )
            await left.until(lambda: identity not in left.state.domains)
            assert right.state.domains[identity].mark == Mark("relaxed", 300)
            assert make_plan(left.state, {}, policies).gangs == ()
            assert sides[0].reconcile(make_plan(left.state, {}, policies)).failures == ()
            assert not sides[0].journal.entries
            plan = make_plan(right.state, {}, policies)
            assert [gang.name for gang in plan.gangs] == ["traveller"], plan
            assert sides[1].reconcile(plan).failures == ()
            moved = there.lookupByUUIDString(identity)
            found = {
                vcpu.index: os.sched_getaffinity(vcpu.tid or 0)
                for vcpu in read_domain(moved, hosts[1].root).vcpus
            }
            assert found == {place.vcpu: {place.cpu} for place in plan.gangs[0].placements}
            assert "cputune" not in moved.XMLDesc()
            assert sides[1].undo().failures == ()

    try:
        asyncio.run(body())
    finally:
        end(here, there)
