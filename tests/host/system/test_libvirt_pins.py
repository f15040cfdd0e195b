# SPDX-License-Identifier: Apache-2.0
"""Threads, marks and pins of real guests under a real libvirtd."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("libvirt")

import libvirt

from gangd.actuate.affinity import Affinity
from gangd.actuate.executor import Executor
from gangd.actuate.journal import Journal
from gangd.events import libvirt as events
from gangd.events import session
from gangd.events.domain_reader import read_again, read_domain
from gangd.events.metadata import change_mark, write_mark
from gangd.events.threads import thread_groups
from gangd.model.domain import NAMESPACE, Domain, Mark, Mode
from gangd.model.event import Connected, Disconnected, Event, Resynced
from gangd.model.mark import format_mark
from gangd.model.placement import Request, Seating, place
from gangd.model.plan import GangPlan, Placement, Plan
from gangd.model.state import State, reduce
from gangd.model.topology import Topology

LIVE = 1
FORGET_SECONDS = 10.0  # a killed QEMU has to be reaped by libvirtd, on a busy machine too
CPUS = sorted(os.sched_getaffinity(0))
Define = Callable[..., Any]
pytestmark = pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs")


def qmp_threads(dom: Any) -> dict[int, int]:
    """Return the vCPU threads that QEMU reports. This taints the domain, which is why gangd does not ask."""
    libvirt_qemu = pytest.importorskip("libvirt_qemu")
    answer = json.loads(libvirt_qemu.qemuMonitorCommand(dom, '{"execute":"query-cpus-fast"}', 0))
    return {cpu["cpu-index"]: cpu["thread-id"] for cpu in answer["return"]}


def threads(domain: Domain) -> dict[int, int | None]:
    return {vcpu.index: vcpu.tid for vcpu in domain.vcpus}


def plan(domain: Domain, *cpus: int) -> Plan:
    places = tuple(Placement(n, None, cpu, "test") for n, cpu in enumerate(cpus))
    return Plan(gangs=(GangPlan(domain.uuid, domain.name, domain.pid, Mode.RELAXED, 0, places, "test"),))


class Pinned:
    """A guest, and an executor that pins it."""

    def __init__(self, dom: Any, conn: Any, root: Path, journal: Path) -> None:
        self.dom, self.conn, self.root = dom, conn, root
        self.domain = read_domain(dom, root)
        self.executor = Executor([Affinity(partial(thread_groups, root=root))], Journal(journal))

    def affinities(self) -> list[set[int]]:
        return [os.sched_getaffinity(vcpu.tid or 0) for vcpu in read_domain(self.dom, self.root).vcpus]

    def texts(self) -> tuple[str, str]:
        """The guest's definitions, live and to come: nothing of gangd's may be in them."""
        return self.dom.XMLDesc(), self.dom.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)


@pytest.fixture
def pinned(libvirtd: Any, conn: Any, define: Define, tmp_path: Path) -> Pinned:
    return Pinned(define(), conn, libvirtd.root, tmp_path / "journal")


def test_a_running_guest_is_read_whole(libvirtd: Any, define: Define) -> None:
    dom = define(metadata=f'<g:gang xmlns:g="{NAMESPACE}" weight="300"/>')
    domain = read_domain(dom, libvirtd.root)
    assert domain.mark == Mark(None, 300)
    assert domain.running
    assert domain.state == "running"
    assert f"guest={domain.name}" in Path(f"/proc/{domain.pid}/cmdline").read_text()
    assert threads(domain) == qmp_threads(dom)
    assert all(vcpu.starttime for vcpu in domain.vcpus)
    assert all(vcpu.affinity for vcpu in domain.vcpus)


def test_reading_does_not_taint(libvirtd: Any, define: Define) -> None:
    dom = define()
    read_domain(dom, libvirtd.root)
    tainted = next((libvirtd.root / "run/libvirt/qemu").glob(f"{dom.name()}.xml")).read_text()
    assert "custom-monitor" not in tainted


NAMES = ["a b", "x$(id)", "ü*?", "..x", "-n", "a:b,c=d", "R&D", "R&amp;D", "<b>", "it's", 'a"b', "tab\tname"]


@pytest.mark.parametrize("name", NAMES)
def test_odd_names(libvirtd: Any, define: Define, name: str) -> None:
    """libvirt escapes what XML would read otherwise in the names of files, too."""
    domain = read_domain(define(name=name), libvirtd.root)
    assert domain.name == name
    assert all(threads(domain).values())


def test_a_hotplugged_vcpu_is_found(libvirtd: Any, define: Define) -> None:
    dom = define()
    dom.setVcpusFlags(3, LIVE)
    domain = read_domain(dom, libvirtd.root)
    assert sorted(threads(domain)) == [0, 1, 2]
    assert threads(domain) == qmp_threads(dom)


def test_weight_is_on_the_v2_scale(libvirtd: Any, define: Define) -> None:
    dom = define()
    try:
        shares = dom.schedulerParameters()["cpu_shares"]
    except libvirt.libvirtError:  # no cpu controller
        assert read_domain(dom, libvirtd.root).weight is None
        return
    assert read_domain(dom, libvirtd.root).weight == 100
    dom.setSchedulerParametersFlags({"cpu_shares": shares * 3}, LIVE)
    assert read_domain(dom, libvirtd.root).weight == 300


def saved_marks(dom: Any, root: Path, *, then: Mark | None) -> Mark | None:
    """Save a guest, mark it with `then` (None: unmark it), start it, and return the mark that it has."""
    dom.managedSave(0)
    write_mark(dom, format_mark(then) if then else None, None)
    dom.create()
    return read_domain(dom, root).mark


def test_a_mark_of_a_saved_guest_is_in_force_when_it_starts(libvirtd: Any, define: Define) -> None:
    """Taken away, made and changed while it is saved; the configuration says the same, and nothing else in
    the saved definition is touched."""
    other = '<n:i xmlns:n="urn:n" policy="x">&lt;gang/&gt;</n:i>'
    dom = define(metadata=other)
    for then in (Mark("relaxed"), None, Mark("strict", 7)):
        assert saved_marks(dom, libvirtd.root, then=then) == then
        config = dom.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)
        assert (NAMESPACE in config) == (then is not None)
        assert "&lt;gang/&gt;" in config and "urn:n" in dom.XMLDesc(0)
    dom.managedSave(0)
    change_mark(dom, lambda mark: replace(mark, weight=9), None)
    dom.create()
    assert read_domain(dom, libvirtd.root).mark == Mark("strict", 9)


def test_a_helper_pinned_by_hand_is_left_alone(libvirtd: Any, define: Define) -> None:
    """emulatorpin is known, also where libvirt has no cpuset group and it is an affinity alone."""
    dom = define()
    before = read_domain(dom, libvirtd.root)
    assert [helper.affinity for helper in before.helpers] == [frozenset()]
    dom.pinEmulator((True, *[False] * (os.cpu_count() or 1)), LIVE)
    domain = read_domain(dom, libvirtd.root)
    assert [helper.affinity for helper in domain.helpers if helper.name == "emulator"] == [frozenset({0})]
    assert read_again(domain, libvirtd.root) == domain
    seating = place([Request(domain)], Topology.read()).of[domain.uuid]
    assert isinstance(seating, Seating) and seating.helpers == ()


def test_pins_are_applied_verified_and_undone(pinned: Pinned) -> None:
    before, texts = pinned.affinities(), pinned.texts()
    report = pinned.executor.reconcile(plan(pinned.domain, CPUS[1], CPUS[0]))
    assert (report.writes, report.failures) == (2, ())
    assert pinned.affinities() == [{CPUS[1]}, {CPUS[0]}]
    assert pinned.texts() == texts
    assert pinned.executor.changes(plan(pinned.domain, CPUS[1], CPUS[0])) == []
    assert pinned.executor.undo().undone == 2
    assert pinned.affinities() == before
    assert pinned.texts() == texts


def test_an_operators_own_pin_wins(pinned: Pinned) -> None:
    """Made before, or after: the thread is where virsh put it, and its definition has the operator's pin."""
    pinned.dom.pinVcpuFlags(0, (False, True), LIVE)
    pinned.executor.reconcile(plan(pinned.domain, 0, 0))
    pinned.dom.pinVcpuFlags(1, (False, True), LIVE)
    pinned.executor.reconcile(plan(pinned.domain, 1, 1))
    assert pinned.affinities() == [{1}, {1}]
    texts = pinned.texts()
    pinned.executor.undo()
    assert pinned.texts() == texts
    assert [read_domain(pinned.dom, pinned.root).vcpus[n].affinity for n in (0, 1)] == [{1}, {1}]


