# SPDX-License-Identifier: Apache-2.0
"""The tools of the checks, without a VM: a judge has to be judged, too."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from demo.machine import Sample, SharedMachine
from vm_tests import check, complaints, host, outside

SWITCH = (
    "   CPU 0/KVM-11  [000] d..2. {time}: sched_switch: prev_comm=CPU 0/KVM prev_pid={prev} prev_prio=120 "
    "prev_state={state} ==> next_comm=x next_pid={next} next_prio=120"
)
WAKEUP = "   <idle>-0  [001] dNh4. {time}: sched_wakeup: comm=CPU 1/KVM pid={pid} prio=120 target_cpu=001"


def switch(time: float, prev: int, state: str, next: int) -> str:
    return SWITCH.format(time=f"{time:.6f}", prev=prev, state=state, next=next)


def wakeup(time: float, pid: int) -> str:
    return WAKEUP.format(time=f"{time:.6f}", pid=pid)


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


def test_results_survive_a_lost_vm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each result is written as soon as it is known, failures with their trace."""
    monkeypatch.setattr(check, "SHARE", tmp_path)

    def check_good() -> None:
        check.note("fine")

    def check_bad() -> None:
        raise AssertionError("it is not so")

    def check_fatal() -> None:
        raise KeyboardInterrupt

    functions = {
        "check_good": check_good,
        "helper": check_fatal,
        "check_bad": check_bad,
        "check_last": check_fatal,
    }
    with pytest.raises(KeyboardInterrupt):
        check.run("script.py", functions)
    results = json.loads((tmp_path / "script.json").read_text())
    assert list(results) == ["check_good", "check_bad"]
    assert results["check_good"]["notes"] == ["fine"] and results["check_good"]["error"] is None
    assert "it is not so" in results["check_bad"]["error"]


@pytest.mark.parametrize(("reasons", "runs", "holds"), [((), 1, False), (("g stands still",), 2, True)])
def test_once_more_only_when_the_lab_is_to_blame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reasons: tuple[str, ...], runs: int, holds: bool
) -> None:
    """A failure with all guests alive stands; a dead guest earns one more attempt, and the report says so."""
    monkeypatch.setattr(check, "SHARE", tmp_path)
    made: list[str] = []

    def check_it() -> None:
        made.append("check")
        assert "fresh" in made

    check.run(
        "s",
        {"check_it": check_it},
        lost=lambda: next(iter(reasons), None),
        fresh=lambda: made.append("fresh"),
    )
    result = json.loads((tmp_path / "s.json").read_text())["check_it"]
    assert made.count("check") == runs
    assert (result["error"] is None) == holds
    assert any("stands still" in note for note in result["notes"]) == holds


def test_a_check_that_was_not_made_has_failed() -> None:
    """Never a pass, never a skip: the reason is why there is no result."""
    name = outside.checks("gang")[0]
    with pytest.raises(AssertionError, match="panicked"):
        outside.Boot({"gang": {}}, lost="the VM panicked").require("gang", name)
    with pytest.raises(AssertionError, match="was not made"):
        outside.Boot().require("gang", name)


@pytest.mark.parametrize("script", ["gang", "daemon", "badinput", "kernel"])
def test_every_check_says_what_it_proves(script: str) -> None:
    """A sentence each."""
    names = outside.checks(script, ("check_", "able_", "unable_", "kvm_"))
    assert len(names) > 5
    for name in names:
        assert outside.sentence(script, name).endswith("."), name


def test_a_disturbed_measurement_is_thrown_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured again until the machine was quiet; a machine that never is makes no result."""
    monkeypatch.setattr(check.time, "sleep", lambda _: None)
    waited, clock = 5.0, itertools.count(1.0)

    def sample(_machine: SharedMachine) -> Sample:
        return Sample(next(clock), 2, {"1": waited}, 0.0)

    def measure() -> str:
        nonlocal waited
        waited += noise.pop(0)
        return f"{len(noise)} left"

    monkeypatch.setattr(SharedMachine, "sample", sample)
    noise = [0.9, 0.8, 0.0]
    assert check.undisturbed(measure) == "0 left"
    noise += [0.5] * check.MEASUREMENTS
    with pytest.raises(AssertionError, match="too busy"):
        check.undisturbed(measure)


LOG = """\
[    0.000000] Kernel command line: console=ttyS0 softlockup_all_cpu_backtrace=1 panic=-1
[    0.120000] Lock dependency validator: Copyright (c) 2006 Red Hat, Inc.
[    0.130000] kasan: KernelAddressSanitizer initialized (generic)
[    0.140000] kmemleak: Kernel memory leak detector initialized (mem pool available: 14000)
[    3.000000] sched_ext: BPF scheduler "gangd" enabled
[    9.000000] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:
[    9.100000] WARNING: possible circular locking dependency detected
[    9.200000] BUG: KASAN: slab-out-of-bounds in plant_init+0x1/0x2 [plant]
[    9.300000] BUG: sleeping function called from invalid context at plant.c:47
[    9.400000] WARNING: CPU: 1 PID: 77 at kernel/sched/core.c:1 x+0x1/0x2
[    9.500000] ODEBUG: free active (active state 0) object: 0000000012345678 object type: timer_list
[    9.600000] kmemleak: 0 new suspected memory leaks (see /sys/kernel/debug/kmemleak)
[    9.700000] kmemleak: 3 new suspected memory leaks (see /sys/kernel/debug/kmemleak)
[    9.800000] INFO: task kworker/0:1 blocked for more than 120 seconds.
"""


def test_a_complaint_is_told_from_an_announcement() -> None:
    """Lockdep, KASAN and kmemleak introducing themselves are no complaints; what they find is."""
    seconds = [float(line[1:13]) for line in complaints.headlines(LOG)]
    assert seconds == [9.0, 9.1, 9.2, 9.3, 9.4, 9.5, 9.7, 9.8]


def test_every_leaked_object_is_told_with_its_backtrace() -> None:
    """kmemleak's report is cut where an object begins."""
    one = 'unreferenced object 0xffff888004c1f000 (size 4096):\n  comm "insmod"\n    leak+0x1c/0x30 [plant]'
    assert complaints.leaks(f"{one}\n{one}\n") == [one, one]
    assert complaints.leaks("") == []


def test_a_lost_vm_costs_what_was_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripts that ran to their end are not run again, and their results stand."""
    good = {"check_it": {"error": None, "notes": []}}
    boots = [
        outside.Boot({"first": good, "second": {}}, frozenset({"first"}), lost="the VM panicked"),
        outside.Boot({"second": good}, frozenset({"second"})),
    ]
    asked: list[list[str]] = []

    def boot_once(_row: str, scripts: list[str], *_: object) -> outside.Boot:
        asked.append(list(scripts))
        return boots.pop(0)

    monkeypatch.setattr(outside, "_boot_once", boot_once)
    found = outside.boot("6.18", ["first", "second"], tmp_path)
    assert asked == [["first", "second"], ["second"]]
    assert found.results == {"first": good, "second": good}
    assert not found.lost
