# SPDX-License-Identifier: Apache-2.0
"""Tests of how the checks read a trace, without a VM: each test plants faults, and the checks see them."""

from __future__ import annotations

import pytest

from vm.checks.inside import host

SWITCH = (
    "   CPU 0/KVM-11  [000] d..2. {time}: sched_switch: prev_comm=CPU 0/KVM prev_pid={prev} prev_prio=120 "
    "prev_state={state} ==> next_comm=x next_pid={next} next_prio=120"
)
WAKEUP = "   <idle>-0  [001] dNh4. {time}: sched_wakeup: comm=CPU 1/KVM pid={pid} prio=120 target_cpu=001"
PAUSE = "   CPU 0/KVM-{tid}  [000] d..1. {time:.6f}: kvm_exit: vcpu 0 reason pause rip 0x1 info1 0 info2 0"
STATS = (
    "entries: 0\noverrun: {over}\ncommit overrun: 0\nbytes: 0\noldest event ts: 1.0\ndropped events: {drop}\n"
)


def switch(time: float, prev: int, state: str, next: int) -> str:
    return SWITCH.format(time=f"{time:.6f}", prev=prev, state=state, next=next)


def wakeup(time: float, pid: int) -> str:
    return WAKEUP.format(time=f"{time:.6f}", pid=pid)


def pause(time: float, tid: int) -> str:
    return PAUSE.format(time=time, tid=tid)


def traced(*lines: str) -> host.Traced:
    trace = host.Traced()
    trace.events += host._events("\n".join(["# tracer: nop", "", *lines]), {11, 12})
    return trace


def account(*lines: str) -> host.Account:
    trace = host.Traced()
    trace.events += host._events("\n".join(["# tracer: nop", *lines]), {11, 12})
    return trace.account([11, 12])


def test_corun_is_counted_when_nobody_waits() -> None:
    """Both on CPU: co-run. One runnable and off its CPU: run only. One blocked: co-run."""
    found = account(
        switch(1.0, 0, "R", 11),
        switch(1.0, 0, "R", 12),
        switch(2.0, 12, "R+", 99),
        switch(4.0, 99, "S", 12),
        switch(5.0, 12, "S", 99),
        switch(8.0, 11, "R", 99),
    )
    assert found.run == pytest.approx(7.0)
    assert found.corun == pytest.approx(1.0 + 1.0 + 3.0)
    assert found.share == pytest.approx(5 / 7)
    assert found.waits[12] == pytest.approx(2.0)


def test_a_wakeup_makes_a_blocked_thread_wait() -> None:
    """From the wakeup on, not from the switch; and a wakeup before it had left its CPU means nothing."""
    found = account(
        switch(1.0, 0, "R", 11),
        switch(1.0, 0, "R", 12),
        wakeup(1.5, 12),
        switch(2.0, 12, "D", 99),
        wakeup(3.0, 12),
        switch(5.0, 99, "R", 12),
        switch(6.0, 12, "S", 99),
    )
    assert found.waits[12] == pytest.approx(2.0)
    assert (found.run, found.corun) == (pytest.approx(5.0), pytest.approx(3.0))


def test_nothing_is_claimed_of_the_time_before_all_were_seen() -> None:
    """A thread's state before its first event is unknown."""
    found = account(switch(1.0, 0, "R", 11), switch(3.0, 0, "R", 12), switch(4.0, 12, "S", 0))
    assert found.run == pytest.approx(1.0)


def test_an_event_that_was_lost_is_counted() -> None:
    """Overwritten on one CPU, refused on another; a CPU that says nothing is no proof."""
    whole = STATS.format(over=0, drop=0)
    assert host.lost_events([whole, whole]) == 0
    assert host.lost_events([STATS.format(over=3, drop=0), STATS.format(over=0, drop=2)]) == 5
    for silent in ([], [whole, "entries: 0\n"]):
        with pytest.raises(AssertionError, match="does not say"):
            host.lost_events(silent)


def test_a_line_that_makes_no_sense_is_no_silence() -> None:
    """Half a line, or what the tracer writes where events are missing."""
    for line in ("CPU:1 [LOST 23 EVENTS]", switch(1.0, 11, "R", 12)[:-30], "no trace at all"):
        with pytest.raises(AssertionError):
            traced(line)


