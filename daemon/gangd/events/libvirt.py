# SPDX-License-Identifier: Apache-2.0
"""libvirt as a source of events, for as long as the daemon lives.

    libvirt's thread ──▶ session: dirty UUIDs ──▶ re-read ──▶ emit(DomainSeen)
    every `interval` ──────────────▶ read everything ──▶ emit(Resynced)

An event only says *which* domain to read again; what is true comes from reading,
so order and loss of events cannot mislead (RESUMED comes before STARTED, vCPU
hotplug raises nothing at all). A storm of events for one domain is one read.
Reading a full host takes a second, and a new mark does not wait for it: a call is
about one guest, and only calls about the same one wait for each other (calls.py).

What goes wrong: libvirtd is not there yet, stops, restarts or hangs. The source
then says so once per reason, keeps what it knew, and connects again with
back-off, but not while a call to open a connection hangs. libvirt is connected once
it lists its domains, or is late with that. A connection is never closed under a caller: it is let go of, and
libvirt-python closes it with the last reference, because a call in flight on
another thread does not hold one of libvirt's own. A domain that libvirt lists and
does not describe, because its driver fails or denies access, is no loss of libvirt:
the source keeps what it knew of that domain, and reads it again with all others. A
domain about which libvirt does not answer in time is `busy`, and is read when it has.
A list of all domains that does not come in time is among the `troubles`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import libvirt

from gangd import virt
from gangd.errors import GangError, NoLibvirt, NoSuchDomain, TimedOut
from gangd.events import loop as event_loop
from gangd.events import metadata
from gangd.events.calls import ASKED_SECONDS, READ_SECONDS, Calls, on_thread
from gangd.events.cpus import Cpus
from gangd.events.domain_reader import STATES, read_again, read_domain
from gangd.events.session import Session
from gangd.model.affect import Affect
from gangd.model.domain import Domain, Mark
from gangd.model.event import Connected, CpusSeen, Disconnected, DomainGone, DomainSeen, Event, Resynced
from gangd.model.mark import format_mark
from gangd.trouble import Trouble

BACKOFF_FIRST, BACKOFF_MAX = 0.25, 5.0
ASK_SECONDS = 15.0  # a request waits so long for the first look at libvirt: it may be what started gangd
OPEN_SECONDS = 10.0  # libvirt has so long to let the source in until that is told: it may be starting
SILENT = "libvirt does not answer"
ROUNDS = 8  # full reads, in one of which a domain is read that raised no event
CHUNK = 50  # guests that are looked at on one thread: some 20 ms
REREADS = 2  # guests that are read again at a time
EVERYBODY = ""  # the guest that a call about all of them is about


class LibvirtSource:
    """Follows the domains of one libvirt.

    uri: as for virsh --connect, "" = libvirt's own choice. root: where /proc,
    /sys and /run are. interval: seconds between full reads.
    """

    def __init__(self, uri: str = "", root: Path = Path("/"), interval: float = 5.0) -> None:
        self.uri = uri
        self._root = root
        self._interval = interval
        self._emit: Callable[[Event], None] = lambda _event: None
        self._session: Session | None = None
        self._calls = Calls(self._late_answer)
        self._reason: str | None = "libvirt was not asked yet"
        self._asked = asyncio.Event()  # it was read once, or could not be
        self._cpus = Cpus(root)
        self._rounds = 0  # full reads
        # CPUs that were online when libvirt last told of every guest: a vCPU without a pin has all of them.
        self._told_of: tuple[int, ...] = ()
        self._due = 0.0  # when to read everything again, on the event loop's clock
        self._sooner = asyncio.Event()  # that was brought forward
        self._resyncing = asyncio.Lock()
        # A full read keeps here what the source emitted meanwhile of domains that it had read; None: gone.
        self._meanwhile: dict[str, Domain | None] = {}
        self._known: dict[str, Domain] = {}  # by UUID, as was emitted last
        self._listing = Trouble("list the domains")
        self._refused: dict[str, Trouble] = {}  # by UUID: domains that libvirt does not describe

    @property
    def troubles(self) -> tuple[str, ...]:
        """Return a sentence for the host's CPUs, one for libvirt's events, one for its list of domains, and
        one for each domain that it does not describe, if they cannot be read."""
        failing = self._cpus.trouble, event_loop.trouble, self._listing, *self._refused.values()
        return tuple(trouble.reason for trouble in failing if trouble.reason)

    @property
    def connection(self) -> Any:
        """The current virConnect, for blocking use from worker threads. Raises NoLibvirt."""
        session = self._session
        if session is None:
            raise NoLibvirt(self._reason or "libvirt is not connected")
        return session.conn

    async def asked(self) -> None:
        """Returns when libvirt was read once or could not be, and after ASK_SECONDS whatever it does."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._asked.wait(), ASK_SECONDS)

    def set_interval(self, seconds: float) -> None:
        """From now on read everything that often; the next time is no later than that from now."""
        self._interval = seconds
        self._read_within(seconds)

    async def run(self, emit: Callable[[Event], None]) -> None:
        """Connect, follow, reconnect; until cancelled. `emit` is called on this event loop."""
        self._emit = emit
        event_loop.start()
        clock = asyncio.get_running_loop().time
        delay = BACKOFF_FIRST
        while True:
            started = clock()
            try:
                await self._follow()
            except GangError as error:
                # Not after every success to connect: a libvirt that lets us in
                # and then refuses each read must not be asked four times a second.
                if clock() - started > BACKOFF_MAX:
                    delay = BACKOFF_FIRST
                self._disconnected(error.cause)
            await asyncio.sleep(delay)
            delay = min(delay * 2, BACKOFF_MAX)

    async def resync(self) -> None:
        """Read all domains and the topology now, and emit Resynced.

        Raises NoLibvirt, and TimedOut where libvirt does not even list them.
        """
        async with self._resyncing:
            self._meanwhile.clear()
            listed = await self._listed()
            self._rounds += 1
            await self._cpus.read()
            looked = await self._looked_again(listed)
            domains = {
                uuid: looked.get(uuid) or await self._read_listed(dom, state)
                for dom, state in listed
                if (uuid := dom.UUIDString())
            }
            self._told_of = self._cpus.topology.ids
            newest = {**domains, **self._meanwhile}
            self._refused = {uuid: why for uuid, why in self._refused.items() if uuid in newest}
            self._known = {uuid: domain for uuid, domain in newest.items() if domain}
            self._emit(Resynced(tuple(self._known.values()), self._cpus.topology))
            self._asked.set()
            self._due = asyncio.get_running_loop().time() + self._interval

    async def look(self) -> None:
        """Read everything that answers: as resync() does, or the CPUs alone, and emit CpusSeen."""
        try:
            await self.resync()
        except GangError:
            async with self._resyncing:
                await self._cpus.read()
                self._emit(CpusSeen(self._cpus.topology))

    async def find(self, ref: str) -> Domain:
        """The domain called `ref`, read from libvirt now (and emitted): an id
        when all digits, a UUID, or a name, tried in virsh's order.

        Raises NoSuchDomain, NoLibvirt.
        """
        return await self._find(ref)

    async def set_mark(self, uuid: str, mark: Mark | None, affect: Affect | None = None) -> Domain:
        """Store `mark` in the domain's metadata, None removes it; returns the domain, also emitted.

        Goes to the configuration of a persistent domain and to a running one's live state, both where
        both exist, unless `affect` says which. Raises NoSuchDomain, InvalidMark, NotRunning,
        InvalidArgument, AccessDenied, NoLibvirt.
        """
        text = None if mark is None else format_mark(mark)
        return await self._written(uuid, partial(_write_mark, self.connection, uuid, text, affect))

    async def change_mark(
        self, uuid: str, change: Callable[[Mark], Mark], affect: Affect | None = None
    ) -> Domain:
        """Replace the marks there are, or those `affect` names, by what `change` makes of each.

        Raises NotMarked, and as set_mark() does.
        """
        return await self._written(uuid, partial(_change_mark, self.connection, uuid, change, affect))

    async def _written(self, uuid: str, write: Callable[[], None]) -> Domain:
        try:
            await self._calls.ask(uuid, write, ASKED_SECONDS)
        except GangError as error:
            if type(error) is GangError:
                await self._find(uuid)  # NoSuchDomain: one that goes meanwhile fails in ways of its own
            raise
        return await self._find(uuid)

    async def _listed(self) -> list[tuple[Any, str | None]]:
        """The answer of _list(), or TimedOut, which becomes a trouble: libvirt is connected all the same."""
        try:
            listed = await self._calls.ask(EVERYBODY, partial(_list, self.connection), READ_SECONDS)
        except TimedOut as error:
            self._listing.note(error)
            self._connected()
            self._asked.set()
            raise
        self._listing.note(None)
        self._connected()
        return listed

    async def _looked_again(self, listed: Sequence[tuple[Any, str | None]]) -> dict[str, Domain]:
        """By UUID the domains of which what libvirt told holds, with what the kernel says of them now.

        A thread looks at CHUNK of them and asks libvirt nothing. Where a process hangs its chunk is left out.
        """
        trusted = [
            known
            for dom, state in listed
            if (known := self._known.get(dom.UUIDString())) and not self._calls.is_late(known.uuid)
            if not self._is_to_be_asked_about(known, dom, state)
        ]
        found: dict[str, Domain] = {}
        for at in range(0, len(trusted), CHUNK):
            chunk = trusted[at : at + CHUNK]
            look = on_thread(partial(_read_again, chunk, self._root))
            with contextlib.suppress(TimeoutError):
                for known, now in zip(chunk, await asyncio.wait_for(look, READ_SECONDS), strict=True):
                    if now and self._known.get(known.uuid) is known:  # else an event had it read meanwhile
                        found[known.uuid] = now
        return found

    async def _read_listed(self, dom: Any, state: str | None) -> Domain | None:
        """A domain (virDomain) that was listed; None when it is gone. Raises NoLibvirt."""
        uuid, name = dom.UUIDString(), dom.name()  # libvirt need not be asked for these
        known = self._known.get(uuid)
        if known and self._calls.is_late(uuid):
            return replace(known, name=name)
        trusted = None if known and self._is_to_be_asked_about(known, dom, state) else known
        read = partial(_read_listed, dom, trusted, self._root)
        domain: Domain | None
        try:
            domain = await self._calls.ask(uuid, read, READ_SECONDS)
        except NoLibvirt:
            raise
        except NoSuchDomain:
            return None
        except (GangError, OSError) as error:
            domain = self._kept(uuid, name, error)
        else:
            self._described(uuid)
        if trusted and self._known.get(uuid) is not trusted:  # an event had it read before this
            return self._known.get(uuid)
        self._meanwhile.pop(uuid, None)
        return domain

    def _is_to_be_asked_about(self, known: Domain, dom: Any, state: str | None) -> bool:
        """True if libvirt may know more of a domain, though it raised no event; each has its turn, too."""
        told = known.name, known.id, known.state
        turn = (hash(known.uuid) + self._rounds) % ROUNDS == 0
        listed = dom.name(), dom.ID() if dom.ID() >= 0 else None, state
        stale = known.running and self._told_of != self._cpus.topology.ids
        return turn or stale or told != listed or bool(known.busy) or known.uuid in self._refused

    async def _find(self, ref: str) -> Domain:
        return await self._read(await self._look_up(ref, ASKED_SECONDS), ASKED_SECONDS)

    async def _look_up(self, ref: str, seconds: float) -> Any:
        conn, known = self.connection, self._known.items()
        guest = next((uuid for uuid, domain in known if ref in (uuid, domain.name)), ref)
        return await self._calls.ask(guest, lambda: virt.lookup(conn, ref), seconds)

    async def _read(self, dom: Any, seconds: float) -> Domain:
        domain = await self._calls.ask(dom.UUIDString(), lambda: read_domain(dom, self._root), seconds)
        self._described(domain.uuid)
        return self._saw(domain)

    def _saw(self, domain: Domain) -> Domain:
        self._meanwhile[domain.uuid] = self._known[domain.uuid] = domain
        self._emit(DomainSeen(domain))
        return domain

    async def _follow(self) -> None:
        """Follow one connection from open to close; ends by raising why."""
        with self._told_if_late():
            conn = await on_thread(partial(_open, self.uri))
        session = Session(conn, asyncio.get_running_loop())
        try:
            with self._told_if_late():
                await _blocking(session.subscribe)
                session.uri = await _blocking(conn.getURI)
            self._session = session
            session.do(self._read_on_time())
            while True:
                await session.news.wait()
                session.news.clear()
                session.check()
                self._catch_up(session)
        finally:
            self._session = None
            del conn
            await session.cancel()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(on_thread(session.unsubscribe), READ_SECONDS)

    async def _read_on_time(self) -> None:
        """Read everything again and again."""
        clock = asyncio.get_running_loop().time
        while True:
            try:
                await self.resync()
            except TimedOut:  # until it answers, events have to do
                self._due = clock() + self._interval
            # A deadline, not a pause: whoever brings it forward must not put it off.
            while (left := self._due - clock()) > 0:
                self._sooner.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._sooner.wait(), left)

    def _read_within(self, seconds: float) -> None:
        self._due = min(self._due, asyncio.get_running_loop().time() + seconds)
        self._sooner.set()

    def _late_answer(self, guest: str) -> None:
        """libvirt answered about a guest at last, and nobody waits any more: it is asked again."""
        if guest == EVERYBODY:
            self._read_within(0)
        elif self._session:
            self._session.note(guest)

    def _catch_up(self, session: Session) -> None:
        """Have some of those read that there is news about; the end of a reading is news."""
        for uuid in tuple(session.dirty - session.rereading):
            if len(session.rereading) >= REREADS:
                return
            session.dirty.discard(uuid)
            if not self._calls.is_late(uuid):
                session.rereading.add(uuid)
                session.do(self._reread(session, uuid))

    async def _reread(self, session: Session, uuid: str) -> None:
        known = self._known.get(uuid)
        name = known.name if known else ""
        try:
            dom = await self._look_up(uuid, READ_SECONDS)
            name = dom.name()
            await self._read(dom, READ_SECONDS)
        except NoLibvirt:
            raise
        except NoSuchDomain:
            self._meanwhile[uuid] = None
            self._known.pop(uuid, None)
            self._refused.pop(uuid, None)
            self._emit(DomainGone(uuid))
        except (GangError, OSError) as error:
            kept = self._kept(uuid, name or uuid, error)
            if name and kept and kept != self._known.get(uuid):  # else the next full read knows its name
                self._saw(kept)
        finally:
            session.rereading.discard(uuid)

    def _kept(self, uuid: str, name: str, error: Exception) -> Domain | None:
        """Note that libvirt does not describe a domain; what is known of it."""
        if isinstance(error, TimedOut):
            known = self._known.get(uuid)
            if not self._calls.is_late(uuid):  # it is not the one that libvirt waits for
                return known
            return replace(known or Domain(uuid, name, state="unknown"), name=name, busy=error.cause)
        about = Domain(uuid, name, state="unknown")
        self._refused.setdefault(uuid, Trouble(f"read domain '{name}'", about)).note(error)
        return self._known.get(uuid)

    def _described(self, uuid: str) -> None:
        if trouble := self._refused.pop(uuid, None):
            trouble.note(None)

    @contextlib.contextmanager
    def _told_if_late(self) -> Iterator[None]:
        """The source says so if libvirt is late with an answer in here, and waits on."""
        late = asyncio.get_running_loop().call_later(OPEN_SECONDS, self._disconnected, SILENT)
        try:
            yield
        finally:
            late.cancel()

    def _connected(self) -> None:
        """A libvirt that lets the source in and refuses each read is not connected: the log would tell of
        each try."""
        if self._session and self._reason is not None:
            self._reason = None
            self._emit(Connected(self._session.uri))

    def _disconnected(self, reason: str) -> None:
        self._asked.set()
        if reason != self._reason:
            self._reason = reason
            self._emit(Disconnected(reason))


