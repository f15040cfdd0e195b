# SPDX-License-Identifier: Apache-2.0
"""The tools of the checks, without a VM: a judge has to be judged, too."""

from __future__ import annotations

import contextlib
import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import boot_log
from lab.errors import Cause, LostVM
from lab.observe import complaints, symptoms
from lab.observe.machine import Sample, SharedMachine
from vm.boots import run
from vm.checks.inside import check


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


def test_there_is_no_second_try(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A check that fails has failed, and says which guest was dead or starved; the next has fresh guests."""
    monkeypatch.setattr(check, "SHARE", tmp_path)
    made: list[str] = []

    def check_it() -> None:
        made.append("check")
        assert "fresh" in made, "it is not so"

    def fresh() -> None:
        made.append("fresh")

    check.run("s", {"check_it": check_it, "check_next": check_it}, lost=lambda: "g was starved", fresh=fresh)
    results = json.loads((tmp_path / "s.json").read_text())
    assert made == ["check", "fresh", "check"]
    assert "it is not so" in results["check_it"]["error"] and "g was starved" in results["check_it"]["error"]
    assert results["check_next"]["error"] is None


@contextlib.contextmanager
def asleep() -> Iterator[int]:
    """A process that is past its start, and asleep."""
    program = "import time; print(flush=True); time.sleep(60)"
    running = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert running.stdout is not None
    try:
        running.stdout.readline()
        pid = running.pid
        check.wait_for(lambda: "vCPU 0 is S" in str(symptoms.symptoms(pid, {0: pid}, 0.0)), 60, "it sleeps")
        yield pid
    finally:
        running.kill()
        running.wait()


def test_symptoms_tell_sleeping_starved_and_gone_threads_apart() -> None:
    """Only a thread that is runnable and gets no CPU is starved."""
    with asleep() as pid:
        found = symptoms.symptoms(pid, {0: pid}, 0.2)
    assert not found.starved and "vCPU 0 is S on CPU" in str(found)
    assert "vCPU 0 is gone" in str(symptoms.symptoms(pid, {0: pid}, 0.0))
    busy = symptoms.Thread("R", 0, 0.5)
    assert not symptoms.Symptoms({0: busy}, 1.0).starved
    assert symptoms.Symptoms({0: busy, 1: symptoms.Thread("R", 1, 0.05)}, 1.0).starved
    assert not symptoms.Symptoms({0: symptoms.Thread("R", 1, None)}, 1.0).starved


def lost(cause: Cause) -> LostVM:
    return LostVM(cause, cause.value, ["Kernel panic - not syncing: sysrq triggered crash"])


def test_a_check_that_was_not_made_has_failed() -> None:
    """Never a pass, never a skip: the reason is why there is no result."""
    name = run.checks("gang")[0]
    with pytest.raises(AssertionError, match="panicked"):
        run.Boot("6.18", {"gang": {}}, lost=lost(Cause.PANICKED)).require("gang", name)
    with pytest.raises(AssertionError, match="was not made"):
        run.Boot().require("gang", name)


@pytest.mark.parametrize("script", ["gang", "daemon", "badinput", "kernel"])
def test_every_check_says_what_it_proves(script: str) -> None:
    """A sentence each."""
    names = run.checks(script, ("check_", "able_", "unable_", "kvm_"))
    assert len(names) > 5
    for name in names:
        assert run.sentence(script, name).endswith("."), name


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
[    0.110000] Speculative Return Stack Overflow: WARNING: See https://docs/hw-vuln/srso.html
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


BOOTED = "[    0.000000] Linux version 6.18.15\n"
GOOD, BAD = ({"error": error, "notes": [], "seconds": 1.0} for error in (None, "it is not so"))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[list[run.Boot], list[list[str]]]:
    """The outcomes of the next boots, and the scripts each is asked for; a ledger of our own."""
    coming: list[run.Boot] = []
    scripts: list[list[str]] = []

    def boot_once(order: run._Order) -> run.Boot:
        scripts.append(list(order.scripts))
        return coming.pop(0)

    monkeypatch.setattr(run, "_boot_once", boot_once)
    monkeypatch.setenv(boot_log.VARIABLE, str(tmp_path / "ledger"))
    boot_log.begin(tmp_path / "ledger")
    return coming, scripts


@pytest.mark.parametrize("cause", [Cause.PANICKED, Cause.HUNG, Cause.WENT_DOWN])
def test_a_vm_lost_under_its_command_is_a_failure(
    asked: tuple[list[run.Boot], list[list[str]]], tmp_path: Path, cause: Cause
) -> None:
    """There is no second boot: it may be our scheduler's doing. What was not made has failed, with the
    console; and if everything had been made, the boot has."""
    coming, scripts = asked
    name = run.checks("gang")[0]
    coming.append(run.Boot("6.18", {"gang": {name: GOOD}, "daemon": {}}, {"gang": 0}, lost=lost(cause)))
    found = run.boot("6.18", ["gang", "daemon"], tmp_path)
    assert scripts == [["gang", "daemon"]]
    found.require("gang", name)
    with pytest.raises(AssertionError, match="sysrq triggered crash"):
        found.require("daemon", run.checks("daemon")[0])
    with pytest.raises(AssertionError, match=cause.value):
        found.require_quiet()
    assert boot_log.entries("lost") == []


def test_an_emulator_that_died_costs_what_was_left_and_is_counted(
    asked: tuple[list[run.Boot], list[list[str]]], tmp_path: Path
) -> None:
    """Scripts that ran to their end are not run again; a check that failed before stays a failure."""
    coming, scripts = asked
    half = {"first": {"check_it": GOOD}, "second": {"check_one": BAD}}
    whole = {"second": {"check_one": GOOD, "check_two": GOOD}}
    coming += [
        run.Boot("6.18", half, {"first": 0}, lost=lost(Cause.EMULATOR_DIED), logs=[BOOTED]),
        run.Boot("6.18", whole, {"second": 0}, logs=[BOOTED]),
    ]
    with pytest.warns(UserWarning, match="the emulator ended by itself"):
        found = run.boot("6.18", ["first", "second"], tmp_path)
    assert scripts == [["first", "second"], ["second"]]
    assert found.results == {"first": half["first"], "second": {"check_one": BAD, "check_two": GOOD}}
    found.require_quiet()
    assert [entry["scripts"] for entry in boot_log.entries("lost")] == [["first", "second"]]
    assert [entry["checks"] for entry in boot_log.entries("boot")][1] == {
        "second": {"check_one": 1.0, "check_two": 1.0}
    }


def test_twice_lost_is_lost(asked: tuple[list[run.Boot], list[list[str]]], tmp_path: Path) -> None:
    """There are two boots and no more."""
    coming, scripts = asked
    coming += [run.Boot("6.18", {"first": {}}, lost=lost(Cause.NOT_STARTED)) for _ in range(2)]
    with pytest.warns(UserWarning, match="never started"):
        found = run.boot("6.18", ["first"], tmp_path)
    assert len(scripts) == 2 and len(boot_log.entries("lost")) == 2
    with pytest.raises(AssertionError, match="never started"):
        found.require_quiet()


EJECTED = '[   20.0] sched_ext: BPF scheduler "gangd" disabled (disabled by sysrq-S)\n'
PROVOKING = ("kernel", "able_ejected_by_the_kernel")


def quiet(log: str, *made: tuple[str, str], ended: int = 0) -> None:
    results = {script: {name: GOOD} for script, name in made}
    run.Boot("6.18", results, {"s": ended}, logs=[BOOTED + log]).require_quiet()


def test_a_complaint_of_the_kernel_fails_its_boot() -> None:
    """A warning, a stall, a scheduler that was thrown out; what a check provokes is there as often as it
    says. A log that has lost its beginning proves nothing, and a script that ended badly is none."""
    quiet('[    9.0] sched_ext: BPF scheduler "gangd" disabled (unregistered from user space)\n')
    quiet(EJECTED, PROVOKING)
    for log, made in (
        (LOG, ()),
        ('[    9.0] sched_ext: BPF scheduler "gangd" disabled (runtime error)\n', ()),
        ("[    9.0] watchdog: BUG: soft lockup - CPU#1 stuck for 26s!\n", ()),
        (EJECTED, ()),
        (EJECTED + EJECTED, (PROVOKING,)),
        ("", (PROVOKING,)),
    ):
        with pytest.raises(AssertionError):
            quiet(log, *made)
    with pytest.raises(AssertionError, match="lost its beginning"):
        run.Boot("6.18", {}, {"s": 0}, logs=["[  400.0] later\n"]).require_quiet()
    with pytest.raises(AssertionError, match="ended otherwise"):
        quiet("", ended=1)


def test_provoked_complaints_are_of_checks_that_exist() -> None:
    """An allowance of a check that is gone would allow nothing but look as if."""
    for script, name in complaints.PROVOKED:
        assert name in run.checks(script, ("check_", "able_", "unable_", "kvm_", "full_", "long_"))
