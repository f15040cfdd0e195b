# SPDX-License-Identifier: Apache-2.0
"""libvirt as a source of events, for as long as the daemon lives.

    libvirt's thread ──call_soon_threadsafe──▶ dirty UUIDs ──▶ re-read ──▶ emit(DomainSeen)
    every `interval` ──────────────────────▶ read everything ──▶ emit(Resynced)

An event only says *which* domain to read again; what is true comes from reading,
so order and loss of events cannot mislead (RESUMED comes before STARTED, vCPU
hotplug raises nothing at all). A storm of events for one domain is one read.
Reading a full host takes a second, and a new mark does not wait for it: it is
done in parts, with events and callers served in between.

What goes wrong: libvirtd is not there yet, stops, restarts or hangs. The source
then says so once per reason, keeps what it knew, and connects again with
back-off. A connection is never closed under a caller: it is let go of, and
libvirt-python closes it with the last reference, because a call in flight on
another thread does not hold one of libvirt's own. A domain that libvirt lists and
does not describe, because its driver fails or denies access, is no loss of libvirt:
the source keeps what it knew of that domain, and reads it again with all others.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import libvirt

from gangd import virt
from gangd.errors import GangError, NoLibvirt, NoSuchDomain
from gangd.events import loop as event_loop
from gangd.events import metadata
from gangd.events.reading import read_domain
from gangd.model.affect import Affect
from gangd.model.domain import Domain, Mark
from gangd.model.event import Connected, Disconnected, DomainGone, DomainSeen, Event, Resynced
from gangd.model.mark import format_mark
from gangd.model.topology import Topology
from gangd.trouble import Trouble

BACKOFF_FIRST, BACKOFF_MAX = 0.25, 5.0
ASK_SECONDS = 15.0  # a request waits so long for the first look at libvirt: it may be what started gangd
PART = 8  # domains that are read in one go: some 25 ms
# libvirtd that hangs is noticed after interval * (count + 1) seconds.
KEEPALIVE_INTERVAL, KEEPALIVE_COUNT = 5, 3
_EVENTS = (
    libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE,
    libvirt.VIR_DOMAIN_EVENT_ID_METADATA_CHANGE,
    libvirt.VIR_DOMAIN_EVENT_ID_TUNABLE,
    libvirt.VIR_DOMAIN_EVENT_ID_DEVICE_ADDED,
    libvirt.VIR_DOMAIN_EVENT_ID_DEVICE_REMOVED,
)
_CLOSED = {
    libvirt.VIR_CONNECT_CLOSE_REASON_ERROR: "the connection to libvirt failed: input/output error",
    libvirt.VIR_CONNECT_CLOSE_REASON_EOF: "libvirt closed the connection: it was stopped or restarted",
    libvirt.VIR_CONNECT_CLOSE_REASON_KEEPALIVE: "libvirt does not answer keep-alive messages",
}


@dataclass
class _Session:
    """One connection and the news about it; touched only on asyncio's thread once it is set up."""

    conn: Any
    loop: asyncio.AbstractEventLoop
    callbacks: list[int] = field(default_factory=list)
    dirty: set[str] = field(default_factory=set)
    closed: str | None = None
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def subscribe(self) -> None:
        """Register all callbacks. Blocking."""
        # Drivers inside this process have no connection to keep alive. They accept a
        # close callback all the same and never release it: so not both on their own.
        with contextlib.suppress(libvirt.libvirtError):
            self.conn.setKeepAlive(KEEPALIVE_INTERVAL, KEEPALIVE_COUNT)
            self.conn.registerCloseCallback(self._on_close, None)
        for event in _EVENTS:
            self.callbacks.append(self.conn.domainEventRegisterAny(None, event, self._on_event, None))

    def unsubscribe(self) -> None:
        """Take all callbacks back: each holds a reference that keeps the connection open. Blocking."""
        for callback in self.callbacks:
            with contextlib.suppress(libvirt.libvirtError):
                self.conn.domainEventDeregisterAny(callback)
        with contextlib.suppress(libvirt.libvirtError):
            self.conn.unregisterCloseCallback()

    def _on_event(self, _conn: Any, dom: Any, *_details: object) -> None:
        self._post(self._note, dom.UUIDString())

    def _on_close(self, _conn: Any, reason: int, _opaque: object) -> None:
        self._post(self._note_closed, _CLOSED.get(reason, "the connection to libvirt was closed"))

    def _post(self, call: Callable[[str], None], text: str) -> None:
        # From libvirt's thread; the loop may be gone when the daemon is leaving.
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(call, text)

    def _note(self, uuid: str) -> None:
        self.dirty.add(uuid)
        self.news.set()

    def _note_closed(self, reason: str) -> None:
        self.closed = reason
        self.news.set()


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
        self._session: _Session | None = None
        self._reason: str | None = "libvirt was not asked yet"
        self._asked = asyncio.Event()  # it was read once, or could not be
        self._topology = Topology()
        self._steady = False  # the last two readings of it found the same CPUs online
        self._due = 0.0  # when to read everything again, on the event loop's clock
        # Reading and emitting are one step, lest an older read be emitted last.
        self._reading = asyncio.Lock()
        self._resyncing = asyncio.Lock()
        # What was emitted of single domains during a full read, after that has read them; None: gone.
        self._meanwhile: dict[str, Domain | None] = {}
        self._known: dict[str, Domain] = {}  # by UUID, as was emitted last
        self._refused: dict[str, Trouble] = {}  # by UUID: domains that libvirt does not describe

    @property
    def troubles(self) -> tuple[str, ...]:
        """Which domains libvirt does not describe, and why: one sentence each."""
        return tuple(trouble.reason for trouble in self._refused.values())

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
        self._due = min(self._due, asyncio.get_running_loop().time() + seconds)
        if self._session:
            self._session.news.set()  # whoever waits looks at the deadline again

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
        """Read all domains and the topology now, and emit Resynced. Raises NoLibvirt."""
        async with self._resyncing:
            self._meanwhile.clear()
            listed = await asyncio.to_thread(_list, self.connection)
            domains: dict[str, Domain | None] = {}
            for at in range(0, len(listed), PART):
                async with self._reading:
                    part, refused = await asyncio.to_thread(_read_all, listed[at : at + PART], self._root)
                    domains |= part
                    for uuid in part:
                        self._meanwhile.pop(uuid, None)
                        self._described(uuid)
                    domains |= {uuid: self._kept(uuid, *why) for uuid, why in refused.items()}
                await self._catch_up()
            last, self._topology = self._topology, await asyncio.to_thread(self._read_topology)
            self._steady = self._topology.ids == last.ids
            newest = {**domains, **self._meanwhile}
            self._refused = {uuid: why for uuid, why in self._refused.items() if uuid in newest}
            self._known = {uuid: domain for uuid, domain in newest.items() if domain}
            self._emit(Resynced(tuple(self._known.values()), self._topology))
            self._asked.set()
            self._due = asyncio.get_running_loop().time() + self._interval

    async def find(self, ref: str) -> Domain:
        """The domain called `ref`, read from libvirt now (and emitted): an id
        when all digits, a UUID, or a name, tried in virsh's order.

        Raises NoSuchDomain, NoLibvirt.
        """
        return await self._read(ref)

    async def set_mark(self, uuid: str, mark: Mark | None, affect: Affect | None = None) -> Domain:
        """Store `mark` in the domain's metadata, None removes it; returns the domain, also emitted.

        Goes to the configuration of a persistent domain and to a running one's live state, both where
        both exist, unless `affect` says which. Raises NoSuchDomain, InvalidMark, NotRunning,
        InvalidArgument, AccessDenied, NoLibvirt.
        """
        text = None if mark is None else format_mark(mark)
        conn = self.connection
        await asyncio.to_thread(lambda: metadata.write_mark(virt.lookup(conn, uuid), text, affect))
        return await self._read(uuid)

    async def change_mark(
        self, uuid: str, change: Callable[[Mark], Mark], affect: Affect | None = None
    ) -> Domain:
        """Replace the marks there are, or those `affect` names, by what `change` makes of each.

        Raises NotMarked, and as set_mark() does.
        """
        conn = self.connection
        await asyncio.to_thread(lambda: metadata.change_mark(virt.lookup(conn, uuid), change, affect))
        return await self._read(uuid)

    def _read_topology(self) -> Topology:
        """The topology now; while a CPU is being unplugged its files vanish: then the last one.

        While one is plugged in, its caches come after itself: what was read then is read once more.
        """
        try:
            return Topology.read(self._root, self._topology if self._steady else None)
        except (OSError, ValueError):
            return self._topology

    async def _read(self, ref: str) -> Domain:
        async with self._reading:
            domain = await asyncio.to_thread(_find, self.connection, ref, self._root)
            self._meanwhile[domain.uuid] = self._known[domain.uuid] = domain
            self._described(domain.uuid)
            self._emit(DomainSeen(domain))
            return domain

    async def _follow(self) -> None:
        """One connection from open to close; ends by raising why."""
        conn = await asyncio.to_thread(_open, self.uri)
        session = _Session(conn, asyncio.get_running_loop())
        try:
            await _blocking(session.subscribe)
            uri = await _blocking(conn.getURI)
            self._session, self._reason = session, None
            self._emit(Connected(uri))
            await self.resync()
            while True:
                await self._wait(session)
        finally:
            self._session = None
            del conn
            await asyncio.to_thread(session.unsubscribe)

    async def _wait(self, session: _Session) -> None:
        """Until there is news or a full read is due; then act on it."""
        try:
            # A deadline, not a pause: a storm of events must not put the full read off.
            left = self._due - asyncio.get_running_loop().time()
            await asyncio.wait_for(session.news.wait(), max(left, 0))
        except TimeoutError:
            await self.resync()
            return
        session.news.clear()
        if session.closed:
            raise NoLibvirt(session.closed)
        await self._catch_up()

    async def _catch_up(self) -> None:
        """Read what events were about so far; who keeps us busy does not keep us here."""
        dirty = self._session.dirty if self._session else set()
        for uuid in tuple(dirty):
            dirty.discard(uuid)
            await self._reread(uuid)

    async def _reread(self, uuid: str) -> None:
        try:
            await self._read(uuid)
        except NoLibvirt:
            raise
        except NoSuchDomain:
            self._meanwhile[uuid] = None
            self._known.pop(uuid, None)
            self._refused.pop(uuid, None)
            self._emit(DomainGone(uuid))
        except (GangError, OSError) as error:
            known = self._known.get(uuid)
            self._kept(uuid, known.name if known else uuid, error)

    def _kept(self, uuid: str, name: str, error: Exception) -> Domain | None:
        """Note that libvirt does not describe a domain; what was known of it."""
        about = Domain(uuid, name, state="unknown")
        self._refused.setdefault(uuid, Trouble(f"read domain '{name}'", about)).note(error)
        return self._known.get(uuid)

    def _described(self, uuid: str) -> None:
        if trouble := self._refused.pop(uuid, None):
            trouble.note(None)

    def _disconnected(self, reason: str) -> None:
        self._asked.set()
        if reason != self._reason:
            self._reason = reason
            self._emit(Disconnected(reason))


