# SPDX-License-Identifier: Apache-2.0
"""The model of sched_ext against what kernel/sched/ext.c and core.c of 6.18 do, fact by fact."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from gangsim.costs import Costs
from gangsim.errors import Ejected
from gangsim.scenario import Group, Guest, Task
from unit.sim.conftest import FREE, Event, Probe

WAKEUP, PREEMPT, LAST, SELECTED = 1, 1 << 32, 1 << 41, 1 << 10
NAP = Task("cycle", work_us=1000, sleep_us=5000)
BOUND = Task("cycle", work_us=1000, sleep_us=5000, cpus=(0,))
HOG = Task("hog")


def names(events: list[Event]) -> list[str]:
    return [name for _, name, *_ in events]


def of(events: list[Event], name: str) -> list[Event]:
    return [event for event in events if event[1] == name]


def test_a_wakeup_asks_for_a_cpu_then_queues_then_runs(probe: Probe) -> None:
    """select_cpu, runnable, enqueue with the wakeup's flags, then dispatch on the CPU, then running."""
    events = probe(NAP, cpus=2)
    assert names(events)[:5] == ["select", "runnable", "enqueue", "dispatch", "running"]
    assert events[0][4] == 8 and events[2][4] == WAKEUP | SELECTED


def test_a_task_with_one_cpu_is_not_asked_for(probe: Probe) -> None:
    """select_task_rq() of the core does not call the class."""
    events = probe(BOUND, cpus=2)
    assert not of(events, "select") and of(events, "enqueue")[0][4] == WAKEUP


def test_a_task_that_sleeps_stops_before_the_next_is_chosen(probe: Probe) -> None:
    """The order is stopping(not runnable), quiescent, dispatch with a prev that is no longer queued."""
    events = probe(BOUND)
    at = names(events).index("stopping")
    assert names(events)[at : at + 3] == ["stopping", "quiescent", "dispatch"]
    assert events[at][4] == 0 and events[at + 2][4] == 0 and events[at + 2][2] == events[at][2]


def test_a_preempted_task_is_queued_before_the_next_runs(probe: Probe) -> None:
    """dispatch has a prev that is runnable and not queued; it stops, is enqueued, and the other runs."""
    events = probe(HOG, HOG)
    at = next(i for i, event in enumerate(events) if event[1] == "stopping")
    assert names(events)[at - 1 : at + 3] == ["dispatch", "stopping", "enqueue", "running"]
    assert events[at - 1][4] == 1 and events[at][4] == 1 and events[at + 1][4] == 0
    assert events[at + 2][2] != events[at][2]


def test_a_slice_ends_with_a_tick(probe: Probe) -> None:
    """Slices of 1 ms with ticks of 4 ms: who runs changes every 4 ms, at the phase of that CPU."""
    starts = [now for now, *_ in of(probe(HOG, HOG, defines="SLICE=1000000"), "running")]
    gaps = [round(later - sooner) for sooner, later in itertools.pairwise(starts[1:])]
    assert len(gaps) > 10 and set(gaps) == {4000}


@pytest.mark.parametrize(("flags", "last"), [(0, False), (2, True)])
def test_a_lone_task_goes_on_unless_enq_last(probe: Probe, flags: int, last: bool) -> None:
    """The kernel keeps a lone task; with SCX_OPS_ENQ_LAST it calls enqueue(), and the CPU asks again."""
    events = probe(HOG, defines=f"SLICE=1000000 OPS_FLAGS={flags}", ms=50)
    assert any(event[4] & LAST for event in of(events, "enqueue")) == last
    assert len(of(events, "running")) == 1 or last


def test_dispatch_that_refills_prev_keeps_it(probe: Probe) -> None:
    """A task that it moved to the local queue waits there for a slice, and runs without another dispatch."""
    events = probe(HOG, HOG, defines="SLICE=1000000 KEEP")
    first, second = of(events, "running")[:2]
    asked = [event for event in of(events, "dispatch") if first[0] < event[0] <= second[0]]
    assert len(asked) == 1 and second[0] - asked[0][0] == pytest.approx(4000)


def test_preempt_takes_the_cpu_at_once(probe: Probe) -> None:
    """The slice of who runs is gone and the CPU is told, which is a matter of microseconds, not of a tick."""
    events = probe(HOG, BOUND, defines="LOCAL=ENQ_PREEMPT")
    napper = sleeper(events)
    woken = [now for now, _, pid, *_ in of(events, "enqueue") if pid == napper and now > 5000]
    ran = [now for now, _, pid, *_ in of(events, "running") if pid == napper and now > 5000]
    assert ran[0] - woken[0] < 5


