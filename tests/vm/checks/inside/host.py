# SPDX-License-Identifier: Apache-2.0
"""The host's own accounts, none of them gangd's: sched_ext's state, loaded programs, and a trace of runs
and PAUSE exits of threads, from which co-run time, starts and LHP are computed a second time."""

from __future__ import annotations

import bisect
import itertools
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
OURS = re.compile(r"gang_|set_(gang|turns)|add_cpu|refuse_|trace_|on_(switch|wakeup|task_exit|exit|deadline)")

_LINE = re.compile(r"-(\d+) +\[(\d+)\] \S+ +(\d+\.\d+): (\w+): (.*)")
_SWITCH = re.compile(r"prev_pid=(\d+) prev_prio=-?\d+ prev_state=(\S+) ==> .* next_pid=(\d+) ")
_WAKEUP = re.compile(r" pid=(\d+) ")

_LOST = re.compile(r"^(overrun|commit overrun|dropped events): (\d+)$", re.MULTILINE)

RUNNING, WAITING, BLOCKED, WOKEN, PAUSED = "running", "waiting", "blocked", "woken", "paused"
_NO_STATE = (WOKEN, PAUSED)
_PAUSE = "exit_reason==0x77 && isa==2 || exit_reason==40 && isa==1"  # SVM's and VMX's
BUFFER_KB = 16384  # a CPU
# The tracer may see a strict gang beside another guest for so long, and so often in a second of members' time
# for longer than two CPUs' clocks differ (twice qemu.LOCKSTEP_NS, in virtual time). Seen: 8 us.
TIE_SECONDS = 0.000015  # a CPU's clock is up to 10 us ahead (lab/qemu.py), and recording takes some
OVERLAP_SECONDS, CLOCKS_SECONDS, OVERLAPS_PER_SECOND = 0.0001, 0.00002, 1


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
    """The trace says this of one guest, in seconds. waits: by thread, runnable and off-CPU."""

    run: float = 0.0
    corun: float = 0.0
    waits: dict[int, float] = field(default_factory=dict)

    @property
    def share(self) -> float:
        """corun as a share of run."""
        return self.corun / self.run if self.run else 0.0


@dataclass(frozen=True)
class Event:
    """A thread of ours changes state, or takes a PAUSE exit. cpu: where that was recorded."""

    time: float
    tid: int
    state: str
    cpu: int = 0


@dataclass(frozen=True)
class Beside:
    """A guest beside others, in seconds: each time one of its threads was on CPU while a foreign one was on
    the same core, how long that was; and for how long its threads were on CPU in all."""

    overlaps: list[float]
    ran: float

    @property
    def share(self) -> float:
        """The overlaps take this share of the time that its threads were on CPU."""
        return sum(self.overlaps) / self.ran

    def no_longer_than_a_switch(self) -> None:
        """Fail unless the thread that had to go was leaving each time: the tracer tells of a CPU after the
        scheduler let it go."""
        assert max(self.overlaps, default=0.0) <= OVERLAP_SECONDS, str(self)
        longer = [length for length in self.overlaps if length > CLOCKS_SECONDS]
        assert len(longer) <= OVERLAPS_PER_SECOND * self.ran, str(self)

    def __str__(self) -> str:
        total, longest = sum(self.overlaps), max(self.overlaps, default=0.0)
        return (
            f"{len(self.overlaps)} times beside another, {total * 1e3:.2f} ms of {self.ran:.2f} s, "
            f"{longest * 1e6:.0f} us at the longest"
        )


