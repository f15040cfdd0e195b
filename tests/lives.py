# SPDX-License-Identifier: Apache-2.0
"""Lives of gangd that end after a given step, each in a process of its own."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable

from gangd.actuate.journal import Journal


class Died(BaseException):
    """kill -9, as seen from inside."""


def die() -> None:
    raise Died


def kill() -> None:
    """End this process as an operator may."""
    os.kill(os.getpid(), signal.SIGKILL)


class Steps:
    """Counts steps, and ends the process with `end` after the one it was told; last None: never."""

    def __init__(self, last: int | None = None, end: Callable[[], None] = die) -> None:
        self.last, self.end, self.done = last, end, 0

    def step(self, half: Callable[[], object] = lambda: None) -> None:
        """Count a step done; `half` is done first if it is the last, by a process that dies in the middle."""
        self.done += 1
        if self.last is not None and self.done > self.last:
            half()
            self.end()


class MortalJournal(Journal):
    """A journal whose process may die before and in each write."""

    steps = Steps()

    def _append(self, lines: list[bytes]) -> None:
        data = b"".join(lines)
        self.steps.step()
        self.steps.step(lambda: self._tear(data))
        super()._append(lines)

    def _tear(self, data: bytes) -> None:
        if self._sound:
            with self.path.open("ab") as file:
                file.write(data[: len(data) // 2])


def serve(live: Callable[[str], None]) -> None:
    """Run `live` for each line of the input, in a child that it may kill, and print the exit statuses.

    Forks from a process that has one thread, unlike pytest's after the tests of libvirt.
    """
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                live(line)
                os._exit(0)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
