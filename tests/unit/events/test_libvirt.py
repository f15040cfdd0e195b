# SPDX-License-Identifier: Apache-2.0
"""LibvirtSource against libvirt's own test driver: real library, real events, no hypervisor."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from gangd.errors import AccessDenied, GangError, InvalidMark, NoLibvirt, NoSuchDomain
from gangd.model.domain import Domain, Mark
from gangd.model.event import Connected, Disconnected, DomainGone, DomainSeen, Event, Resynced
from gangd.model.state import State, reduce

pytest.importorskip("libvirt")

import libvirt

from gangd.events import domain_reader, loop, metadata
from gangd.events import libvirt as events

URI = "test:///default"
NEVER = 3600.0
XML = """<domain type='test'><name>{name}</name><uuid>{uuid}</uuid><memory>1024</memory>
<vcpu>2</vcpu><os><type>hvm</type></os><metadata>{metadata}</metadata></domain>"""
VM = "11111111-2222-3333-4444-555555555555"


def xml(name: str = "vm", uuid: str = VM, metadata: str = "") -> str:
    return XML.format(name=name, uuid=uuid, metadata=metadata)


class Watch:
    """The events that a source emitted, and the state they lead to."""

    def __init__(self, source: events.LibvirtSource, conn: Any) -> None:
        self.source, self.conn = source, conn
        self.seen: list[Event] = []
        self.state = State()

    def emit(self, event: Event) -> None:
        self.seen.append(event)
        self.state = reduce(self.state, event)

    def get(self, uuid: str = VM) -> Domain | None:
        return self.state.domains.get(uuid)

    async def until(self, holds: Callable[[], object]) -> None:
        async with asyncio.timeout(10):
            while not holds():
                await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def running(uri: str = URI, interval: float = NEVER) -> AsyncIterator[Watch]:
    loop.start()
    conn = libvirt.open(URI)  # the test driver's state is shared within the process while this is open
    source = events.LibvirtSource(uri, interval=interval)
    watch = Watch(source, conn)
    task = asyncio.create_task(source.run(watch.emit))
    try:
        if uri == URI:
            await watch.until(lambda: any(isinstance(e, Resynced) for e in watch.seen))
        yield watch
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        clear(conn)  # a thread of the source may hold a connection, and with it all domains, for a moment
        conn.close()
        gc.collect()  # the task's end refers to its frames: a cycle that keeps the source's connection open


def clear(conn: Any) -> None:
    """Remove the domains of a test."""
    for domain in conn.listAllDomains():
        if domain.name() != "test":
            with contextlib.suppress(libvirt.libvirtError):
                domain.destroy()
            domain.undefine()


def follow(body: Callable[[Watch], Awaitable[None]], **how: Any) -> None:
    async def main() -> None:
        async with running(**how) as watch:
            await body(watch)

    asyncio.run(main())


def test_first_connected_then_everything() -> None:
    async def body(watch: Watch) -> None:
        assert watch.seen[0] == Connected(URI)
        assert isinstance(watch.seen[1], Resynced)
        (domain,) = watch.state.domains.values()
        assert (domain.name, domain.id, domain.state, domain.mark) == ("test", 1, "running", None)
        assert [vcpu.index for vcpu in domain.vcpus] == [0, 1]
        assert domain.vcpus[0].tid is None
        assert domain.vcpus[0].affinity
        assert domain.weight is None
        assert watch.state.topology.cpus

    follow(body)


def test_define_start_stop_undefine_arrive_as_events() -> None:
    async def body(watch: Watch) -> None:
        dom = watch.conn.defineXML(xml())
        await watch.until(lambda: watch.get())
        assert watch.get() == Domain(VM, "vm", state="shut off", memory_kib=1024)
        dom.create()
        await watch.until(lambda: (d := watch.get()) and d.running)
        dom.suspend()
        await watch.until(lambda: (d := watch.get()) and d.state == "paused" and d.running)
        dom.destroy()
        await watch.until(lambda: (d := watch.get()) and not d.running)
        dom.undefine()
        await watch.until(lambda: watch.get() is None)
        assert DomainGone(VM) in watch.seen

    follow(body)


def test_a_rename_keeps_the_domain() -> None:
    async def body(watch: Watch) -> None:
        dom = watch.conn.defineXML(xml())
        await watch.until(lambda: watch.get())
        try:
            dom.rename("renamed")
        except (
            libvirt.libvirtError
        ):  # the test driver cannot rename: define under the same UUID after undefine
            dom.undefine()
            watch.conn.defineXML(xml("renamed"))
        await watch.until(lambda: (d := watch.get()) and d.name == "renamed")

    follow(body)


def test_a_transient_domain_goes_with_its_guest() -> None:
    async def body(watch: Watch) -> None:
        dom = watch.conn.createXML(xml())
        await watch.until(lambda: watch.get())
        await watch.source.set_mark(VM, Mark("balance"))
        dom.destroy()
        await watch.until(lambda: watch.get() is None)

    follow(body)


@pytest.mark.parametrize("start", [False, True])
def test_mark_and_unmark(start: bool) -> None:
    async def body(watch: Watch) -> None:
        dom = watch.conn.defineXML(xml())
        if start:
            dom.create()
        marked = await watch.source.set_mark(VM, Mark("strict", 250))
        assert marked.mark == Mark("strict", 250)
        assert watch.get() == marked
        assert 'policy="strict"' in dom.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)
        again = await watch.source.set_mark(VM, Mark("relaxed"))
        assert again.mark == Mark("relaxed")
        for _ in range(2):  # an absent mark can be removed
            assert (await watch.source.set_mark(VM, None)).mark is None
        assert "urn:gangd" not in dom.XMLDesc()

    follow(body)


def test_a_mark_set_by_virsh_arrives_as_an_event() -> None:
    async def body(watch: Watch) -> None:
        dom = watch.conn.lookupByName("test")
        dom.setMetadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, "<gang/>", "x", "urn:gangd:domain:1", 1)
        await watch.until(lambda: (d := watch.get(dom.UUIDString())) and d.mark == Mark(None))

    follow(body)


def test_a_bad_mark_is_a_reason_not_a_crash() -> None:
    async def body(watch: Watch) -> None:
        watch.conn.defineXML(xml(metadata='<g:gang xmlns:g="urn:gangd:domain:1" speed="9"/>'))
        await watch.until(lambda: watch.get())
        domain = watch.get()
        assert domain is not None
        assert domain.mark is None
        assert "unknown attribute 'speed'" in (domain.mark_error or "")

    follow(body)


def test_an_impossible_mark_is_refused_before_libvirt() -> None:
    async def body(watch: Watch) -> None:
        with pytest.raises(InvalidMark):
            await watch.source.set_mark(VM, Mark("No Such"))

    follow(body)


def test_find_asks_libvirt_in_virshs_order() -> None:
    async def body(watch: Watch) -> None:
        numeric = watch.conn.defineXML(xml("1", "22222222-2222-3333-4444-555555555555"))
        watch.conn.defineXML(xml("77", VM))
        assert (await watch.source.find("1")).name == "test"  # the id wins over the name
        assert (await watch.source.find("77")).uuid == VM
        assert (await watch.source.find(numeric.UUIDString())).name == "1"
        assert (await watch.source.find("test")).id == 1
        assert DomainSeen(await watch.source.find("77")) in watch.seen

    follow(body)


@pytest.mark.parametrize("ref", ["x", "", "999", "9" * 40, "a\0b", "\udc80", "٣", VM, "-1"])
def test_find_refuses_a_name_that_no_domain_has(ref: str) -> None:
    async def body(watch: Watch) -> None:
        with pytest.raises(NoSuchDomain) as caught:
            await watch.source.find(ref)
        assert caught.value.cause == f"Domain not found: no domain with matching name '{ref}'"
        with pytest.raises(NoSuchDomain):
            await watch.source.set_mark(ref, Mark())

    follow(body)


@pytest.mark.parametrize("goes", [True, False])
def test_a_domain_that_vanishes_while_it_is_marked_is_not_found(
    monkeypatch: pytest.MonkeyPatch, goes: bool
) -> None:
    """libvirt may say anything of that write; of a domain that is there its words stand."""

    async def body(watch: Watch) -> None:
        watch.conn.defineXML(xml())

        def fail(dom: Any, *_: object) -> None:
            if goes:
                dom.undefine()
            raise GangError("an internal error occurred")

        monkeypatch.setattr(metadata, "write_mark", fail)
        with pytest.raises(GangError) as caught:
            await watch.source.set_mark(VM, Mark())
        assert isinstance(caught.value, NoSuchDomain) == goes

    follow(body)


def test_a_domain_that_vanishes_during_a_resync_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(watch: Watch) -> None:
        watch.conn.defineXML(xml())

        def vanishing(dom: Any, root: Path) -> Domain:
            if dom.name() == "vm":
                with contextlib.suppress(libvirt.libvirtError):  # its event has it read as well
                    dom.undefine()
            return domain_reader.read_domain(dom, root)

        monkeypatch.setattr(events, "read_domain", vanishing)
        await watch.source.resync()
        assert [d.name for d in watch.state.domains.values()] == ["test"]

    follow(body)


def test_an_interval_reads_everything_again() -> None:
    async def body(watch: Watch) -> None:
        await watch.until(lambda: sum(isinstance(e, Resynced) for e in watch.seen) >= 4)

    follow(body, interval=0.05)


def test_a_storm_of_events_does_not_put_the_full_read_off() -> None:
    async def body(watch: Watch) -> None:
        session = watch.source._session
        assert session is not None
        first = len(watch.seen)
        async with asyncio.timeout(10):
            while not any(isinstance(event, Resynced) for event in watch.seen[first:]):
                session.note("no such domain")
                await asyncio.sleep(0.005)

    follow(body, interval=0.2)


def test_a_libvirt_that_refuses_to_be_read_is_asked_ever_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """gangd is not connected meanwhile, and says so once."""
    times: list[float] = []

    def refuse(_conn: Any) -> Any:
        times.append(time.monotonic())
        raise AccessDenied("access denied")

    async def body(watch: Watch) -> None:
        session = watch.source._session
        assert session is not None
        with monkeypatch.context() as patch:
            patch.setattr(events, "_list", refuse)
            session._on_close(None, libvirt.VIR_CONNECT_CLOSE_REASON_EOF, None)
            await watch.until(lambda: len(times) == 4)
            assert watch.state.reason == "access denied" and not watch.state.connected
            assert times[3] - times[2] > times[1] - times[0]
            assert [d.name for d in watch.state.domains.values()] == ["test"]
        await watch.until(lambda: watch.state.connected)
        said = [event for event in watch.seen if isinstance(event, Connected | Disconnected)]
        eof = Disconnected("libvirt closed the connection: it was stopped or restarted")
        assert said == [Connected(URI), eof, Disconnected("access denied"), Connected(URI)]

    monkeypatch.setattr(events, "BACKOFF_FIRST", 0.02)
    follow(body)


def test_a_bad_uri_is_said_once_and_tried_again(monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    tries: list[str] = []
    real = libvirt.open

    def counting(uri: str | None) -> Any:
        tries.append(str(uri))
        return real(uri)

    async def body(watch: Watch) -> None:
        monkeypatch.setattr(libvirt, "open", counting)
        monkeypatch.setattr(events, "BACKOFF_MAX", 0.01)
        await watch.until(lambda: len(tries) > 3)
        (event,) = watch.seen
        assert isinstance(event, Disconnected)
        assert "/nowhere" in event.reason
        with pytest.raises(NoLibvirt, match="/nowhere"):
            _ = watch.source.connection
        for call in (watch.source.resync(), watch.source.find("x"), watch.source.set_mark("x", None)):
            with pytest.raises(NoLibvirt):
                await call

    monkeypatch.setattr(events, "BACKOFF_FIRST", 0.01)
    follow(body, uri="qemu+unix:///system?socket=/nowhere")
    assert capfd.readouterr().err == ""


def test_a_caller_waits_for_the_first_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """No caller hears that libvirt was not asked yet: its request may be what started gangd."""
    began = threading.Event()
    go_on = threading.Event()

    def slow(*given: Any) -> Any:
        began.set()
        go_on.wait(10)
        return domain_reader.read_domain(*given)

    monkeypatch.setattr(events, "read_domain", slow)

    async def main() -> None:
        loop.start()
        watch = Watch(source := events.LibvirtSource(URI, interval=NEVER), None)
        running, asking = (asyncio.create_task(one) for one in (source.run(watch.emit), source.asked()))
        await watch.until(began.is_set)
        await asyncio.sleep(0.05)
        assert not asking.done()
        go_on.set()
        await asking
        assert watch.state.find("test").running
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running

    asyncio.run(main())


def test_callers_do_not_wait_for_a_libvirt_that_is_away() -> None:
    """The failure to read libvirt is an answer, too."""

    async def body(watch: Watch) -> None:
        async with asyncio.timeout(5):
            await watch.source.asked()
        with pytest.raises(NoLibvirt):
            await watch.source.find("test")

    follow(body, uri="nonsense:///")


def test_a_closed_connection_is_opened_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "BACKOFF_FIRST", 0.01)

    async def body(watch: Watch) -> None:
        session = watch.source._session
        assert session is not None
        session._on_close(None, libvirt.VIR_CONNECT_CLOSE_REASON_EOF, None)
        await watch.until(lambda: sum(isinstance(e, Connected) for e in watch.seen) == 2)
        assert Disconnected("libvirt closed the connection: it was stopped or restarted") in watch.seen
        assert watch.source.connection is not session.conn

    follow(body)


def test_a_failing_turn_of_libvirts_loop_costs_no_later_event(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A failing turn is a trouble until none has failed for a while, and the log has it once."""
    caplog.set_level("INFO", "gangd")
    real, to_fail = libvirt.virEventRunDefaultImpl, [2]

    def turn() -> None:
        if to_fail[0]:
            to_fail[0] -= 1
            raise libvirt.libvirtError("virEventRunDefaultImpl() failed")
        real()

    def wake() -> None:
        assert loop._thread is not None
        libvirt.virEventUpdateTimeout(loop._thread._waker, 0)

    async def body(watch: Watch) -> None:
        monkeypatch.setattr(loop, "RETRY_SECONDS", 0.01)
        monkeypatch.setattr(libvirt, "virEventRunDefaultImpl", turn)
        wake()
        watch.conn.defineXML(xml())
        await watch.until(lambda: watch.get() and not to_fail[0])
        assert [why.partition(":")[0] for why in watch.source.troubles] == [
            "cannot dispatch libvirt's events"
        ]
        monkeypatch.setattr(loop, "CALM_SECONDS", 0.0)
        wake()
        await watch.until(lambda: not watch.source.troubles)

    follow(body)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_leaving_lets_go_of_every_connection() -> None:
    async def body(watch: Watch) -> None:
        await watch.source.set_mark((await watch.source.find("test")).uuid, Mark())

    def alive() -> int:
        gc.collect()
        return sum(
            type(thing).__name__ == "virConnect" and thing._o is not None for thing in gc.get_objects()
        )

    before = alive()
    follow(body)
    assert alive() == before
