# SPDX-License-Identifier: Apache-2.0
"""Pieces side by side, each in a process of its own, whose VM is its child.

A process, not a thread: a VM gets its death signal when the *thread* that began it ends, and a benchmark that
is to stop is told so by a signal, which only a process's first thread sees. However we die, the processes are
terminated, and take what their VMs have saved.
"""

from __future__ import annotations

import fcntl
import heapq
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from bench import store
from bench.boot import memory
from bench.pieces import Piece

POLL_SECONDS = 1.0
MIB = 1 << 20


@dataclass
class Lane:
    """A piece that is being measured."""

    piece: Piece
    process: subprocess.Popen[bytes]
    begin: float

    @property
    def passed(self) -> float:
        """Seconds since its begin."""
        return time.monotonic() - self.begin


class Lanes:
    """All pieces, the longest first. command: what measures a piece; begin: is called before it, and `end`
    with the status after it, both by this thread."""

    def __init__(
        self,
        pieces: Sequence[Piece],
        number: int,
        command: Callable[[Piece], list[str]],
        begin: Callable[[Piece], None],
        end: Callable[[Piece, int], str],
    ) -> None:
        self._waiting, self._number = ordered(pieces), number
        self._command, self._begin, self._end = command, begin, end
        self._running: list[Lane] = []

    def run(self, lock: int) -> int:
        """Measure all; 1 if a piece could not be measured, else 0. lock: each process holds it, too."""
        status = 0
        try:
            while self._waiting or self._running:
                while piece := self._next():
                    self._start(piece, lock)
                time.sleep(POLL_SECONDS)
                for lane in [one for one in self._running if one.process.poll() is not None]:
                    status |= self._ended(lane)
        finally:
            for lane in self._running:
                lane.process.terminate()
            for lane in list(self._running):
                lane.process.wait()
                self._ended(lane)
        return status

    def _next(self) -> Piece | None:
        """Take the longest piece whose VM has room beside the others."""
        used = sum(memory(lane.piece.job.part) for lane in self._running)
        room = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // MIB - used
        free = len(self._running) < self._number
        fits = (one for one in self._waiting if not self._running or memory(one.job.part) <= room)
        piece = next(fits, None) if free else None
        if piece:
            self._waiting.remove(piece)
        return piece

    def _start(self, piece: Piece, lock: int) -> None:
        self._begin(piece)
        words = ["setpriv", "--pdeathsig", "TERM", "--", *self._command(piece)]
        log = store.HOME / f"{piece.name}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                pass_fds=[lock],
                start_new_session=True,  # a terminal's Ctrl-C reaches us, and we end our processes
            )
        self._running.append(Lane(piece, process, time.monotonic()))
        say(f"{piece.name} begins, expected: {told(piece.seconds)}; log: build/bench/{log.name}")

    def _ended(self, lane: Lane) -> int:
        """Note the end of a piece; 1 if it could not be measured."""
        self._running.remove(lane)
        outcome = self._end(lane.piece, lane.process.returncode)
        times = f"{told(lane.passed)}, expected: {told(lane.piece.seconds)}"
        pieces = [*self._running, *self._waiting]
        say(f"{lane.piece.name} {outcome} ({times}); pieces left: {len(pieces)}, {self._left()}")
        return int(lane.process.returncode != 0)

    def _left(self) -> str:
        now = [rest(lane.piece.seconds, lane.passed) for lane in self._running]
        return in_lanes([piece.seconds for piece in self._waiting], self._number, now)


def rest(seconds: float | None, passed: float) -> float | None:
    """Return how much longer something will take; None: unknown."""
    return None if seconds is None else max(0.0, seconds - passed)


def ordered(pieces: Sequence[Piece]) -> list[Piece]:
    """Return the pieces in the order of their begin: unknown ones, then the longest."""
    return sorted(pieces, key=lambda piece: (piece.seconds is not None, -(piece.seconds or 0)))


def in_lanes(waiting: Sequence[float | None], number: int, running: Sequence[float | None] = ()) -> str:
    """Return how long pieces take in so many lanes, in words: in this order, each where a lane is free first.
    Unknown ones take no time, and are counted."""
    lanes = sorted([*(seconds or 0.0 for seconds in running), *[0.0] * (number - len(running))])
    for seconds in waiting:
        heapq.heapreplace(lanes, lanes[0] + (seconds or 0.0))
    unknown = sum(seconds is None for seconds in [*waiting, *running])
    return told(max(lanes)) + (f" and {unknown} of unknown length" if unknown else "")


def told(seconds: float | None) -> str:
    """Return a time in words."""
    if seconds is None:
        return "unknown"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def say(sentence: str) -> None:
    """Print a sentence with the time of day."""
    print(f"{time.strftime('%H:%M:%S')} {sentence}", flush=True)


@contextmanager
def alone() -> Iterator[int]:
    """Hold build/bench/publish.lock, as do the processes of a run, also of one that was just killed."""
    store.HOME.mkdir(parents=True, exist_ok=True)
    with (store.HOME / "publish.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another `make publish` of this tree has not ended: waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()