@pytest.mark.parametrize("forgets", [True, False])
def test_preempt_on_the_way_to_another_cpu(probe: Probe, forgets: bool) -> None:
    """Before 7.0 it is lost, and the task waits there for the end of a slice; since, it interrupts."""
    hogs = (Task("hog", cpus=(0,)), Task("hog", cpus=(1,)))
    nap = replace(BOUND, cpus=(0, 1), start_ms=2)
    costs = replace(FREE, send_us=10)
    events = probe(*hogs, nap, cpus=2, defines="ELSEWHERE SLICE=8000000", costs=costs, forgets=forgets)
    woken = next(event for event in of(events, "enqueue") if event[2] == 1002)
    ran = next(event for event in of(events, "running") if event[2] == 1002)
    assert (woken[3], ran[3]) == (0, 1)
    late = ran[0] - woken[0]
    assert late > 1000 if forgets else late == pytest.approx(13, abs=0.01)


def sleeper(events: list[Event]) -> int:
    """Return the pid of the task that sleeps."""
    return of(events, "quiescent")[0][2]


def test_without_preempt_it_waits_in_the_local_queue(probe: Probe) -> None:
    """Until the slice of who runs is over; dispatch() is not asked then."""
    events = probe(HOG, BOUND, defines="LOCAL=0 SLICE=8000000")
    napper = sleeper(events)
    woken = [now for now, _, pid, *_ in of(events, "enqueue") if pid == napper and now > 15000]
    ran = [now for now, _, pid, *_ in of(events, "running") if pid == napper and now > woken[0]]
    assert ran[0] - woken[0] > 1000
    at = next(i for i, event in enumerate(events) if event[1] == "running" and event[0] == ran[0])
    assert names(events)[at - 2 : at] == ["stopping", "enqueue"] and names(events)[at - 3] != "dispatch"


def test_direct_insertion_skips_enqueue(probe: Probe) -> None:
    """A task that select_cpu() put into the local queue is not enqueued, and needs no dispatch."""
    events = probe(NAP, cpus=2, defines="DIRECT")
    assert names(events)[:3] == ["select", "runnable", "running"]


@pytest.mark.parametrize(("flags", "elsewhere"), [(0, False), (32, True)])
def test_a_wakeup_may_be_left_to_the_idle_cpu(probe: Probe, flags: int, elsewhere: bool) -> None:
    """A CPU that idles does the wakeup itself with SCX_OPS_ALLOW_QUEUED_WAKEUP; else it hears of the task.

    Either way an interrupt is between the wakeup and the task's running. The task sleeps on CPU 0, which a
    hog takes meanwhile, so it wakes once on CPU 0 for CPU 1.
    """
    nap = replace(BOUND, cpus=(0, 1))
    late = Task("hog", cpus=(0,), start_ms=3)
    events = [e for e in probe(nap, late, cpus=2, defines=f"OPS_FLAGS={flags} DIRECT") if e[2] == 1000]
    woken = [at for at, event in enumerate(events) if event[1] == "select"]
    (at,) = [at for at in woken if events[at][3] == 0 and events[at + 2][3] == 1]
    assert names(events)[at : at + 3] == ["select", "runnable", "running"]
    asked, queued, ran = events[at : at + 3]
    assert queued[3] == int(elsewhere)
    assert queued[0] - asked[0] == pytest.approx(3.5 if elsewhere else 0, abs=0.01)
    assert ran[0] - asked[0] == pytest.approx(3.5, abs=0.01)


@pytest.mark.parametrize(("kick", "stops"), [("KICK_PREEMPT", True), ("0", False), ("KICK_IDLE", False)])
def test_kicks(probe: Probe, kick: str, stops: bool) -> None:
    """Only KICK_PREEMPT takes the CPU from who has slice left; the timer is late by what is said."""
    events = probe(HOG, HOG, defines=f"ALARM=10000000 KICK={kick}", ms=15)
    (fired,) = of(events, "timer")
    assert fired[0] == pytest.approx(10_003, abs=0.01) and fired[4] == 1
    stopped = [now for now, *_ in of(events, "stopping") if now > fired[0]]
    assert bool(stopped) == stops
    assert not stopped or stopped[0] - fired[0] < 5


def test_a_lost_task_ejects_the_scheduler(probe: Probe) -> None:
    """The watchdog sees a task that was enqueued and never ran."""
    with pytest.raises(Ejected, match=r"task0\[1000\] failed to run for 0\.7"):
        probe(HOG, defines="LOST", ms=1000)


