# SPDX-License-Identifier: Apache-2.0
"""A session is a connection to libvirt: which guests it has news of, what is done about them, how it ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import libvirt

from gangd.errors import NoLibvirt

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
class Session:
    """A connection and the news about it; touched only on asyncio's thread once it is set up.

    uri: that of libvirt. dirty: UUIDs of guests that are to be read again. rereading: those that are being
    read for that.
    """

    conn: Any
    loop: asyncio.AbstractEventLoop
    uri: str = ""
    callbacks: list[int] = field(default_factory=list)
    dirty: set[str] = field(default_factory=set)
    rereading: set[str] = field(default_factory=set)
    closed: str | None = None
    news: asyncio.Event = field(default_factory=asyncio.Event)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _failure: BaseException | None = None

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

    def do(self, work: Coroutine[Any, Any, None]) -> None:
        """Do it meanwhile. What it raises is raised by check(), and at its end there is news."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def check(self) -> None:
        """Raises NoLibvirt when the connection was closed, and whatever came of do()."""
        if self.closed:
            raise NoLibvirt(self.closed)
        if self._failure:
            raise self._failure

    async def cancel(self) -> None:
        """Nothing is done meanwhile any more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            self._failure = self._failure or task.exception()
        self.news.set()

    def note(self, uuid: str) -> None:
        """Something may have changed about this guest."""
        self.dirty.add(uuid)
        self.news.set()

    def _on_event(self, _conn: Any, dom: Any, *_details: object) -> None:
        self._post(self.note, dom.UUIDString())

    def _on_close(self, _conn: Any, reason: int, _opaque: object) -> None:
        self._post(self._note_closed, _CLOSED.get(reason, "the connection to libvirt was closed"))

    def _post(self, call: Callable[[str], None], text: str) -> None:
        # From libvirt's thread; the loop may be gone when the daemon is leaving.
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(call, text)

    def _note_closed(self, reason: str) -> None:
        self.closed = reason
        self.news.set()
