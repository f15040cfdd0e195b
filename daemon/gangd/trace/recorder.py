# SPDX-License-Identifier: Apache-2.0
"""Records what the vCPU threads of guests do, by kernel-helper/bpf/trace.bpf.c: it is in the kernel while
the recording lasts and at no other time, and needs root, BTF, and no scheduler of gangd's."""

from __future__ import annotations

import contextlib
import os
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from gangd import bpf
from gangd.bpf import abi
from gangd.errors import GangError
from gangd.measure.proc import last_cpu, read_thread

READ_SECONDS = 0.05  # the ring has room for 130,000 events
STEADY = 0.9  # of the time
SCHEDULERS = ("decisions", "members")  # maps that the gang scheduler has, if it is loaded
OPTIONAL = {"trace_exit": "PAUSE exits", "trace_yield": "directed yields"}
_EVENT = struct.Struct("=QIIII")
_WORD = struct.Struct("=I")


class Event(NamedTuple):
    """An event (struct trace_event of gang_abi.h). time: ns of CLOCK_MONOTONIC; id: thread, or gang."""

    time: int
    id: int
    length_us: int
    cpu: int
    kind: int


class Recording(NamedTuple):
    """begin, end: ns of CLOCK_MONOTONIC. events: in no order but that of each CPU. gangs: the gang's number
    by thread. steady: the CPU by thread, of those that ran all the time and so have no event. missing: what
    could not be recorded."""

    begin: int
    end: int
    events: list[Event]
    lost: int
    gangs: Mapping[int, int]
    steady: Mapping[int, int]
    missing: tuple[str, ...]


def record(
    tids: Iterable[int], seconds: float, told: Callable[[float, int], None] = lambda *_: None
) -> Recording:
    """Record these threads for so long, or until Ctrl-C.

    told: called with the seconds and bytes so far. Raises GangError when nothing can be recorded.
    """
    threads = {tid: process for tid in tids if (process := _process(tid))}
    try:
        with _Probes() as probes:
            return probes.follow(threads, seconds, told)
    except bpf.BpfError as error:
        raise GangError("only root may record" if os.geteuid() else str(error)) from error


class _Probes:
    """The programs in the kernel while the body runs. missing: what this kernel cannot show."""

    def __init__(self) -> None:
        self.missing: list[str] = []
        self._programs = self._loaded()

    def __enter__(self) -> _Probes:
        return self

    def __exit__(self, *_: object) -> None:
        self._programs.close()

    def _loaded(self) -> bpf.Object:
        """A kernel may have no probes of functions, and tracepoints nevertheless."""
        try:
            return self._load(())
        except bpf.BpfError as error:
            self.missing = [f"directed yields: {_cause(error)}"]
            return self._load(("trace_yield",))

    def _load(self, without: Sequence[str]) -> bpf.Object:
        programs = bpf.Object(bpf.object_path("trace"))
        try:
            for name in without:
                programs.set_autoload(name, False)
            scheduled = all(programs.share_map(name) for name in SCHEDULERS)
            programs.load()
        except bpf.BpfError:
            programs.close()
            raise
        self.missing += [] if scheduled else ["turns: no gang scheduler is loaded"]
        self._wanted = [name for name in programs.programs() if name not in without]
        return programs

    def follow(
        self, threads: Mapping[int, int], seconds: float, told: Callable[[float, int], None]
    ) -> Recording:
        """Record the threads, each of a process."""
        for tid, process in threads.items():
            self._programs.map("threads").update(_WORD.pack(tid), _WORD.pack(process))
        with contextlib.ExitStack() as links:
            self._attach(links)
            before, begin = _ran(threads), time.monotonic_ns()
            parts = list(self._read(begin, seconds, told))
            end = time.monotonic_ns()
        parts.append(self._programs.map("events").drain())
        after, enough = _ran(threads), STEADY * (end - begin) / 1e9
        steady = {
            tid: last_cpu(process, tid) or 0
            for tid, process in threads.items()
            if after[tid] - before[tid] >= enough
        }
        events = [Event._make(fields) for fields in _EVENT.iter_unpack(b"".join(parts))]
        return Recording(begin, end, events, self._lost(), self._gangs(), steady, tuple(self.missing))

    def _attach(self, links: contextlib.ExitStack) -> None:
        for name in self._wanted:
            try:
                links.enter_context(self._programs.attach(name))
            except bpf.BpfError as error:
                if name not in OPTIONAL:
                    raise
                self.missing.append(f"{OPTIONAL[name]}: {_cause(error)}")

    def _read(self, begin: int, seconds: float, told: Callable[[float, int], None]) -> Iterator[bytes]:
        ring, size = self._programs.map("events"), 0
        with contextlib.suppress(KeyboardInterrupt):
            while (past := (time.monotonic_ns() - begin) / 1e9) < seconds:
                told(past, size)
                time.sleep(min(READ_SECONDS, seconds - past))
                found = ring.drain()
                size += len(found)
                yield found

    def _lost(self) -> int:
        return int.from_bytes(self._programs.map("lost").lookup(_WORD.pack(0)) or b"", "little")

    def _gangs(self) -> dict[int, int]:
        members = self._programs.map("members").items()
        return {_WORD.unpack(tid)[0]: abi.GangMember.unpack(member).gang for tid, member in members}


def _cause(error: bpf.BpfError) -> str:
    return os.strerror(error.errno or 0)


def _process(tid: int) -> int:
    """Return the process of a thread, 0 for one that is gone."""
    try:
        lines = Path(f"/proc/{tid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Tgid:")), 0)


def _ran(threads: Mapping[int, int]) -> dict[int, float]:
    """Return the CPU seconds of each thread; 0 for one that is gone."""
    return {tid: read_thread(process, tid).cpu_seconds or 0.0 for tid, process in threads.items()}
