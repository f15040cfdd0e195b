# SPDX-License-Identifier: Apache-2.0
"""A full read is one call a guest: who comes in between is served at once, and not forgotten at its end."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("libvirt")

import libvirt

from fakes import guest
from gangd.errors import NoLibvirt
from gangd.events import domain_reader
from gangd.events import libvirt as events
from gangd.events.proc import Thread
from gangd.events.session import Session
from gangd.model.domain import NAMESPACE, Mark
from gangd.model.event import CpusSeen, DomainGone, DomainSeen, Resynced
from gangd.model.mark import format_mark
from gangd.model.topology import Cpu, Topology
from unit.events.test_libvirt import Watch, follow, xml

UUIDS = [str(uuid.UUID(int=number)) for number in range(1, 4)]


def amid_the_read(
    watch: Watch, monkeypatch: pytest.MonkeyPatch, number: int, act: Callable[[], Awaitable[object]]
) -> None:
    """Have `act` done when libvirt was asked about so many domains; 0: when the kernel was about all."""
    read, look, seen = watch.source._read_listed, watch.source._looked_again, 0

    async def looking(listed: Any) -> Any:
        found = await look(listed)
        if number == 0:
            await act()
        return found

    monkeypatch.setattr(watch.source, "_looked_again", looking)
    if number:
        monkeypatch.setattr(watch.source, "_is_to_be_asked_about", lambda *_: True)

    async def reading(dom: Any, state: str | None) -> Any:
        nonlocal seen
        domain = await read(dom, state)
        seen += 1
        if seen == number:
            await act()
        return domain

    monkeypatch.setattr(watch.source, "_read_listed", reading)


def since_the_last(seen: list[Any], kind: type) -> list[Any]:
    """Events of a kind between the last two full reads."""
    whole = [place for place, event in enumerate(seen) if isinstance(event, Resynced)]
    return [event for event in seen[whole[-2] : whole[-1]] if isinstance(event, kind)]


@pytest.mark.parametrize("number", [0, 1, 2, 3, 4])
def test_a_mark_amid_a_full_read_is_known_at_once_and_after_it(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    async def body(watch: Watch) -> None:
        for each in UUIDS:
            watch.conn.defineXML(xml(f"vm-{each[-1]}", each))
        await watch.until(lambda: len(watch.state.domains) == 4)
        amid_the_read(watch, monkeypatch, number, lambda: watch.source.set_mark(UUIDS[0], Mark("balance")))
        await watch.source.resync()
        assert any(seen.domain.mark for seen in since_the_last(watch.seen, DomainSeen))
        assert (found := watch.get(UUIDS[0])) and found.mark == Mark("balance")
        assert len(watch.state.domains) == 4

    follow(body)


def test_domains_may_come_and_go_amid_a_full_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The list of domains is older than both changes."""

    async def change(watch: Watch) -> None:
        watch.conn.lookupByName("vm-1").undefine()
        watch.conn.defineXML(xml("vm-3", UUIDS[2]))

    async def body(watch: Watch) -> None:
        for each in UUIDS[:2]:
            watch.conn.defineXML(xml(f"vm-{each[-1]}", each))
        await watch.until(lambda: len(watch.state.domains) == 3)
        amid_the_read(watch, monkeypatch, 1, lambda: change(watch))
        await watch.source.resync()
        await watch.until(lambda: {d.name for d in watch.state.domains.values()} == {"test", "vm-2", "vm-3"})
        await watch.source.resync()
        assert {d.name for d in watch.state.domains.values()} == {"test", "vm-2", "vm-3"}
        assert DomainGone(UUIDS[0]) in watch.seen

    follow(body)


