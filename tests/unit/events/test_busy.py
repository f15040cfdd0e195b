# SPDX-License-Identifier: Apache-2.0
"""A guest about which libvirt does not answer, against libvirt's own test driver."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

pytest.importorskip("libvirt")

import libvirt

from gangd.errors import GangError, NoLibvirt, TimedOut
from gangd.events import calls, domain_reader
from gangd.events import libvirt as events
from gangd.events.session import Session
from gangd.model.domain import Domain, Mark
from gangd.model.event import Connected, Disconnected, DomainGone, Resynced
from unit.events.test_libvirt import NEVER, URI, Watch, follow, xml

UUIDS = [f"{number:08}-2222-3333-4444-555555555555" for number in range(1, 6)]
SOON = 0.3  # seconds: the deadlines here


@contextmanager
def hanging(monkeypatch: pytest.MonkeyPatch, *names: str) -> Iterator[Callable[[], None]]:
    """libvirt answers nothing about these guests until it is told to."""
    go_on = threading.Event()

    def reads(dom: Any, root: Path) -> Domain:
        if dom.name() in names:
            go_on.wait(30)
        return domain_reader.read_domain(dom, root)

    def reads_listed(dom: Any, trusted: Domain | None, root: Path) -> Domain:
        return reads(dom, root)

    with monkeypatch.context() as patch:
        patch.setattr(events, "READ_SECONDS", SOON)
        patch.setattr(events, "ASKED_SECONDS", 2 * SOON)
        patch.setattr(events, "read_domain", reads)
        patch.setattr(events, "_read_listed", reads_listed)
        try:
            yield go_on.set
        finally:
            go_on.set()


async def known(watch: Watch, guests: int) -> list[str]:
    """The names of so many guests, which libvirt has and gangd knows."""
    for each in UUIDS[:guests]:
        watch.conn.defineXML(xml(f"vm-{each[:8]}", each))
    await watch.until(lambda: len(watch.state.domains) == guests + 1)
    return [f"vm-{each[:8]}" for each in UUIDS[:guests]]


def busy(watch: Watch) -> dict[str, str]:
    """Return the reason why each busy guest is busy, by its name."""
    return {domain.name: domain.busy for domain in watch.state.domains.values() if domain.busy}


def test_a_thread_that_cannot_be_started_keeps_no_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host without memory, or a unit at its pids.max, for a while: the calls after that are made."""

    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def body() -> int:
        asked = calls.Calls(lambda _: None)
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refused)
            for number in range(calls.MOST + 1):
                with pytest.raises(GangError, match="cannot start a thread for a call to libvirt: "):
                    await asked.ask(str(number % 2), lambda: 1, SOON)
        return await asked.ask("0", lambda: 1, SOON)

    assert asyncio.run(body()) == 1


def test_one_that_hangs_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A guest that hangs is busy, what was known of it stays, and it is read once libvirt answers."""

    async def body(watch: Watch) -> None:
        first, _ = await known(watch, 2)
        await watch.source.set_mark(UUIDS[0], Mark("balance"))
        with hanging(monkeypatch, first) as go_on:
            watch.conn.lookupByName(first).create()
            await watch.until(lambda: busy(watch))
            begin = time.monotonic()
            for _ in range(3):
                await watch.source.resync()
                await watch.source.set_mark(UUIDS[1], Mark())
            assert time.monotonic() - begin < 3 * SOON  # it was not waited for each time
            assert busy(watch) == {first: f"libvirt has not answered for {SOON:g} s: {calls.HELD}"}
            assert (vm := watch.get(UUIDS[0])) and vm.mark == Mark("balance") and not vm.running
            assert (vm := watch.get(UUIDS[1])) and vm.mark == Mark()
            with pytest.raises(TimedOut, match=f"has not answered for {2 * SOON:g} s"):
                await watch.source.set_mark(UUIDS[0], None)
            go_on()
            await watch.until(lambda: not busy(watch))
        assert (vm := watch.get(UUIDS[0])) and vm.running
        assert watch.state.connected and watch.source.troubles == ()
        assert not any(isinstance(event, DomainGone) for event in watch.seen)

    follow(body)


def test_one_never_seen_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(watch: Watch) -> None:
        with hanging(monkeypatch, "new"):
            watch.conn.defineXML(xml("new", UUIDS[0]))
            await watch.source.resync()
            assert set(busy(watch)) == {"new"}
            assert (vm := watch.get(UUIDS[0])) and vm.state == "unknown" and not vm.running

    follow(body)


def test_as_many_as_libvirt_takes_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """No guest is asked about then, lest libvirt stop reading the connection; the others are not busy."""

    async def body(watch: Watch) -> None:
        names = await known(watch, 5)
        monkeypatch.setattr(watch.source, "_is_to_be_asked_about", lambda *_: True)
        with hanging(monkeypatch, *names[: calls.MOST]) as go_on:
            await watch.source.resync()
            begin = time.monotonic()
            with pytest.raises(TimedOut, match="has not answered 4 calls about other guests"):
                await watch.source.resync()
            assert time.monotonic() - begin < SOON
            late = "cannot list the domains: libvirt has not answered 4 calls about other guests"
            assert watch.source.troubles == (late,)
            assert set(busy(watch)) == set(names[: calls.MOST])
            assert len(watch.state.domains) == 6
            go_on()
            await watch.until(lambda: not busy(watch))
            await watch.source.resync()
            assert watch.source.troubles == ()
            assert (await watch.source.find(names[-1])).name == names[-1]

    follow(body)


def hang_the_list(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """libvirt lists no guests until it is told to."""
    go_on = threading.Event()
    real = events._list

    def lists(conn: Any) -> Any:
        go_on.wait(30)
        return real(conn)

    monkeypatch.setattr(events, "READ_SECONDS", SOON)
    monkeypatch.setattr(events, "_list", lists)
    return go_on.set


def test_a_list_that_hangs(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Events have to do until libvirt lists guests again, which is then read at once. The trouble is told."""
    caplog.set_level("INFO", "gangd")
    why = f"cannot list the domains: libvirt has not answered for {SOON:g} s: {calls.HELD}"

    async def body(watch: Watch) -> None:
        await known(watch, 1)
        go_on = hang_the_list(monkeypatch)
        for _ in range(2):
            with pytest.raises(TimedOut):
                await watch.source.resync()
        assert watch.source.troubles == (why,)
        await watch.source.set_mark(UUIDS[0], Mark("balance"))
        assert (vm := watch.get(UUIDS[0])) and vm.mark == Mark("balance")
        read = len(watch.seen)
        go_on()
        await watch.until(lambda: any(isinstance(event, Resynced) for event in watch.seen[read:]))
        assert watch.source.troubles == ()

    follow(body)
    assert caplog.messages == [why, "gangd can list the domains again"]


