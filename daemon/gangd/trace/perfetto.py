# SPDX-License-Identifier: Apache-2.0
"""A timeline as a trace that ui.perfetto.dev opens, in the format of Chrome's trace viewer. Pure.

Tracks by CPU, then those of each guest: its turns, and each vCPU's runs and waits. A PAUSE exit that was
lock-holder preemption is an instant of its vCPU. Times are microseconds.
Source: "Trace Event Format", the Chromium project.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gangd.trace.timeline import Timeline

CPUS = 1  # the "process" whose "threads" are the CPUs; those of guests follow
TURNS = 0  # a guest's first "thread"

_Entry = dict[str, Any]


def document(timeline: Timeline, names: Sequence[str]) -> _Entry:
    """The whole trace, as JSON has it. names: of the guests, any text."""
    return {"displayTimeUnit": "ms", "traceEvents": list(_entries(timeline, names))}


def _entries(timeline: Timeline, names: Sequence[str]) -> Iterator[_Entry]:
    yield from _names(timeline, names)
    for run in timeline.runs:
        yield _slice(f"{names[run.guest]} {run.vcpu}", CPUS, run.cpu, run.begin, run.end)
        yield _slice("runs", _process(run.guest), 1 + run.vcpu, run.begin, run.end, cpu=run.cpu)
    for wait in timeline.waits:
        yield _slice("waits", _process(wait.guest), 1 + wait.vcpu, wait.begin, wait.end)
    for turn in timeline.turns:
        yield _slice("turn", _process(turn.guest), TURNS, turn.begin, turn.end)
    for text, moments in (("PAUSE exit", timeline.pauses), ("directed yield", timeline.yields)):
        for one in moments:
            name = "lock-holder preemption" if one.lhp and moments is timeline.pauses else text
            where = {"pid": _process(one.guest), "tid": 1 + one.vcpu}
            yield {"name": name, "ph": "i", "s": "t", "ts": one.time, **where, "args": {"cpu": one.cpu}}


def _process(guest: int) -> int:
    return CPUS + 1 + guest


def _names(timeline: Timeline, names: Sequence[str]) -> Iterator[_Entry]:
    yield _named("process_name", CPUS, 0, "CPUs")
    for cpu in sorted({run.cpu for run in timeline.runs}):
        yield _named("thread_name", CPUS, cpu, f"CPU {cpu}")
    for guest, name in enumerate(names):
        yield _named("process_name", _process(guest), 0, name)
        yield _named("thread_name", _process(guest), TURNS, "turns")
    for guest, vcpu in timeline.vcpus():
        yield _named("thread_name", _process(guest), 1 + vcpu, f"vCPU {vcpu}")


def _named(kind: str, process: int, thread: int, name: str) -> _Entry:
    return {"name": kind, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}


def _slice(name: str, process: int, thread: int, begin: float, end: float, **args: int) -> _Entry:
    made = {"name": name, "ph": "X", "pid": process, "tid": thread, "ts": begin, "dur": end - begin}
    return {**made, "args": args} if args else made