def test_libvirt_is_asked_about_those_that_raised_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full read asks about some of the others too, so that an event that is lost costs ROUNDS of them."""
    asked: list[str] = []

    def reads(dom: Any, root: Path) -> Any:
        asked.append(dom.name())
        return domain_reader.read_domain(dom, root)

    async def body(watch: Watch) -> None:
        for each in UUIDS:
            watch.conn.defineXML(xml(f"vm-{each[-1]}", each))
        await watch.until(lambda: len(watch.state.domains) == 4)
        session = watch.source._session
        assert session is not None
        await watch.until(lambda: not session.dirty and not session.rereading)
        monkeypatch.setattr(events, "read_domain", reads)
        for _ in range(events.ROUNDS):
            await watch.source.resync()
        assert sorted(asked) == ["test", "vm-1", "vm-2", "vm-3"]
        monkeypatch.setattr(session, "note", lambda uuid: None)
        watch.conn.lookupByName("vm-1").create()
        await watch.source.resync()
        assert (vm := watch.get(UUIDS[0])) and vm.running  # the list says so
        mark = format_mark(Mark("balance"))
        kind, flags = libvirt.VIR_DOMAIN_METADATA_ELEMENT, libvirt.VIR_DOMAIN_AFFECT_LIVE
        watch.conn.lookupByName("vm-1").setMetadata(kind, mark, "gangd", NAMESPACE, flags)
        for _ in range(events.ROUNDS):
            await watch.source.resync()
        assert (vm := watch.get(UUIDS[0])) and vm.mark == Mark("balance")

    follow(body)


def test_new_cpus_are_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    """libvirt tells of a vCPU without a pin that it has all CPUs that are online now."""
    asked: list[str] = []
    online = [Cpu(0, 0, 0, 0, 0)]
    monkeypatch.setattr(Topology, "read", lambda root, last: Topology(tuple(online)))

    def reads(dom: Any, root: Path) -> Any:
        asked.append(dom.name())
        return domain_reader.read_domain(dom, root)

    async def body(watch: Watch) -> None:
        await watch.source.resync()
        monkeypatch.setattr(events, "read_domain", reads)
        monkeypatch.setattr(events, "ROUNDS", 1 << 40)
        for cpus in (1, 2, 2):
            online[1:] = [Cpu(1, 1, 0, 0, 0)][: cpus - 1]
            asked.clear()
            await watch.source.resync()
            assert asked == (["test"] if cpus == 2 and len(seen) == 1 else [])
            seen.append(cpus)

    seen: list[int] = []
    follow(body)


PINS = [
    # online vCPUs, libvirt's pins (as many), room of vCPU 3's cgroup -> pin of vCPU 3
    ((0, 2, 3), ["01", "01", "01"], {5}, {5}),
    ((0, 2, 3), ["01", "01", "01"], {0, 1}, set()),
    ((0, 1, 2, 3), ["01", "01", "01", "1"], {5}, {1}),
    ((0, 2, 3), [], {5}, {7}),
]


@pytest.mark.parametrize(("online", "pins", "room", "pin"), PINS)
def test_pins_that_libvirt_cuts_off(
    monkeypatch: pytest.MonkeyPatch, online: tuple[int, ...], pins: list[str], room: set[int], pin: set[int]
) -> None:
    """libvirt-python returns as many pins as vCPUs are online. The affinity of the thread, here CPU 7, may be
    gangd's own doing."""

    class Dom:
        def vcpus(self) -> Any:
            return [(vcpu, 1, 0, 7) for vcpu in online], [tuple(cpu == 7 for cpu in range(8))] * len(online)

        def vcpuPinInfo(self) -> Any:  # noqa: N802 - libvirt's name
            return [tuple(str(cpu) in cpus for cpu in range(8)) for cpus in pins]

    allowed = frozenset({0, 1})
    found = domain_reader._vcpus(Dom(), {}, lambda _: frozenset(room) if room != allowed else frozenset())
    assert found[-1].index == 3 and found[-1].affinity == pin


