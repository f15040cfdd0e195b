# SPDX-License-Identifier: Apache-2.0
"""Threads, marks and pins of real guests under a real libvirtd."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

libvirt = pytest.importorskip("libvirt")
from gangd.actuate.executor import Executor  # noqa: E402
from gangd.actuate.journal import Journal  # noqa: E402
from gangd.actuate.libvirt_pin import LibvirtPin  # noqa: E402
from gangd.events import libvirt as events  # noqa: E402
from gangd.events.reading import read_domain  # noqa: E402
from gangd.model.domain import NAMESPACE, Domain, Mark, Mode  # noqa: E402
from gangd.model.event import Connected, Disconnected, Event, Resynced  # noqa: E402
from gangd.model.plan import GangPlan, Placement, Plan  # noqa: E402
from gangd.model.state import State, reduce  # noqa: E402

LIVE = 1
FORGET_SECONDS = 10.0  # a killed QEMU has to be reaped by libvirtd, on a busy machine too
CPUS = sorted(os.sched_getaffinity(0))
Define = Callable[..., Any]
pytestmark = pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs")


def qmp_threads(dom: Any) -> dict[int, int]:
    """What QEMU itself says. Taints the domain, which is why gangd does not ask."""
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
        self.executor = Executor([LibvirtPin(lambda: conn)], Journal(journal))

    def affinities(self) -> list[set[int]]:
        return [os.sched_getaffinity(vcpu.tid or 0) for vcpu in read_domain(self.dom, self.root).vcpus]

    def cpusets(self) -> list[str]:
        """cpuset.cpus of the vCPUs' groups (v1 or v2), "" where there is none."""
        found = []
        for vcpu in self.domain.vcpus:
            lines = Path(f"/proc/{self.domain.pid}/task/{vcpu.tid}/cgroup").read_text().splitlines()
            paths = [line.split(":", 2) for line in lines]
            groups = [f"/sys/fs/cgroup/{'cpuset' if names else ''}{path}" for _, names, path in paths]
            files = [Path(group, "cpuset.cpus") for group in groups if group.endswith(f"/vcpu{vcpu.index}")]
            found.append(next((file.read_text() for file in files if file.exists()), ""))
        return found

    def pins(self) -> list[set[int]]:
        return [{n for n, on in enumerate(cpus) if on} for cpus in self.dom.vcpuPinInfo(LIVE)]


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


@pytest.mark.parametrize("name", ["a b", "x$(id)", "ü*?", "..x", "-n", "a:b,c=d"])
def test_odd_names(libvirtd: Any, define: Define, name: str) -> None:
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


def test_pins_are_applied_verified_and_undone(pinned: Pinned) -> None:
    before, pins, cpusets = pinned.affinities(), pinned.pins(), pinned.cpusets()
    config = pinned.dom.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)
    report = pinned.executor.reconcile(plan(pinned.domain, CPUS[1], CPUS[0]))
    assert (report.writes, report.failures) == (2, ())
    assert pinned.affinities() == [{CPUS[1]}, {CPUS[0]}]
    assert pinned.executor.changes(plan(pinned.domain, CPUS[1], CPUS[0])) == []
    assert pinned.executor.undo().undone == 2
    assert pinned.affinities() == before
    assert (pinned.pins(), pinned.cpusets()) == (pins, cpusets)
    assert pinned.dom.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE) == config


def test_an_operators_own_pin_comes_back(pinned: Pinned) -> None:
    pinned.dom.pinVcpuFlags(0, (False, True), LIVE)
    pinned.executor.reconcile(plan(pinned.domain, 0, 0))
    assert pinned.pins()[0] == {0}
    pinned.executor.reconcile(Plan())
    assert pinned.pins()[0] == {1}


def test_a_pin_by_virsh_is_left_alone(pinned: Pinned) -> None:
    pinned.executor.reconcile(plan(pinned.domain, 0, 0))
    pinned.dom.pinVcpuFlags(1, (False, True), LIVE)
    said = f"vCPU 1 of '{pinned.domain.name}' was pinned by hand to 1: left alone"
    assert pinned.executor.reconcile(plan(pinned.domain, 0, 0)).failures == (said,)
    assert pinned.executor.undo().failures == (said,)
    assert pinned.pins()[1] == {1}