class Traced:
    """Context switches and wakeups of some threads, recorded by the kernel's tracer."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def account(self, tids: Iterable[int], since: float = 0.0, until: float = math.inf) -> Account:
        """The account of a guest with these vCPU threads, between two moments of now()."""
        members = set(tids)
        mine = [event for event in self._of(members) if event.time <= until]
        # A thread's state before its first event is unknown: the account begins when all have been seen.
        firsts = {event.tid: event.time for event in reversed(mine)}
        found = Account(waits=dict.fromkeys(members, 0.0))
        state = dict.fromkeys(members, BLOCKED)
        begin = max([since, *firsts.values()])
        last = begin
        for event in mine:
            if event.time > begin:
                _add(found, state, event.time - last)
                last = event.time
            _apply(state, event)
        return found

    def starts(self, tids: Iterable[int]) -> list[float | None]:
        """Return, for each time a guest of these threads came from no CPU at all, the seconds until none of
        them waited any more; None where it had left its CPUs before. A guest stays where one of its threads
        hands its CPU to another one, as a thread that yields does."""
        members = set(tids)
        mine = self._of(members)
        state, begin, found = dict.fromkeys(members, ""), None, list[float | None]()
        present = False
        for event, following in itertools.zip_longest(mine, mine[1:]):
            _apply(state, event)
            if "" in state.values():
                present = RUNNING in state.values()
            if "" in state.values() or _hands_over(event, following):
                continue
            if RUNNING not in state.values():
                found += [None] if begin is not None else []
                begin, present = None, False
                continue
            if not present:
                begin, present = event.time, True
            if begin is not None and WAITING not in state.values():
                found.append(event.time - begin)
                begin = None
        return found

    def pauses(self, tids: Iterable[int]) -> tuple[int, int]:
        """PAUSE exits of a guest whose threads were all off their CPUs, and blocked, when the trace began;
        and how many of them were taken while another thread of it waited."""
        members = set(tids)
        state = dict.fromkeys(members, BLOCKED)
        pauses = preempted = 0
        for event in self._of(members):
            pauses += event.state == PAUSED
            preempted += event.state == PAUSED and WAITING in state.values()
            _apply(state, event)
        return pauses, preempted

    def ties(self, tids: Iterable[int]) -> int:
        """PAUSE exits within TIE_SECONDS of when another thread of the guest came on or off its CPU: which of
        the two was first depends on who records them."""
        mine = self._of(set(tids))
        moves = {tid: [e.time for e in mine if e.tid != tid and e.state in (RUNNING, WAITING, BLOCKED)]
                 for tid in tids}  # fmt: skip
        exits = [event for event in mine if event.state == PAUSED]
        return sum(_near(moves[event.tid], event.time) for event in exits)

    def switches(self, tids: Iterable[int]) -> int:
        """How often a thread of the guest came on its CPU or off it."""
        return sum(event.state in (RUNNING, WAITING, BLOCKED) for event in self._of(set(tids)))

    def _of(self, members: set[int]) -> list[Event]:
        return [event for event in self.events if event.tid in members]

    def beside(self, members: Iterable[int], others: Iterable[int]) -> Beside:
        """Return how a guest's threads and foreign ones shared cores."""
        on_cpu, foreign = self.on_cpu(members), self.on_cpu(others)
        found = [
            length
            for cpu, mine in on_cpu.items()
            for length in overlaps(mine, foreign.get(cpu ^ 1, []))  # as lab/qemu.py makes cores
        ]
        return Beside(found, sum(end - begin for mine in on_cpu.values() for begin, end in mine))

    def on_cpu(self, tids: Iterable[int]) -> dict[int, list[tuple[float, float]]]:
        """Return by CPU the intervals (begin, end) in which any of these threads was on it, in order."""
        found: dict[int, list[tuple[float, float]]] = defaultdict(list)
        since: dict[int, float] = {}
        for event in self._of(set(tids)):
            if event.state == RUNNING:
                since[event.tid] = event.time
            elif event.state not in _NO_STATE and event.tid in since:
                found[event.cpu].append((since.pop(event.tid), event.time))
        return found


def _near(moments: list[float], time: float) -> bool:
    """True if one of the moments, which are in order, is within TIE_SECONDS of `time`."""
    return bisect.bisect(moments, time - TIE_SECONDS) < bisect.bisect(moments, time + TIE_SECONDS)


def overlaps(one: list[tuple[float, float]], two: list[tuple[float, float]]) -> list[float]:
    """Return the lengths of the overlaps of two lists of intervals, each in order."""
    found, first, second = list[float](), 0, 0
    while first < len(one) and second < len(two):
        both = min(one[first][1], two[second][1]) - max(one[first][0], two[second][0])
        found += [both] if both > 0 else []
        if one[first][1] < two[second][1]:
            first += 1
        else:
            second += 1
    return found