@pytest.mark.parametrize("change", ["hotplug", "another process", "nothing"])
def test_threads_that_changed_are_asked_about(monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    """vCPU hotplug raises no event."""
    known = guest("vm", 7, vcpus=2)
    threads_now = {vcpu.index: Thread(vcpu.tid or 0, vcpu.starttime or 0) for vcpu in known.vcpus}
    pid = known.pid
    if change == "hotplug":
        threads_now[2] = Thread(900, 5)
    elif change == "another process":
        pid = 901
    monkeypatch.setattr(domain_reader.threads, "qemu_pid", lambda *_: pid)
    monkeypatch.setattr(domain_reader.threads, "vcpu_threads", lambda *_: threads_now)
    assert (domain_reader.read_again(known) is None) == (change != "nothing")


@pytest.mark.parametrize("mark", [None, Mark(None), Mark("balance")])
@pytest.mark.parametrize("by_cgroup", [False, True])
def test_a_mark_is_the_metadatas_or_the_cgroups(
    monkeypatch: pytest.MonkeyPatch, mark: Mark | None, by_cgroup: bool
) -> None:
    """A mark that names no policy may be either's: without the cgroup's, libvirt is asked and it stays."""
    known = guest("vm", 7, vcpus=2, mark=mark)
    threads_now = {vcpu.index: Thread(vcpu.tid or 0, vcpu.starttime or 0) for vcpu in known.vcpus}
    monkeypatch.setattr(domain_reader.threads, "qemu_pid", lambda *_: known.pid)
    monkeypatch.setattr(domain_reader.threads, "vcpu_threads", lambda *_: threads_now)
    monkeypatch.setattr(domain_reader.threads, "marked_by_cgroup", lambda *_: by_cgroup)
    found = domain_reader.read_again(known)
    assert found is None or found.mark == mark
    assert (found is None) == ((mark is None and by_cgroup) or (mark == Mark(None) and not by_cgroup))


def test_a_storm_does_not_hold_up_a_full_read() -> None:
    """Events that come faster than they can be read."""

    async def body(watch: Watch) -> None:
        session = watch.source._session
        assert session is not None
        reread = watch.source._reread

        async def again(session: Session, each: str) -> None:
            await reread(session, each)
            session.note(UUIDS[0])

        watch.source._reread = again  # type: ignore[method-assign]
        session.note(UUIDS[0])
        async with asyncio.timeout(10):
            await watch.source.resync()

    follow(body)


def test_a_cpu_that_just_came_is_read_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU's caches are there a moment after itself; what was read twice is then known."""
    online, known = [0, 1], []

    def read(root: Path, last: Topology | None) -> Topology:
        known.append(last is not None)
        return Topology(tuple(Cpu(cpu, cpu, 0, 0, 0) for cpu in online))

    async def body(watch: Watch) -> None:
        monkeypatch.setattr(Topology, "read", read)
        await watch.source.resync()
        await watch.source.resync()
        await watch.source.resync()
        online.append(2)
        known.clear()
        for _ in range(3):
            await watch.source.resync()
        assert known == [True, False, True]
        assert watch.state.topology.ids == (0, 1, 2)

    follow(body)


def test_cpus_that_cannot_be_read_are_a_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    """A single failure is none where CPUs are known: files of a CPU vanish while it is unplugged."""
    broken = [True]

    def read(root: Path, last: Topology | None) -> Topology:
        if broken[0]:
            raise ValueError("no number")
        return Topology((Cpu(0, 0, 0, 0, 0),))

    async def troubles(watch: Watch, now_broken: bool) -> tuple[str, ...]:
        broken[0] = now_broken
        await watch.source.resync()
        return watch.source.troubles

    async def body(watch: Watch) -> None:
        why = ("cannot read the CPUs of the host: no number",)
        assert watch.source.troubles == why
        found = [await troubles(watch, now) for now in (False, True, False, True, True, False)]
        assert found == [(), (), (), (), why, ()]
        assert watch.state.topology.ids == (0,)

    monkeypatch.setattr(Topology, "read", read)
    follow(body)


def test_cpus_are_read_while_libvirt_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """The domains stay as they are known."""
    found = Topology((Cpu(7, 7, 0, 0, 0),))
    monkeypatch.setattr(Topology, "read", lambda root, last: found)

    async def body(watch: Watch) -> None:
        known = watch.state.domains
        watch.source._session, session = None, watch.source._session
        with pytest.raises(NoLibvirt):
            await watch.source.resync()
        await watch.source.look()
        assert watch.seen[-1] == CpusSeen(found)
        assert watch.state.topology == found and watch.state.domains == known
        watch.source._session = session
        await watch.source.look()
        assert isinstance(watch.seen[-1], Resynced)

    follow(body)
