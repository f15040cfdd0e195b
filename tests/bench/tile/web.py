# SPDX-License-Identifier: Apache-2.0
"""The host's requests to the guest web, at a fixed rate whatever becomes of them, and their answers."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import struct
import threading
import time

from bench.seeds.guests import GUEST

PLACE = (GUEST, 7)  # guest/init.c
RATE = 50.0  # requests a second, of 2 ms each: with what packets cost a guest here, 0.2 of a CPU
SHAKEN = (0.5, 1.5)  # times the mean from one to the next: no scheduler's period is in step with them
LOST_SECONDS = 1.0  # a request without an answer counts as this, at least
PRIORITY = 2  # real-time: the client waits for no turn, nor for a vCPU that gang.ko boosts
REQUEST = struct.Struct("!Q")


class Client(threading.Thread):
    """Asks while it is awake. A response time begins when its request was due."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._channel = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._channel.connect(PLACE)
        self._awake = threading.Event()
        self._draw = random.Random(0)
        self._asked: dict[int, float] = {}  # by number, when it was due
        self._answered: list[tuple[float, float]] = []  # when it was due, seconds to the answer
        self._ended = False

    def run(self) -> None:
        """Ask and listen until the client is closed."""
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
        number, due = 0, time.monotonic()
        while not self._ended:
            if not self._awake.is_set():
                self._awake.wait()
                due = time.monotonic()
            number += 1
            due += self._draw.uniform(*SHAKEN) / RATE
            self._listen(due)
            if self._awake.is_set():
                self._asked[number] = due
                with contextlib.suppress(OSError):  # no answer: it counts as lost
                    self._channel.send(REQUEST.pack(number))

    def wake(self, seed: int) -> None:
        """Begin to ask; the moments follow from `seed`."""
        self._draw = random.Random(seed)
        self._awake.set()

    def rest(self) -> None:
        """Ask no more, and forget what was asked."""
        self._awake.clear()
        self._asked.clear()
        self._answered.clear()

    def close(self) -> None:
        """End the thread."""
        self._ended = True
        self._awake.set()
        self.join()
        self._channel.close()

    def seconds(self, begin: float, end: float) -> list[float]:
        """Return the response times of the requests that were due in between, once all are known."""
        while any(begin <= due < end for due in list(self._asked.values())):
            if time.monotonic() > end + LOST_SECONDS:
                break
            time.sleep(0.01)
        now = time.monotonic()
        known = [seconds for due, seconds in list(self._answered) if begin <= due < end]
        return known + [now - due for due in list(self._asked.values()) if begin <= due < end]

    def _listen(self, until: float) -> None:
        """Note answers until then."""
        while (left := until - time.monotonic()) > 0:
            self._channel.settimeout(left)
            try:
                (number,) = REQUEST.unpack(self._channel.recv(REQUEST.size))
            except OSError:  # none in time, or the guest is not there
                continue
            due = self._asked.pop(number, None)
            if due is not None:
                self._answered.append((due, time.monotonic() - due))
