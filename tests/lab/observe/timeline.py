# SPDX-License-Identifier: Apache-2.0
"""The threads on each CPU for a fraction of a second, by the kernel's tracer."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

TRACE = Path("/sys/kernel/tracing/instances/gangd-demo")
BUFFER_KIB = 2048
LEAD_SECONDS = 0.15  # until the caller's own work is done
_SWITCH = re.compile(
    r"\[(?P<cpu>\d+)\] \S+ +(?P<time>\d+\.\d+): sched_switch: .*"
    r"prev_pid=(?P<prev>\d+) .* ==> .*next_pid=(?P<next>\d+) "
)


@dataclass(frozen=True)
class Stretch:
    """A vCPU without a break on a CPU. begin, end: microseconds since the recording began."""

    cpu: int
    begin: int
    end: int
    guest: int
    vcpu: int


def record(
    threads: Mapping[int, tuple[int, int]], seconds: float, sleep: Callable[[float], None] = time.sleep
) -> list[Stretch]:
    """Record `seconds` of the threads: id -> (guest, vCPU), both numbers. Raises OSError."""
    TRACE.mkdir(exist_ok=True)
    try:
        switch = TRACE / "events/sched/sched_switch"
        (TRACE / "buffer_size_kb").write_text(str(BUFFER_KIB))
        (TRACE / "trace_clock").write_text("mono")
        (switch / "filter").write_text(" || ".join(f"prev_pid=={t} || next_pid=={t}" for t in threads))
        begin = time.monotonic() + LEAD_SECONDS
        (switch / "enable").write_text("1")
        sleep(LEAD_SECONDS + seconds)
        (switch / "enable").write_text("0")
        _refuse_lost_events()
        with (TRACE / "trace").open() as trace:
            return list(stretches(trace, threads, begin, begin + seconds))
    finally:
        TRACE.rmdir()


def _refuse_lost_events() -> None:
    for stats in TRACE.glob("per_cpu/cpu*/stats"):
        lost = re.search(r"^overrun: (\d+)", stats.read_text(), re.MULTILINE)
        if lost and int(lost[1]):
            raise OSError(f"the tracer lost {lost[1]} context switches of {stats.parent.name}")


def stretches(
    trace: Iterator[str] | Sequence[str], threads: Mapping[int, tuple[int, int]], begin: float, end: float
) -> Iterator[Stretch]:
    """Yield the stretches that `threads` ran by the lines of a trace, cut to begin .. end."""
    since: dict[int, tuple[int, float]] = {}  # by CPU: the thread of ours that is on it
    seen: set[int] = set()

    def done(cpu: int, tid: int, start: float, stop: float) -> Iterator[Stretch]:
        first, last = max(start, begin), min(stop, end)
        if first < last:
            yield Stretch(cpu, round((first - begin) * 1e6), round((last - begin) * 1e6), *threads[tid])

    for line in trace:
        found = _SWITCH.search(line)
        if not found:
            continue
        cpu, now = int(found["cpu"]), float(found["time"])
        prev, following = int(found["prev"]), int(found["next"])
        if prev in threads:
            # The first thread seen to leave a CPU has been on it since before the beginning.
            tid, start = since.pop(cpu, (prev, now if cpu in seen else begin))
            yield from done(cpu, tid, start, now)
        seen.add(cpu)
        if following in threads:
            since[cpu] = following, now
    for cpu, (tid, start) in since.items():
        yield from done(cpu, tid, start, end)