def test_a_thread_moved_by_taskset_is_seen(pinned: Pinned) -> None:
    pinned.executor.reconcile(plan(pinned.domain, 0, 0))
    tid = threads(pinned.domain)[1]
    try:
        os.sched_setaffinity(tid or 0, {1})
    except OSError:  # the vcpuN cpuset forbids it: then there is nothing to see
        assert pinned.executor.changes(plan(pinned.domain, 0, 0)) == []
        return
    assert pinned.pins()[1] == {0}  # libvirt does not know
    (failure,) = pinned.executor.reconcile(plan(pinned.domain, 0, 0)).failures
    assert failure.endswith("was pinned by hand to 1: left alone")


def test_a_refused_pin_leaves_what_was_there(pinned: Pinned) -> None:
    before, pins, cpusets = pinned.affinities(), pinned.pins(), pinned.cpusets()
    report = pinned.executor.reconcile(plan(pinned.domain, 0, 4000))
    assert report.writes == 1
    (failure,) = report.failures
    assert failure.startswith(f"failed to pin vCPU 1 of '{pinned.domain.name}' to 4000: ")
    assert (pinned.affinities()[1], pinned.pins()[1]) == (before[1], pins[1])
    assert pinned.executor.undo().failures == ()
    assert (pinned.affinities(), pinned.pins(), pinned.cpusets()) == (before, pins, cpusets)


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


DOOMED = """
import os, signal, sys, libvirt
from pathlib import Path
from gangd.actuate.executor import Executor
from gangd.actuate.journal import Journal
from gangd.actuate.libvirt_pin import LibvirtPin
uri, uuid, journal = sys.argv[1:]
conn = libvirt.open(uri)
class Fatal(LibvirtPin):
    def write(self, key, value):
        super().write(key, value)
        if key.endswith("/1"):
            os.kill(os.getpid(), signal.SIGKILL)
from gangd.model.domain import Mode
from gangd.model.plan import GangPlan, Placement, Plan
places = tuple(Placement(n, None, 1 - n, "test") for n in range(2))
plan = Plan(gangs=(GangPlan(uuid, "vm", None, Mode.RELAXED, 0, places, "test"),))
Executor([Fatal(lambda: conn)], Journal(Path(journal))).reconcile(plan)
"""


def test_a_successor_undoes_what_a_killed_daemon_did(libvirtd: Any, pinned: Pinned) -> None:
    before, pins = pinned.affinities(), pinned.pins()
    path = pinned.executor.journal.path
    command = [sys.executable, "-c", DOOMED, libvirtd.uri, pinned.domain.uuid, str(path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run(command, env=environment, check=False).returncode == -signal.SIGKILL
    assert pinned.affinities() == [{1}, {0}]
    report = Executor([LibvirtPin(lambda: pinned.conn)], Journal(path)).undo()
    assert (report.undone, report.failures) == (2, ())
    assert (pinned.affinities(), pinned.pins()) == (before, pins)


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
            executor = Executor([LibvirtPin(lambda: watch.source.connection)], Journal(tmp_path / "journal"))
            wanted = plan(watch.state.domains[identity], 1, 0)
            assert (await asyncio.to_thread(executor.reconcile, wanted)).writes == 2
            await asyncio.to_thread(getattr(libvirtd, end))
            await watch.until(lambda: watch.state.connected is False)
            assert isinstance(watch.seen[-1], Disconnected)
            assert watch.state.domains[identity].name == name
            report = await asyncio.to_thread(executor.undo)
            assert report.failures and len(executor.journal.entries) == 2
            await asyncio.to_thread(libvirtd.start)
            await watch.until(lambda: sum(isinstance(e, Resynced) for e in watch.seen) == 2)
            assert Connected(watch.state.uri) in watch.seen
            assert (await asyncio.to_thread(executor.reconcile, wanted)).writes == 0  # pins outlived it
            assert (await asyncio.to_thread(executor.undo)).undone == 2

    asyncio.run(body())


def test_a_hanging_libvirtd_is_noticed(libvirtd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "KEEPALIVE_INTERVAL", 1)
    monkeypatch.setattr(events, "KEEPALIVE_COUNT", 1)

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