async def _blocking(call: Callable[[], Any]) -> Any:
    try:
        return await on_thread(call)
    except libvirt.libvirtError as error:
        raise virt.translate(error)


def _open(uri: str) -> Any:
    try:
        return libvirt.open(uri or None)
    except libvirt.libvirtError as error:
        raise NoLibvirt(virt.translate(error).cause)


def _list(conn: Any) -> list[tuple[Any, str | None]]:
    """All domains (virDomain), each with its state in virsh's words, None where its driver tells none."""
    try:
        found = conn.getAllDomainStats(libvirt.VIR_DOMAIN_STATS_STATE)
        return [(dom, STATES.get(stats.get("state.state"), "unknown")) for dom, stats in found]
    except libvirt.libvirtError as error:
        if error.get_error_code() != libvirt.VIR_ERR_NO_SUPPORT:
            raise virt.translate(error)
    try:
        return [(dom, None) for dom in conn.listAllDomains()]
    except libvirt.libvirtError as error:
        raise virt.translate(error)


def _read_again(known: Sequence[Domain], root: Path) -> list[Domain | None]:
    return [read_again(domain, root) for domain in known]


def _read_listed(dom: Any, trusted: Domain | None, root: Path) -> Domain:
    """trusted: what libvirt told of it before holds."""
    return (trusted and read_again(trusted, root)) or read_domain(dom, root)


def _write_mark(conn: Any, uuid: str, text: str | None, affect: Affect | None) -> None:
    metadata.write_mark(virt.lookup(conn, uuid), text, affect)


def _change_mark(conn: Any, uuid: str, change: Callable[[Mark], Mark], affect: Affect | None) -> None:
    metadata.change_mark(virt.lookup(conn, uuid), change, affect)