async def _blocking(call: Callable[[], Any]) -> Any:
    try:
        return await asyncio.to_thread(call)
    except libvirt.libvirtError as error:
        raise virt.translate(error)


def _open(uri: str) -> Any:
    try:
        return libvirt.open(uri or None)
    except libvirt.libvirtError as error:
        raise NoLibvirt(virt.translate(error).cause)


def _list(conn: Any) -> list[Any]:
    try:
        found: list[Any] = conn.listAllDomains()
    except libvirt.libvirtError as error:
        raise virt.translate(error)
    return found


def _read_all(
    listed: list[Any], root: Path
) -> tuple[dict[str, Domain], dict[str, tuple[str, GangError | OSError]]]:
    """By UUID, without those that vanished since they were listed; and of those that cannot be read, the name
    and why. Raises NoLibvirt."""
    domains, refused = {}, {}
    for dom in listed:
        try:
            domain = read_domain(dom, root)
            domains[domain.uuid] = domain
        except NoLibvirt:
            raise
        except NoSuchDomain:
            continue
        except (GangError, OSError) as error:
            refused[dom.UUIDString()] = dom.name(), error  # libvirt need not be asked for these
    return domains, refused


def _find(conn: Any, ref: str, root: Path) -> Domain:
    return read_domain(virt.lookup(conn, ref), root)