def test_a_scheduler_that_goes_round_is_found_out(probe: Probe) -> None:
    """A scheduler that kicks itself for nothing, at no price, is found out."""
    with pytest.raises(Ejected, match="no time passes"):
        probe(HOG, defines="ROUND", costs=replace(FREE, kick_us=0, send_us=0))


@pytest.mark.parametrize(
    ("defines", "text"),
    [
        ("MIXED", "already had (FIFO|PRIQ)-enqueued tasks"),
        ("NOWHERE", "non-existent DSQ 0x63"),
        ("TWICE", r"task1\[1001\] already direct-dispatched"),
        ("STOPPING_INSERTS", "kfunc with mask 0x6 called from an operation only allowing 0x10"),
        ("STOPPING_MOVES", "kfunc with mask 0x2 called from an operation only allowing 0x10"),
        ("STOPPING_KICKS", "PREEMPT/WAIT cannot be used with SCX_KICK_IDLE"),
    ],
)
def test_a_verdict_that_cannot_be_ejects_the_scheduler(probe: Probe, defines: str, text: str) -> None:
    """The scheduler is ejected with the kernel's own words."""
    with pytest.raises(Ejected, match=text):
        probe(*[HOG] * 4, defines=defines)


def test_groups_and_tasks_are_introduced_before_any_task_runs(probe: Probe) -> None:
    """init comes first, the cgroups from the root down, then each task: init_task, enable, set_weight."""
    groups = (Group("a", 300), Group("b", 50, "a"))
    events = probe(Task("hog", nice=-5, group="b"), defines="FROM_THE_START", groups=groups, ms=1)
    assert names(events)[:9] == ["init", *["cgroup_init"] * 5, "init_task", "enable", "set_weight"]
    assert [flags for *_, flags in of(events, "cgroup_init")] == [100, 100, 100, 300, 50]
    assert of(events, "set_weight")[0][4] == round(3121 * 100 / 1024)


def test_a_fork_and_an_exit(probe: Probe) -> None:
    """The child is introduced by its parent and queued without a wakeup; who exits is dismissed last."""
    events = probe(Task("chain", work_us=2000), cpus=2, ms=10)
    child = next(i for i, event in enumerate(events) if event[1] == "init_task")
    assert events[child][4] == 1
    later = [event for event in events[child:] if event[2] == events[child][2]]
    assert names(later)[:6] == ["init_task", "enable", "set_weight", "select", "runnable", "enqueue"]
    assert not later[5][4] & WAKEUP
    parent = [event for event in events if event[2] == events[0][2]]
    assert names(parent)[-5:-2] == ["stopping", "quiescent", "dispatch"]
    assert names(parent)[-2:] == ["disable", "exit_task"]


def test_decisions_cost_time(probe: Probe) -> None:
    """A dispatch of 100 us delays whom it chose by that."""
    free, dear = (
        probe(BOUND, costs=Costs(dispatch_us=price, call_us=0, queue_us=0, step_us=0)) for price in (0, 100)
    )
    first, second = ([now for now, *_ in of(events, "running")][:2] for events in (free, dear))
    # it ran for as long and slept for as long; the dispatch that found nobody cost nobody anything
    assert (second[1] - second[0]) - (first[1] - first[0]) == pytest.approx(100, abs=1)


def spinners(ple: bool) -> tuple[Guest, ...]:
    return tuple(Guest("barrier", 2, ple=ple) for _ in range(2))


@pytest.mark.parametrize("ple", [True, False])
def test_a_vcpu_that_spins_for_a_sibling_exits(probe: Probe, ple: bool) -> None:
    """A vCPU whose sibling waits for a CPU yields to it, at most every 20 us, if its guest has PLE."""
    events = probe(cpus=2, guests=spinners(ple), ms=60)
    yields: dict[int, list[float]] = {}
    for now, _, pid, _, flags in of(events, "yield"):
        assert abs(pid - flags) == 1
        yields.setdefault(pid, []).append(now)
    assert bool(yields) == ple
    for times in yields.values():
        assert all(later - sooner >= 20 for sooner, later in itertools.pairwise(times))


def test_a_yield_that_is_granted_lets_others_run(probe: Probe) -> None:
    """ops.yield() took the slice: schedule() follows."""
    events = probe(cpus=2, guests=spinners(True), defines="GIVE", ms=60)
    at = next(i for i, event in enumerate(events) if event[1] == "yield")
    assert names(events)[at + 1 : at + 3] == ["dispatch", "stopping"]


def test_a_run_begins_with_fresh_state(probe: Probe) -> None:
    """The scheduler's globals are those of one run, also of the same object in the same process."""
    assert probe(NAP, HOG, cpus=2) == probe(NAP, HOG, cpus=2)
