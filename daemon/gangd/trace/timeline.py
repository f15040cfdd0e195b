# SPDX-License-Identifier: Apache-2.0
"""Events become a timeline: which vCPU ran where and when, who waited, whose turn it was. Pure.

All times are microseconds since the recording began. A guest is a number, its place in a list of names.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from gangd.bpf.abi import TraceKind as Kind
from gangd.trace.recorder import Event, Recording

Who = tuple[int, int]  # guest, vCPU
_RUNS, _WAITS, _SLEEPS = "runs", "waits", "sleeps"
_AFTER = {Kind.RUN: _RUNS, Kind.WAIT: _WAITS, Kind.SLEEP: _SLEEPS}
# The state in which a thread was that begins with this event.
_BEFORE = {Kind.WAIT: _RUNS, Kind.SLEEP: _RUNS, Kind.PAUSE: _RUNS, Kind.YIELD: _RUNS, Kind.WAKE: _SLEEPS}


@dataclass(frozen=True)
class Run:
    """A vCPU without a break on a CPU."""

    cpu: int
    begin: float
    end: float
    guest: int
    vcpu: int


@dataclass(frozen=True)
class Wait:
    """A vCPU that wants a CPU and has none."""

    begin: float
    end: float
    guest: int
    vcpu: int


@dataclass(frozen=True)
class Turn:
    """A turn of a guest: until its time is over, its next one begins, or none of its vCPUs wants to run."""

    begin: float
    end: float
    guest: int


@dataclass(frozen=True)
class Moment:
    """A vCPU took a PAUSE exit, or KVM had it yield. lhp: a sibling was waiting for a CPU."""

    time: float
    cpu: int
    guest: int
    vcpu: int
    lhp: bool


@dataclass(frozen=True)
class Share:
    """A guest in all of the recording, in seconds of its vCPUs. corun: the share of the time in which one
    ran in which none waited, None if none ran."""

    run: float
    wait: float
    corun: float | None
    turns: int
    pauses: int
    lhps: int
    yields: int


@dataclass(frozen=True)
class Timeline:
    """length: of the recording."""

    length: float
    runs: tuple[Run, ...] = ()
    waits: tuple[Wait, ...] = ()
    turns: tuple[Turn, ...] = ()
    pauses: tuple[Moment, ...] = ()
    yields: tuple[Moment, ...] = ()

    def vcpus(self) -> list[Who]:
        """Everybody who ran or waited."""
        found: list[Run | Wait] = [*self.runs, *self.waits]
        return sorted({(one.guest, one.vcpu) for one in found})

    def shares(self, guests: int) -> list[Share]:
        """The account of each guest."""
        return [self._share(guest) for guest in range(guests)]

    def _share(self, guest: int) -> Share:
        runs, waits = _of(self.runs, guest), _of(self.waits, guest)
        pauses = _of(self.pauses, guest)
        return Share(
            run=sum(run.end - run.begin for run in runs) / 1e6,
            wait=sum(wait.end - wait.begin for wait in waits) / 1e6,
            corun=_corun(runs, waits),
            turns=len(_of(self.turns, guest)),
            pauses=len(pauses),
            lhps=sum(pause.lhp for pause in pauses),
            yields=len(_of(self.yields, guest)),
        )

    def window(self, begin: float, length: float) -> Timeline:
        """A part of it, as a timeline of its own."""
        end = begin + length
        return Timeline(
            length,
            tuple(_cut(self.runs, begin, end)),
            tuple(_cut(self.waits, begin, end)),
            tuple(_cut(self.turns, begin, end)),
            tuple(replace(one, time=one.time - begin) for one in self.pauses if begin <= one.time < end),
            tuple(replace(one, time=one.time - begin) for one in self.yields if begin <= one.time < end),
        )


_Span = TypeVar("_Span", Run, Wait, Turn)
_Any = TypeVar("_Any", Run, Wait, Turn, Moment)


def _of(found: Iterable[_Any], guest: int) -> list[_Any]:
    return [one for one in found if one.guest == guest]


def _cut(found: Iterable[_Span], begin: float, end: float) -> Iterator[_Span]:
    for one in found:
        first, last = max(one.begin, begin), min(one.end, end)
        if first < last:
            yield replace(one, begin=first - begin, end=last - begin)


def _corun(runs: Sequence[Run], waits: Sequence[Wait]) -> float | None:
    """Sweep over the edges of runs and waits, as the probes do (kernel-helper/core/lhp_word.h)."""
    edges = [(run.begin, 1, 0) for run in runs] + [(run.end, -1, 0) for run in runs]
    edges += [(wait.begin, 0, 1) for wait in waits] + [(wait.end, 0, -1) for wait in waits]
    running = waiting = 0
    together = all_of_it = last = 0.0
    for now, ran, waited in sorted(edges):
        if running:
            all_of_it += now - last
            together += (now - last) * (not waiting)
        last, running, waiting = now, running + ran, waiting + waited
    return together / all_of_it if all_of_it else None


@dataclass
class _Thread:
    """A thread while its events are read. state: None before the first one."""

    who: Who
    state: str | None = None
    since: float = 0.0
    cpu: int = 0


@dataclass
class _Reader:
    """The events so far. waiting: how many vCPUs of each guest wait."""

    threads: dict[int, _Thread]
    runs: list[Run] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    pauses: list[Moment] = field(default_factory=list)
    yields: list[Moment] = field(default_factory=list)
    waiting: dict[int, int] = field(default_factory=lambda: defaultdict(int))

    def read(self, event: Event, now: float) -> None:
        thread = self.threads.get(event.id)
        if thread is None:
            return
        kind = Kind(event.kind)
        if thread.state is None and kind in _BEFORE:
            thread.state, thread.cpu = _BEFORE[kind], event.cpu
        if kind in (Kind.PAUSE, Kind.YIELD):
            guest, vcpu = thread.who
            moment = Moment(now, event.cpu, guest, vcpu, self.waiting[guest] > 0)
            (self.pauses if kind is Kind.PAUSE else self.yields).append(moment)
        elif kind in _AFTER:
            self.enter(thread, _AFTER[kind], now, event.cpu)
        elif thread.state == _SLEEPS:  # it was woken; one that runs or waits is told so, too
            self.enter(thread, _WAITS, now, event.cpu)

    def enter(self, thread: _Thread, state: str | None, now: float, cpu: int) -> None:
        guest, vcpu = thread.who
        if thread.state == _RUNS and now > thread.since:
            self.runs.append(Run(thread.cpu, thread.since, now, guest, vcpu))
        if thread.state == _WAITS and now > thread.since:
            self.waits.append(Wait(thread.since, now, guest, vcpu))
        self.waiting[guest] += (state == _WAITS) - (thread.state == _WAITS)
        thread.state, thread.since, thread.cpu = state, now, cpu


def build(recording: Recording, threads: Mapping[int, Who]) -> Timeline:
    """The timeline of a recording. threads: whose vCPU each of them is."""
    length = (recording.end - recording.begin) / 1e3
    reader = _Reader({tid: _Thread(who) for tid, who in threads.items()})
    within = [event for event in recording.events if recording.begin <= event.time <= recording.end]
    within.sort(key=lambda event: event.time)  # stable: those of one CPU stay as they were
    for event in within:
        if event.kind != Kind.TURN:
            reader.read(event, (event.time - recording.begin) / 1e3)
    for tid, thread in reader.threads.items():
        if thread.state is None and tid in recording.steady:
            thread.state, thread.cpu = _RUNS, recording.steady[tid]
        reader.enter(thread, None, length, thread.cpu)
    turns = tuple(_turns(recording, threads, reader, length))
    return Timeline(
        length, tuple(reader.runs), tuple(reader.waits), turns, tuple(reader.pauses), tuple(reader.yields)
    )


def _turns(
    recording: Recording, threads: Mapping[int, Who], reader: _Reader, length: float
) -> Iterator[Turn]:
    """Yield the turns; one that began before the recording is cut."""
    guests = {gang: threads[tid][0] for tid, gang in recording.gangs.items() if tid in threads}
    opened = defaultdict(list)
    for event in sorted(recording.events):
        if event.kind == Kind.TURN and event.id in guests:
            begin = (event.time - recording.begin) / 1e3
            opened[guests[event.id]].append((begin, begin + event.length_us))
    for guest, found in opened.items():
        idle = _idle(guest, reader)
        for (begin, end), following in zip(found, [*found[1:], (length, length)], strict=True):
            slept = idle[bisect_right(idle, begin) :][:1] or [length]
            last = min(end, following[0], length, *slept)
            if max(begin, 0.0) < last:
                yield Turn(max(begin, 0.0), last, guest)


def _idle(guest: int, reader: _Reader) -> list[float]:
    """Return when the guest's last vCPU that wanted to run went to sleep."""
    wants: list[Run | Wait] = [*_of(reader.runs, guest), *_of(reader.waits, guest)]
    edges = [(one.begin, 1) for one in wants] + [(one.end, -1) for one in wants]
    wanting, found = 0, []
    for now, change in sorted(edges, key=lambda edge: (edge[0], -edge[1])):
        wanting += change
        if not wanting:
            found.append(now)
    return found
