# SPDX-License-Identifier: Apache-2.0
"""From events to who ran, who waited and whose turn it was."""

from __future__ import annotations

import pytest

from gangd.bpf.abi import TraceKind as Kind
from gangd.trace.recorder import Event, Recording
from gangd.trace.timeline import Moment, Run, Share, Timeline, Turn, Wait, build

THREADS = {101: (0, 0), 102: (0, 1), 201: (1, 0)}
BEGIN, MS = 5_000_000_000, 1_000_000


def event(ms: float, kind: Kind, tid: int, cpu: int = 0, length_us: int = 0) -> Event:
    return Event(BEGIN + round(ms * MS), tid, length_us, cpu, kind)


def built(
    *events: Event, gangs: dict[int, int] | None = None, steady: dict[int, int] | None = None
) -> Timeline:
    """The timeline of 10 ms."""
    recording = Recording(BEGIN, BEGIN + 10 * MS, list(events), 0, gangs or {}, steady or {}, ())
    return build(recording, THREADS)


@pytest.mark.parametrize(
    ("events", "runs", "waits"),
    [
        ([event(2, Kind.RUN, 101), event(5, Kind.SLEEP, 101)], [(2, 5)], []),
        ([event(2, Kind.RUN, 101)], [(2, 10)], []),  # it runs on at the end
        ([event(3, Kind.SLEEP, 101)], [(0, 3)], []),  # it ran when the recording began
        ([event(3, Kind.PAUSE, 101)], [(0, 10)], []),  # likewise
        ([event(3, Kind.WAIT, 101), event(4, Kind.RUN, 101)], [(0, 3), (4, 10)], [(3, 4)]),
        ([event(3, Kind.WAKE, 101), event(4, Kind.RUN, 101)], [(4, 10)], [(3, 4)]),
        ([event(2, Kind.RUN, 101), event(3, Kind.WAKE, 101)], [(2, 10)], []),  # who runs is not woken
        ([event(8, Kind.RUN, 999)], [], []),  # a stranger
        ([event(-1, Kind.RUN, 101), event(11, Kind.SLEEP, 101)], [], []),  # before it, and after
        # Events of several CPUs come in any order.
        ([event(6, Kind.SLEEP, 101, 1), event(2, Kind.RUN, 101, 1)], [(2, 6)], []),
    ],
)
def test_a_thread(events: list[Event], runs: list[tuple[int, int]], waits: list[tuple[int, int]]) -> None:
    """Every state is entered by an event; the first one tells of the state before it, too."""
    found = built(*events)
    assert [(run.begin / 1e3, run.end / 1e3) for run in found.runs] == runs
    assert [(wait.begin / 1e3, wait.end / 1e3) for wait in found.waits] == waits


def test_a_thread_without_events_ran_all_the_time() -> None:
    """A thread without events has run all the time if its CPU time says so; of others nothing is known."""
    assert built(steady={102: 3}).runs == (Run(3, 0, 10_000, 0, 1),)


def test_a_pause_is_preemption_while_a_sibling_waits() -> None:
    """A waiting vCPU of another guest has no part in it."""
    found = built(
        event(0, Kind.RUN, 101),
        event(0, Kind.RUN, 102, 1),
        event(1, Kind.WAIT, 201, 1),
        event(2, Kind.PAUSE, 101),
        event(3, Kind.WAIT, 102, 1),
        event(4, Kind.PAUSE, 101),
        event(5, Kind.YIELD, 101),
    )
    assert [pause.lhp for pause in found.pauses] == [False, True]
    assert found.yields == (Moment(5000, 0, 0, 0, True),)
    share, other = found.shares(2)
    assert share == Share(0.013, 0.007, pytest.approx(0.3), 0, 2, 1, 1)
    assert other.corun == 1.0 and other.wait == pytest.approx(0.009)


@pytest.mark.parametrize(
    ("others", "turns"),
    [
        ([], [(1, 5)]),
        ([event(3, Kind.TURN, 7, length_us=4000)], [(1, 3), (3, 7)]),  # the next one begins
        ([event(-2, Kind.TURN, 7, length_us=4000)], [(0, 1), (1, 5)]),  # it began before the recording
        ([event(8, Kind.TURN, 7, length_us=4000)], [(1, 5), (8, 10)]),
        ([event(3, Kind.TURN, 8, length_us=4000)], [(1, 5)]),  # of a gang that nobody traces
        ([event(2, Kind.SLEEP, 101)], [(1, 5)]),  # its sibling wants to run
        ([event(2, Kind.SLEEP, 101), event(3, Kind.SLEEP, 102)], [(1, 3)]),  # nobody does
    ],
)
def test_turns(others: list[Event], turns: list[tuple[int, int]]) -> None:
    """A turn lasts until its time is over, the next one begins, or all of the gang sleep."""
    running = [event(0, Kind.RUN, 101), event(0, Kind.RUN, 102, 1)]
    mine = event(1, Kind.TURN, 7, length_us=4000)
    found = built(*running, mine, *others, gangs={101: 7, 102: 7, 999: 8}).turns
    assert [(turn.begin / 1e3, turn.end / 1e3) for turn in found] == turns


def test_a_window_is_a_timeline() -> None:
    """The window cuts runs, waits and turns at its edges, and leaves out moments outside."""
    whole = Timeline(
        10_000,
        (Run(0, 0, 5000, 0, 0), Run(0, 5000, 6000, 1, 0)),
        (Wait(0, 2000, 1, 0),),
        (Turn(1000, 9000, 0),),
        (Moment(1500, 0, 0, 0, True), Moment(5500, 0, 1, 0, False)),
    )
    assert whole.window(2000, 3000) == Timeline(3000, (Run(0, 0, 3000, 0, 0),), (), (Turn(0, 3000, 0),))
    assert whole.window(1000, 1000).pauses == (Moment(500, 0, 0, 0, True),)


def test_nothing_ran() -> None:
    """A guest without a run has no share of running together."""
    assert built().shares(1) == [Share(0, 0, None, 0, 0, 0, 0)]