def test_a_refused_affinity_leaves_what_was_there(pinned: Pinned) -> None:
    before = pinned.affinities()
    report = pinned.executor.reconcile(plan(pinned.domain, 0, 4000))
    assert report.writes == 1
    (failure,) = report.failures
    assert failure.startswith(f"cannot let vCPU 1 of '{pinned.domain.name}' run on CPU 4000: ")
    assert pinned.affinities()[1] == before[1]
    assert pinned.executor.undo().failures == ()
    assert pinned.affinities() == before


def test_a_guest_that_is_killed_is_forgotten(pinned: Pinned) -> None:
    pinned.executor.reconcile(plan(pinned.domain, 0, 1))
    os.kill(pinned.domain.pid or 0, signal.SIGKILL)
    report = pinned.executor.reconcile(plan(pinned.domain, 1, 0))
    assert report.failures == () or "left alone" not in report.failures[0]
    end = time.monotonic() + FORGET_SECONDS
    while pinned.executor.journal.entries:
        assert time.monotonic() < end, pinned.executor.journal.entries
        time.sleep(0.02)  # libvirt has to see that the process is gone
        pinned.executor.undo()


class Watch:
    def __init__(self, source: events.LibvirtSource) -> None:
        self.source, self.state, self.seen = source, State(), list[Event]()

    def emit(self, event: Event) -> None:
        self.seen.append(event)
        self.state = reduce(self.state, event)

    async def until(self, holds: Callable[[], object], seconds: float = 30) -> None:
        async with asyncio.timeout(seconds):
            while not holds():
                await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def running(libvirtd: Any, interval: float = 3600) -> AsyncIterator[Watch]:
    watch = Watch(events.LibvirtSource(libvirtd.uri, libvirtd.root, interval))
    task = asyncio.create_task(watch.source.run(watch.emit))
    try:
        await watch.until(lambda: any(isinstance(event, Resynced) for event in watch.seen))
        yield watch
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def test_a_mark_survives_redefinition_and_restart(libvirtd: Any, conn: Any, define: Define) -> None:
    dom = define()

    async def body() -> None:
        async with running(libvirtd) as watch:
            assert (await watch.source.set_mark(dom.UUIDString(), Mark("strict", 7))).mark == Mark(
                "strict", 7
            )
            conn.defineXML(dom.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
            assert (await watch.source.find(dom.name())).mark == Mark("strict", 7)
            dom.destroy()
            await watch.until(lambda: not watch.state.domains[dom.UUIDString()].running)
            assert watch.state.domains[dom.UUIDString()].mark == Mark("strict", 7)
            dom.create()
            await watch.until(lambda: watch.state.domains[dom.UUIDString()].running)
            (marked,) = (d for d in watch.state.marked() if d.uuid == dom.UUIDString())
            # It runs before its threads are told apart.
            await watch.until(lambda: all(threads(watch.state.domains[marked.uuid]).values()))

    asyncio.run(body())


def test_redefinition_without_the_mark_counts_from_the_next_start(
    libvirtd: Any, conn: Any, define: Define
) -> None:
    dom = define(metadata=f'<g:gang xmlns:g="{NAMESPACE}"/>')
    tree = ElementTree.fromstring(dom.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
    for metadata in tree.findall("metadata"):
        tree.remove(metadata)
    conn.defineXML(ElementTree.tostring(tree, encoding="unicode"))
    assert read_domain(dom, libvirtd.root).mark == Mark(None)
    dom.destroy()
    assert read_domain(dom, libvirtd.root).mark is None


def test_a_repin_by_virsh_arrives_as_an_event(libvirtd: Any, define: Define) -> None:
    dom = define()

    async def body() -> None:
        async with running(libvirtd) as watch:
            dom.pinVcpuFlags(0, (False, True), LIVE)
            await watch.until(lambda: watch.state.domains[dom.UUIDString()].vcpus[0].affinity == {1})

    asyncio.run(body())


def test_a_hotplugged_vcpu_is_noticed_by_the_interval(libvirtd: Any, define: Define) -> None:
    dom = define()

    async def body() -> None:
        async with running(libvirtd, interval=0.2) as watch:
            dom.setVcpusFlags(3, LIVE)
            await watch.until(lambda: len(watch.state.domains[dom.UUIDString()].vcpus) == 3)

    asyncio.run(body())


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_restart_of_libvirtd_is_survived(libvirtd: Any, define: Define, tmp_path: Path, end: str) -> None:
    dom = define()
    identity, name = dom.UUIDString(), dom.name()
    del dom

    async def body() -> None:
        async with running(libvirtd) as watch:
            executor = Executor(
                [Affinity(partial(thread_groups, root=libvirtd.root))], Journal(tmp_path / "journal")
            )
            wanted = plan(watch.state.domains[identity], 1, 0)
            assert (await asyncio.to_thread(executor.reconcile, wanted)).writes == 2
            await asyncio.to_thread(getattr(libvirtd, end))
            await watch.until(lambda: watch.state.connected is False)
            assert isinstance(watch.seen[-1], Disconnected)
            assert watch.state.domains[identity].name == name
            await asyncio.to_thread(libvirtd.start)
            await watch.until(lambda: sum(isinstance(e, Resynced) for e in watch.seen) == 2)
            assert Connected(watch.state.uri) in watch.seen
            assert (await asyncio.to_thread(executor.reconcile, wanted)).writes == 0  # they outlived it
            assert (await asyncio.to_thread(executor.undo)).undone == 2

    asyncio.run(body())


def test_a_hanging_libvirtd_is_noticed(libvirtd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "KEEPALIVE_INTERVAL", 1)
    monkeypatch.setattr(session, "KEEPALIVE_COUNT", 1)

    async def body() -> None:
        async with running(libvirtd) as watch:
            os.kill(libvirtd.process.pid, signal.SIGSTOP)
            try:
                await watch.until(lambda: watch.state.connected is False)
                assert "keep" in watch.state.reason
            finally:
                os.kill(libvirtd.process.pid, signal.SIGCONT)
            await watch.until(lambda: watch.state.connected)

    asyncio.run(body())


def test_leaving_closes_the_connection(libvirtd: Any) -> None:
    def sockets() -> set[str]:
        links = (str(path.readlink()) for path in Path("/proc/self/fd").iterdir() if path.is_symlink())
        return {link for link in links if link.startswith("socket:")}

    async def body() -> None:
        async with running(libvirtd):
            opened.update(sockets() - before)

    opened: set[str] = set()
    before = sockets()
    asyncio.run(body())
    assert opened
    # libvirt's event thread closes a socket on its next turn, not in the call.
    deadline = time.monotonic() + 10
    while opened & sockets() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not opened & sockets()
