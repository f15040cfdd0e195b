# SPDX-License-Identifier: Apache-2.0
"""A thread runs libvirt's own event loop, for the whole process.

libvirtaio is not used: it changes asyncio's selector from whichever thread makes a
libvirt call, and gangd makes them from worker threads because they block. Its
`drain()` also waits for ever while any domain object lives. libvirt's default
loop is made for threads; callbacks run here and hand their news to asyncio with
`call_soon_threadsafe`.
"""

from __future__ import annotations

import atexit
import threading
import time

import libvirt

from gangd import virt
from gangd.trouble import Trouble

RETRY_SECONDS = 1.0  # between a failure of libvirt's loop and its next turn
CALM_SECONDS = 60.0  # without a failure, until the trouble counts as over

trouble = Trouble("dispatch libvirt's events")
_start_lock = threading.Lock()
_thread: EventThread | None = None


class EventThread(threading.Thread):
    """Runs until `stop()`, or until the interpreter exits."""

    def __init__(self) -> None:
        super().__init__(name="libvirt-events", daemon=True)
        self._stopping = threading.Event()
        # A timer that never fires by itself: firing it by hand is the only
        # thread-safe way to wake virEventRunDefaultImpl.
        self._waker = libvirt.virEventAddTimeout(-1, self._woken, None)

    def run(self) -> None:
        """Dispatch events until stopped. A turn that fails does not end it: nobody would start it again."""
        failed = -CALM_SECONDS
        while not self._stopping.is_set():
            try:
                libvirt.virEventRunDefaultImpl()
            except libvirt.libvirtError as error:
                failed = time.monotonic()
                trouble.note(virt.translate(error))
                self._stopping.wait(RETRY_SECONDS)
            else:
                if time.monotonic() - failed >= CALM_SECONDS:  # else the log would tell of each failure
                    trouble.note(None)

    def stop(self) -> None:
        """Leave the loop and wait for the thread, at most a second."""
        self._stopping.set()
        libvirt.virEventUpdateTimeout(self._waker, 0)
        self.join(1.0)

    def _woken(self, timer: int, _opaque: object) -> None:
        libvirt.virEventUpdateTimeout(timer, -1)


def start() -> None:
    """Have libvirt's events dispatched; call before the first connection is opened. Idempotent."""
    global _thread
    with _start_lock:
        if _thread is None:
            virt.quiet()
            libvirt.virEventRegisterDefaultImpl()
            _thread = EventThread()
            _thread.start()
            # A daemon thread that wakes inside libvirt during finalization can
            # crash the interpreter: end it while Python is whole.
            atexit.register(_thread.stop)
