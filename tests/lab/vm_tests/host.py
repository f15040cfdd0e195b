# SPDX-License-Identifier: Apache-2.0
"""The host's own accounts, none of them gangd's: sched_ext's state, loaded programs, and a trace of
who was on CPU, from which co-run time is computed a second time."""

from __future__ import annotations

import json
import math
import re
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

SCX = Path("/sys/kernel/sched_ext")
TRACE = Path("/sys/kernel/tracing/instances/lab")
UNIT_LINES = 20  # of what a unit said last
OURS = re.compile(r"gang_|set_gang|set_domain|on_switch|on_wakeup|on_task_exit|on_exit|on_deadline")

_LINE = re.compile(r" (\d+\.\d+): (sched_switch|sched_wakeup): (.*)")
_SWITCH = re.compile(r"prev_pid=(\d+) prev_prio=-?\d+ prev_state=(\S+) ==> .* next_pid=(\d+) ")
_WAKEUP = re.compile(r" pid=(\d+) ")

RUNNING, WAITING, BLOCKED, WOKEN = "running", "waiting", "blocked", "woken"


def scheduler() -> str:
    """sched_ext's state; "disabled" also where the kernel has none."""
    state = SCX / "state"
    return state.read_text().strip() if state.exists() else "disabled"


def our_programs() -> list[str]:
    """Names of the BPF programs in the kernel that are gangd's."""
    listed = subprocess.run(["bpftool", "prog", "show", "-j"], capture_output=True, text=True, check=True)
    return sorted(
        name for program in json.loads(listed.stdout) if OURS.match(name := program.get("name", ""))
    )


@dataclass
class Account:
    """What the trace says of one guest, in seconds. waits: by thread, runnable and off-CPU."""

    run: float = 0.0
    corun: float = 0.0
    waits: dict[int, float] = field(default_factory=dict)

    @property
    def share(self) -> float:
        """corun as a share of run."""
        return self.corun / self.run if self.run else 0.0


@dataclass(frozen=True)
class Event:
    """One thread of ours changes state."""

    time: float
    tid: int
    state: str


class Traced:
    """Context switches and wakeups of some threads, recorded by the kernel's tracer."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def account(self, tids: Iterable[int], since: float = 0.0, until: float = math.inf) -> Account:
        """The account of a guest with these vCPU threads, between two moments of now()."""
        members = set(tids)
        mine = [event for event in self.events if event.tid in members and event.time <= until]
        # What a thread did before its first event is unknown: start when all have been seen.
        firsts = {event.tid: event.time for event in reversed(mine)}
        found = Account(waits=dict.fromkeys(members, 0.0))
        state = dict.fromkeys(members, BLOCKED)
        begin = max([since, *firsts.values()])
        last = begin
        for event in mine:
            if event.time > begin:
                _add(found, state, event.time - last)
                last = event.time
            if event.state != WOKEN:
                state[event.tid] = event.state
            elif state[event.tid] == BLOCKED:  # else it was woken before it had left its CPU
                state[event.tid] = WAITING
        return found

    def on_cpu(self) -> dict[int, list[tuple[float, float]]]:
        """By thread, when it was on a CPU: begin and end, in order."""
        found: dict[int, list[tuple[float, float]]] = defaultdict(list)
        since: dict[int, float] = {}
        for event in self.events:
            if event.state == RUNNING:
                since[event.tid] = event.time
            elif event.state != WOKEN and event.tid in since:
                found[event.tid].append((since.pop(event.tid), event.time))
        return found


def overlap(one: list[tuple[float, float]], two: list[tuple[float, float]]) -> float:
    """For how long both lists of intervals, each in order, had one under way."""
    total, first, second = 0.0, 0, 0
    while first < len(one) and second < len(two):
        total += max(0.0, min(one[first][1], two[second][1]) - max(one[first][0], two[second][0]))
        if one[first][1] < two[second][1]:
            first += 1
        else:
            second += 1
    return total


def _add(found: Account, state: Mapping[int, str], seconds: float) -> None:
    states = list(state.values())
    if RUNNING in states:
        found.run += seconds
        found.corun += seconds if WAITING not in states else 0.0
    for tid, now in state.items():
        if now == WAITING:
            found.waits[tid] += seconds


@contextmanager
def traced(tids: Iterable[int]) -> Iterator[Traced]:
    """Record while the body runs; the events are there afterwards."""
    members = sorted(tids)
    TRACE.mkdir(exist_ok=True)
    (TRACE / "buffer_size_kb").write_text("8192")
    (TRACE / "trace_clock").write_text("mono")
    (TRACE / "trace").write_text("")
    switch = " || ".join(f"prev_pid=={tid} || next_pid=={tid}" for tid in members)
    (TRACE / "events/sched/sched_switch/filter").write_text(switch)
    (TRACE / "events/sched/sched_wakeup/filter").write_text(" || ".join(f"pid=={tid}" for tid in members))
    found = Traced()
    _enable(True)
    try:
        yield found
    finally:
        _enable(False)
    found.events += _events((TRACE / "trace").read_text(), set(members))


def _enable(on: bool) -> None:
    for event in ("sched_switch", "sched_wakeup"):
        (TRACE / f"events/sched/{event}/enable").write_text("1" if on else "0")


def _events(text: str, members: set[int]) -> Iterator[Event]:
    for line in text.splitlines():
        found = _LINE.search(line)
        if not found:
            continue
        when = float(found[1])
        if found[2] == "sched_wakeup":
            woken = _WAKEUP.search(f" {found[3]} ")
            if woken and int(woken[1]) in members:
                yield Event(when, int(woken[1]), WOKEN)
            continue
        switch = _SWITCH.search(f"{found[3]} ")
        if not switch:
            continue
        if int(switch[1]) in members:
            yield Event(when, int(switch[1]), WAITING if switch[2].startswith("R") else BLOCKED)
        if int(switch[3]) in members:
            yield Event(when, int(switch[3]), RUNNING)


def idle_seconds(cpu: int) -> float:
    """How long a CPU has been idle since boot."""
    for line in Path("/proc/stat").read_text().splitlines():
        if line.startswith(f"cpu{cpu} "):
            return sum(map(int, line.split()[4:6])) / 100
    raise AssertionError(f"there is no CPU {cpu}")


def processor(pid: int, tid: int) -> int:
    """The CPU a thread runs on or waits for: field 39 of its stat (proc(5)), the 37th behind the name."""
    return int(Path(f"/proc/{pid}/task/{tid}/stat").read_text().rpartition(")")[2].split()[36])


def run_delay(pid: int, tid: int) -> float:
    """Seconds a thread was runnable and waited, by the kernel's own account."""
    return int(Path(f"/proc/{pid}/task/{tid}/schedstat").read_text().split()[1]) / 1e9


def systemctl(*words: str) -> str:
    """What systemctl prints; fails when it does, with what its unit said last."""
    done = subprocess.run(["systemctl", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        said = "\n".join(journal(words[-1]).splitlines()[-UNIT_LINES:])
        raise AssertionError(f"systemctl {' '.join(words)}: {done.stderr or done.stdout}\n{said}")
    return done.stdout.strip()


def journal(unit: str = "gangd") -> str:
    """Everything a unit said since boot."""
    words = ["journalctl", "-u", unit, "--no-pager", "-o", "cat"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def now() -> float:
    """Seconds, monotonic."""
    return time.monotonic()