def test_requests_do_not_wait_for_a_first_list_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = hang_the_list(monkeypatch)

    async def main() -> None:
        watch = Watch(source := events.LibvirtSource(URI, interval=NEVER), None)
        running = asyncio.create_task(source.run(watch.emit))
        async with asyncio.timeout(5):
            await source.asked()
        assert watch.state.connected and source.troubles
        go_on()
        await watch.until(lambda: watch.state.domains)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(main())


@pytest.mark.parametrize(("owner", "name"), [(libvirt, "open"), (Session, "subscribe")])
def test_a_libvirt_that_hangs_while_it_is_connected_to(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    """The source says so, asks no second time meanwhile, and follows libvirt once it answers."""
    go_on, real, calls_made = threading.Event(), getattr(owner, name), []

    def hangs(*given: Any) -> Any:
        calls_made.append(given)
        go_on.wait(30)
        return real(*given)

    monkeypatch.setattr(owner, name, hangs)
    monkeypatch.setattr(events, "OPEN_SECONDS", SOON)
    monkeypatch.setattr(events, "BACKOFF_FIRST", 0.01)

    async def main() -> None:
        watch = Watch(source := events.LibvirtSource(URI, interval=NEVER), None)
        running = asyncio.create_task(source.run(watch.emit))
        await source.asked()
        assert watch.seen == [Disconnected("libvirt does not answer")]
        with pytest.raises(NoLibvirt, match="libvirt does not answer"):
            await source.find("test")
        await asyncio.sleep(2 * SOON)
        go_on.set()
        await watch.until(lambda: watch.state.domains)
        assert watch.seen[1] == Connected(URI) and len(watch.seen) == 3
        assert len(calls_made) == 1
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(main())


def test_the_process_ends_without_waiting() -> None:
    """For a call that nothing can end, while gangd stops."""
    program = (
        "import asyncio, time\n"
        "from gangd.events.calls import Calls\n"
        "from gangd.errors import TimedOut\n"
        "async def main():\n"
        "    try:\n"
        "        await Calls(print).ask('vm', lambda: time.sleep(60), 0.1)\n"
        "    except TimedOut:\n"
        "        print('timed out')\n"
        "asyncio.run(main())\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=30,
        env={"PYTHONPATH": str(Path(calls.__file__).parents[2])},
    )
    assert (found.stdout, found.stderr, found.returncode) == ("timed out\n", "", 0)


def test_calls_about_one_guest_come_in_order() -> None:
    """Each answer is acted upon before the next one comes."""
    acted: list[int] = []

    async def main() -> None:
        asking = calls.Calls(print)

        async def one(number: int) -> None:
            acted.append(await asking.ask("vm", lambda: time.sleep(0.01) or number, 10))

        await asyncio.gather(*map(one, range(20)))

    asyncio.run(main())
    assert acted == list(range(20))


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        (libvirt.VIR_DOMAIN_PAUSED_MIGRATION, "it is being migrated"),
        (libvirt.VIR_DOMAIN_PAUSED_SAVE, "it is being saved"),
        (libvirt.VIR_DOMAIN_PAUSED_USER, ""),
    ],
)
def test_a_paused_guest_names_the_work_of_libvirt(reason: int, said: str) -> None:
    dom = Mock(
        info=lambda: (libvirt.VIR_DOMAIN_PAUSED, 0, 1024, 2, 0),
        state=lambda: [libvirt.VIR_DOMAIN_PAUSED, reason],
        ID=lambda: -1,
        schedulerParameters=dict,
        metadata=lambda *_: "",
    )
    assert domain_reader.read_domain(dom).busy == said
