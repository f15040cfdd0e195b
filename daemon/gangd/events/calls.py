# SPDX-License-Identifier: Apache-2.0
"""Calls to libvirt about one guest each: a guest whose lock another job holds keeps nobody else waiting.

libvirt locks a guest while it starts, arrives or leaves, or while QEMU does not answer, and a call about it
returns afterwards. Nothing can end such a call. It is left alone after its deadline, on a thread that ends
with the process, and until it returns there is no other about this guest.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from gangd.errors import GangError, TimedOut

T = TypeVar("T")

READ_SECONDS = 5.0  # of a reading; an idle libvirt needs milliseconds, one in an emulator up to a second
ASKED_SECONDS = 20.0  # of what somebody waits for; gangctl waits a little longer
HELD = "another job holds the guest, or it hangs"
MOST = 4  # calls at a time: libvirtd reads no more of a connection that has 5 (max_client_requests)


class Calls:
    """returned: told of each guest whose call came back after its deadline."""

    def __init__(self, returned: Callable[[str], None]) -> None:
        self._returned = returned
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # by guest
        self._free = asyncio.Semaphore(MOST)
        self._late: set[str] = set()

    def is_late(self, guest: str) -> bool:
        """True while a call about this guest is out that was given up."""
        return guest in self._late

    async def ask(self, guest: str, call: Callable[[], T], seconds: float) -> T:
        """Return or raise what `call` does, after the calls about this guest that came before.

        The caller's code up to its next await runs before the next call about this guest returns.
        Raises TimedOut after so many seconds, or at once while MOST calls are late.
        """
        if len(self._late) >= MOST:
            raise TimedOut(f"libvirt has not answered {len(self._late)} calls about other guests")
        try:
            async with asyncio.timeout(seconds):
                lock = self._locks.setdefault(guest, asyncio.Lock())
                await lock.acquire()
                answer = await self._begin(lock, call)
                try:
                    return await asyncio.shield(answer)
                except asyncio.CancelledError:
                    self._give_up(guest, answer)
                    raise
        except TimeoutError:
            raise TimedOut(f"libvirt has not answered for {seconds:g} s: {HELD}")

    async def _begin(self, lock: asyncio.Lock, call: Callable[[], T]) -> asyncio.Future[T]:
        """The call's answer to come; the lock is released with it."""
        try:
            await self._free.acquire()
        except BaseException:
            lock.release()
            raise
        try:
            answer = on_thread(call)
        except GangError:
            lock.release()
            self._free.release()
            raise
        answer.add_done_callback(partial(self._end, lock))
        return answer

    def _end(self, lock: asyncio.Lock, answer: asyncio.Future[Any]) -> None:
        lock.release()
        self._free.release()

    def _give_up(self, guest: str, answer: asyncio.Future[Any]) -> None:
        if not answer.done():
            self._late.add(guest)
            answer.add_done_callback(partial(self._came, guest))

    def _came(self, guest: str, answer: asyncio.Future[Any]) -> None:
        answer.exception()  # nobody else looks at it
        self._late.discard(guest)
        self._returned(guest)


def on_thread(call: Callable[[], T]) -> asyncio.Future[T]:
    """The answer of a blocking call, made on a thread of its own: the process ends without waiting for it.

    Raises GangError where no thread can be started (pids.max of the unit, memory).
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def settle(set_it: Callable[[Any], None], value: Any) -> None:
        if not answer.done():
            set_it(value)

    def work() -> None:
        try:
            found = partial(settle, answer.set_result, call())
        except BaseException as error:
            found = partial(settle, answer.set_exception, error)
        with contextlib.suppress(RuntimeError):  # the loop is over
            loop.call_soon_threadsafe(found)

    try:
        threading.Thread(target=work, name="libvirt", daemon=True).start()
    except RuntimeError as error:
        raise GangError(f"cannot start a thread for a call to libvirt: {error}")
    return answer