def test_a_start_lasts_until_nobody_waits() -> None:
    """From the first thread on a CPU to the last that wanted one; a start that never came to that is None."""
    trace = traced(
        switch(1.0, 11, "S", 0),  # both are known from here on
        switch(1.0, 12, "S", 0),
        wakeup(2.0, 11),
        wakeup(2.0, 12),
        switch(3.0, 0, "R", 11),
        switch(3.004, 0, "R", 12),
        switch(4.0, 11, "R", 0),
        switch(4.0, 12, "R", 0),
        switch(5.0, 0, "R", 12),  # alone, and off again
        switch(5.5, 12, "R", 0),
        switch(6.0, 0, "R", 12),
        switch(6.0005, 0, "R", 11),
    )
    first, second, third = trace.starts([11, 12])
    assert (first, second, third) == (pytest.approx(0.004), None, pytest.approx(0.0005))


def test_a_guest_stays_where_its_threads_take_turns_on_one_cpu() -> None:
    """A thread that yields to its sibling ends no start, and begins none: the guest came once, and late."""
    trace = traced(
        switch(1.0, 11, "R", 0),  # both are known from here on
        switch(1.0, 12, "R", 0),
        switch(2.0, 0, "R", 11),
        switch(2.0006, 11, "R", 12),
        switch(2.0012, 12, "R", 11),
        switch(2.004, 0, "R", 12),
        switch(3.0, 11, "R", 0),
        switch(3.0, 12, "R", 0),
        switch(4.0, 0, "R", 11),
        switch(4.0006, 11, "R", 12),
        switch(4.0012, 12, "R", 0),
    )
    first, second = trace.starts([11, 12])
    assert (first, second) == (pytest.approx(0.004), None)


def test_a_halted_thread_is_not_waited_for() -> None:
    """A start is over at once if one thread is on CPU and the other is blocked."""
    trace = traced(switch(1.0, 11, "S", 0), switch(1.0, 12, "S", 0), wakeup(2.0, 11), switch(3.0, 0, "R", 11))
    assert trace.starts([11, 12]) == [0.0]


def test_a_pause_is_lhp_while_a_sibling_waits() -> None:
    """Not while it runs, and not while it sleeps."""
    trace = traced(
        wakeup(0.5, 11),
        switch(1.0, 0, "R", 11),
        pause(1.1, 11),  # the other one sleeps
        wakeup(1.2, 12),
        pause(1.3, 11),
        pause(1.4, 11),
        switch(1.5, 0, "R", 12),
        pause(1.6, 11),
        switch(1.7, 12, "R+", 0),
        pause(1.8, 11),
    )
    assert trace.pauses([11, 12]) == (5, 3)
    assert trace.ties([11, 12]) == 0


def test_an_exit_beside_a_siblings_switch_is_a_tie() -> None:
    """On either side of it; its own thread's switch decides nothing."""
    near, far = host.TIE_SECONDS * 0.9, host.TIE_SECONDS * 1.1
    pauses = [pause(2.0 - far, 11), pause(2.0 - near, 11), pause(2.0 + near, 11), pause(2.0 + far, 11)]
    switches = [switch(1.0, 0, "R", 11), switch(2.0, 12, "R", 0)]
    lines = sorted([*switches, *pauses], key=lambda line: float(line.split(":")[0].split()[-1]))
    assert traced(*lines).ties([11, 12]) == 2
    assert traced(switch(1.0, 0, "R", 11), pause(1.0 + near, 11)).ties([11, 12]) == 0


def test_a_core_that_is_shared_too_long_or_too_often_is_seen() -> None:
    """An overlap is how long both were there; on one CPU, or on another core, there is none."""

    def with_the_other_on(cpu: int) -> host.Beside:
        there = [switch(0.9990, 0, "R", 12), switch(1.5, 12, "R", 0)]
        there = [line.replace("[000]", f"[{cpu:03}]") for line in there]
        lines = [switch(0.0, 0, "R", 11), there[0], switch(1.0, 11, "R", 0), there[1]]
        return traced(*lines).beside([11], [12])

    beside = with_the_other_on(1)
    assert beside.overlaps == [pytest.approx(0.001)]
    assert (beside.ran, beside.share) == (pytest.approx(1.0), pytest.approx(0.001))
    assert with_the_other_on(2).overlaps == with_the_other_on(0).overlaps == []
    short = host.OVERLAP_SECONDS / 2
    host.Beside([host.CLOCKS_SECONDS] * 1000, 1.0).no_longer_than_a_switch()
    host.Beside([short] * host.OVERLAPS_PER_SECOND, 1.0).no_longer_than_a_switch()
    for found in ([short] * (host.OVERLAPS_PER_SECOND + 1), [2 * host.OVERLAP_SECONDS]):
        with pytest.raises(AssertionError, match="beside another"):
            host.Beside(found, 1.0).no_longer_than_a_switch()