def _hands_over(event: Event, following: Event | None) -> bool:
    """True if one switch takes a thread of the guest off its CPU and puts the other one there."""
    return bool(following) and (following.time, following.cpu, following.state) == (
        event.time,
        event.cpu,
        RUNNING,
    )


def _apply(state: dict[int, str], event: Event) -> None:
    if event.state not in _NO_STATE:
        state[event.tid] = event.state
    elif event.state == WOKEN and state[event.tid] == BLOCKED:  # else woken before it had left its CPU
        state[event.tid] = WAITING


def _add(found: Account, state: Mapping[int, str], seconds: float) -> None:
    states = list(state.values())
    if RUNNING in states:
        found.run += seconds
        found.corun += seconds if WAITING not in states else 0.0
    for tid, now in state.items():
        if now == WAITING:
            found.waits[tid] += seconds


@contextmanager
def traced(tids: Iterable[int], pauses: bool = False) -> Iterator[Traced]:
    """Record while the body runs; the events are there afterwards. One that was lost is a failure.

    pauses: their PAUSE exits, too.
    """
    members = sorted(tids)
    TRACE.mkdir(exist_ok=True)
    (TRACE / "buffer_size_kb").write_text(str(BUFFER_KB))
    (TRACE / "trace_clock").write_text("mono")
    (TRACE / "trace").write_text("")
    filters = {
        "sched/sched_switch": " || ".join(f"prev_pid=={tid} || next_pid=={tid}" for tid in members),
        "sched/sched_wakeup": " || ".join(f"pid=={tid}" for tid in members),
    }
    if pauses:
        filters["kvm/kvm_exit"] = f"({_PAUSE}) && ({' || '.join(f'common_pid=={tid}' for tid in members)})"
    for event, words in filters.items():
        (TRACE / f"events/{event}/filter").write_text(words)
    found = Traced()
    _enable(filters, True)
    try:
        yield found
    finally:
        _enable(filters, False)
    lost = lost_events(path.read_text() for path in TRACE.glob("per_cpu/cpu*/stats"))
    assert not lost, f"the kernel's tracer lost {lost} events: what it says is not the whole truth"
    found.events += _events((TRACE / "trace").read_text(), set(members))


def lost_events(stats: Iterable[str]) -> int:
    """Return how many events the tracer's buffers did not take or overwrote, by their stats."""
    found = [_LOST.findall(text) for text in stats]
    assert found and all(len(lines) == 3 for lines in found), "the tracer does not say what it lost"
    return sum(int(number) for lines in found for _, number in lines)


def _enable(events: Iterable[str], on: bool) -> None:
    for event in events:
        (TRACE / f"events/{event}/enable").write_text("1" if on else "0")


def _events(text: str, members: set[int]) -> Iterator[Event]:
    for line in text.splitlines():
        found = _LINE.search(line)
        if not found:
            assert line.startswith("#") or not line.strip(), f"this line of the trace makes no sense: {line}"
            continue
        cpu, when = int(found[2]), float(found[3])
        if found[4] == "kvm_exit":
            yield Event(when, int(found[1]), PAUSED)
            continue
        if found[4] == "sched_wakeup":
            woken = _WAKEUP.search(f" {found[5]} ")
            assert woken, f"who was woken? {line}"
            if int(woken[1]) in members:
                yield Event(when, int(woken[1]), WOKEN)
            continue
        switch = _SWITCH.search(f"{found[5]} ")
        assert switch, f"who was switched? {line}"
        if int(switch[1]) in members:
            yield Event(when, int(switch[1]), WAITING if switch[2].startswith("R") else BLOCKED, cpu)
        if int(switch[3]) in members:
            yield Event(when, int(switch[3]), RUNNING, cpu)


def mount_debugfs() -> None:
    """Mount debugfs, where it is not mounted."""
    subprocess.run(["mount", "-t", "debugfs", "debugfs", "/sys/kernel/debug"], check=True)


def idle_seconds(cpu: int) -> float:
    """Return the seconds that a CPU has been idle since boot."""
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
    """Return systemctl's output; if it fails, raise with the last lines of its unit."""
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
