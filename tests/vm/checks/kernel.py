# SPDX-License-Identifier: Apache-2.0
"""Checks of gangd on this kernel, without systemd, libvirt or the daemon.

GANGD_FEATURES holds the row's `features` of kernels.toml: the checks ask for what these promise.

    check_   on every row          able_    where gangs can be scheduled
    unable_  where they cannot     kvm_     where KVM works
"""

from __future__ import annotations

import contextlib
import json
import operator
import os
import signal
import statistics
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from gangd import bpf
from gangd.actuate import preflight, sched_ext
from gangd.actuate.executor import Executor
from gangd.actuate.gang import Gangs
from gangd.actuate.journal import Journal
from gangd.measure.probes import GuestCount, Probes
from gangd.measure.proc import read_thread
from gangd.model.counters import GangStats
from gangd.model.domain import Domain, Mode
from gangd.model.plan import Plan
from vm.checks.inside import host, threads
from vm.checks.inside.check import figure, note, run, undisturbed, wait_for
from vm.checks.inside.direct import domain, payload_guest
from vm.checks.inside.threads import SLOT_US, Group, busy

FEATURES: dict[str, bool] = json.loads(os.environ["GANGD_FEATURES"])
SECONDS, WINDOWS = 3.0, 3
CPUS = (0, 1)
NO_KVM = Path("/nowhere")  # a host that lacks the module: the scheduler's tracepoints see any thread
TURNS, WHOLE, SKEW_SECONDS = 20, 0.8, 0.002  # a gang has at least so many, and so they are
BESIDE_STRICT = 0.7  # as WHOLE, of a relaxed gang from which a strict one takes cores
CHORE_ROUNDS = 20_000
DISSOLUTIONS, STRANDED_SECONDS = 6, 5.0
CGROUPS = Path("/sys/fs/cgroup")
# The check sets these values of cpu.max in turn, and the group, whose share beside two gangs is 0.4 CPUs, has
# so many, from and to. Of a quota that is shorter than a tick it may get less, since it waits for turns, or
# a tenth more: its runs are short, and the kernel counts in each what our callbacks take on a slow CPU.
FIFTHS = 0.4  # CPUs for each of five threads that never sleep
LIMITS = (
    ("25000 100000", 0.2375, 0.2625),
    ("10000 50000", 0.19, 0.21),
    ("2000 20000", 0.06, 0.115),
    ("max 100000", 0.38, 0.42),
)
# word for word: an administrator reads it
STRICT_REFUSED = "a strict gang needs CPUs that can be kicked, and those of this kernel cannot be"

stack = contextlib.ExitStack()
kept: list[tuple[Gangs, Executor, list[Domain]]] = []


@contextlib.contextmanager
def spinning(*names: str) -> Iterator[list[Domain]]:
    """For every name a process with two threads that never sleep, one on each CPU."""
    with contextlib.ExitStack() as started:
        processes = [started.enter_context(busy(len(CPUS))) for _ in names]
        yield [domain(name, one.pid, tids) for name, (one, tids) in zip(names, processes, strict=True)]


def plan_of(gangs: list[Domain]) -> Plan:
    """Every one of them a gang over all CPUs."""
    groups = [Group(g.name, g.pid or 0, tuple(v.tid or 0 for v in g.vcpus), CPUS) for g in gangs]
    return threads.plan_of(groups, CPUS)


def counted(probes: Probes, gangs: list[Domain], seconds: float) -> dict[str, GuestCount]:
    """Return the probes' counts of `gangs` within some seconds."""
    before = probes.read()
    time.sleep(seconds)
    after = probes.read()
    return {
        gang.uuid: GuestCount(
            after[gang.uuid].run_seconds - before[gang.uuid].run_seconds,
            after[gang.uuid].corun_seconds - before[gang.uuid].corun_seconds,
            after[gang.uuid].costop_seconds - before[gang.uuid].costop_seconds,
            after[gang.uuid].vcpus,
        )
        for gang in gangs
    }


def check_preflight_says_what_the_row_promises() -> None:
    """The preflight's verdict is that of kernels.toml: a refusal names the one thing that is missing, and
    tasks are pushed exactly where no CPU can be kicked. A yes is the verifier's, too."""
    reason = preflight.check(bpf)
    note(reason or "nothing is missing")
    if not FEATURES["sched_ext"]:
        there = bpf.kernel_has_type("sched_ext_ops")
        assert reason is not None and ("pahole older" if there else "CONFIG_SCHED_CLASS_EXT") in reason
        assert "\n" not in reason
    else:
        assert reason is None
        begin = time.monotonic()
        assert sched_ext.verify() is None
        figure("verifier_seconds", time.monotonic() - begin)
        note(f"the verifier took {time.monotonic() - begin:.1f} s")
        assert preflight.must_push(bpf) == (not FEATURES["kick_cpu"])


def check_probes_measure_any_threads() -> None:
    """The probes load on every kernel, with or without gangs; where no KVM tells of transitions two processes
    that fight for the CPUs run all the time, and the share in which none of their threads waits is what the
    kernel's tracer says."""
    probes = Probes(NO_KVM)
    # An odd thread beside them: on equally full CPUs virtual time lets equal processes take turns.
    with spinning("a", "b") as gangs, busy(1):
        probes.sync(gangs)
        assert probes.active, f"{probes.reason}\n{probes.log[-3000:]}"
        time.sleep(0.5)
        with host.traced(vcpu.tid or 0 for gang in gangs for vcpu in gang.vcpus) as trace:
            counts = counted(probes, gangs, SECONDS)
        for gang in gangs:
            count, seen = counts[gang.uuid], trace.account(vcpu.tid or 0 for vcpu in gang.vcpus)
            share = count.corun_seconds / count.run_seconds
            note(f"{gang.name}: co-run {share:.1%} of {count.run_seconds:.2f} s")
            note(f"{gang.name}: co-run {seen.share:.1%} of {seen.run:.2f} s, says the tracer")
            assert 0.3 * SECONDS < count.run_seconds < 1.5 * SECONDS
            assert abs(share - seen.share) <= 0.1
            assert share < 0.98
    probes.close("done")
    wait_for(lambda: not host.our_programs(), 5, "the probes are unloaded")


def kvm_exits_are_counted() -> None:
    """The probes count VM exits by reason with the kvm module, on every kernel; PAUSE exits exactly where
    KVM arms the intercept."""
    probes = Probes()
    with payload_guest("barrier") as guest:
        probes.sync([guest])
        assert probes.reason == "", f"{probes.reason}\n{probes.log[-3000:]}"
        time.sleep(SECONDS)
        vcpus = probes.read()[guest.uuid].vcpus
        for number, vcpu in vcpus.items():
            note(f"vCPU {number}: {dict(vcpu.exits or {})}")
        assert set(vcpus) == {0, 1}
        assert all(vcpu.exits and vcpu.exits["external_interrupt"] > 0 for vcpu in vcpus.values())
        paused = sum(vcpu.pause_exits or 0 for vcpu in vcpus.values())
        assert (paused > 0) == FEATURES["pause_exits"]
    probes.close("done")


def loaded() -> tuple[Gangs, Executor, list[Domain]]:
    """The scheduler with two gangs whose threads may run on any CPU, loaded once for all checks: the
    emulator's verifier takes seconds. It is the one that helps unmarked guests, which has more to verify;
    the others of the lab do without."""
    if not kept:
        gangs = Gangs(SLOT_US, [sched_ext.backend(helps=True)])
        executor = Executor([gangs], Journal(Path("/run/lab-journal")))
        processes = stack.enter_context(spinning("a", "b"))
        for tid in (vcpu.tid or 0 for process in processes for vcpu in process.vcpus):
            os.sched_setaffinity(tid, CPUS)
        begin = host.now()
        report = executor.reconcile(plan_of(processes))
        assert report.failures == (), f"{report.failures}\n{gangs.log[-6000:]}"
        note(f"loaded in {host.now() - begin:.1f} s")
        kept.append((gangs, executor, processes))
    return kept[0]


def stats(gangs: Gangs, processes: list[Domain]) -> dict[str, GangStats]:
    """Return the scheduler's counts of each process that is a gang, so far."""
    return {p.uuid: found for p in processes if (found := gangs.stats(p.uuid)) is not None}


def turns_and_counts(
    gangs: Gangs, probes: Probes, processes: list[Domain]
) -> tuple[dict[str, GangStats], dict[str, GuestCount], dict[str, GangStats]]:
    """Return the probes' counts within SECONDS, between the scheduler's counts before and after."""
    before = stats(gangs, processes)
    counts = counted(probes, processes, SECONDS)
    return before, counts, stats(gangs, processes)


def able_gangs_without_kvm() -> None:
    """The scheduler loads, attaches and co-schedules two processes, whose threads may run on any CPU: four of
    five turns are whole, the last member on CPU within two milliseconds on average, and co-run share is at
    least 0.8."""
    gangs, _, processes = loaded()
    assert host.scheduler() == "enabled"
    note(f"loaded in real time by gangd: {preflight.must_be_real_time(bpf)}")
    probes = Probes(NO_KVM)
    probes.sync(processes)
    time.sleep(0.5)
    before, counts, after = undisturbed(lambda: turns_and_counts(gangs, probes, processes))
    for process in processes:
        count = counts[process.uuid]
        share = count.corun_seconds / count.run_seconds
        figure("corun", share)
        note(f"{process.name}: co-run {share:.1%}")
        assert share >= 0.8
        turns_are_whole(process.name, before[process.uuid], after[process.uuid])
    probes.close("done")


def turns_are_whole(name: str, before: GangStats, after: GangStats) -> None:
    """Fail unless there were turns, four of five of them whole, and their members came to CPUs together."""
    turns, whole = after.turns - before.turns, after.whole - before.whole
    skew = (after.skew_seconds - before.skew_seconds) / max(whole, 1)
    note(f"{name}: {whole} of {turns} turns whole, skew {skew * 1e6:.0f} us")
    assert turns > TURNS
    assert WHOLE * turns <= whole <= turns + 1
    assert skew < SKEW_SECONDS


def able_every_thread_has_its_share() -> None:
    """Two gangs and an ordinary task that never sleeps have two fifths of a CPU for each thread, within a
    twentieth, in the median of three windows. Turns are whole as before, and a wakeup beside them is served
    within a turn and two ticks."""
    gangs, _, processes = loaded()
    with busy(1) as (hog, (tid,)):
        os.sched_setaffinity(tid, CPUS)
        everybody = [(one.pid or 0, vcpu.tid or 0) for one in processes for vcpu in one.vcpus]
        everybody.append((hog.pid, tid))
        time.sleep(0.5)
        before = stats(gangs, processes)
        windows = [undisturbed(lambda: threads.cpu_shares(everybody, SECONDS)) for _ in range(WINDOWS)]
        for shares in windows:
            note("CPUs of each thread: " + ", ".join(f"{share:.3f}" for share in shares))
        medians = [statistics.median(shares) for shares in zip(*windows, strict=True)]
        for share in medians:
            figure("share", share / FIFTHS)
        assert all(0.38 < share < 0.42 for share in medians)
        after = stats(gangs, processes)
        for process in processes:
            turns_are_whole(process.name, before[process.uuid], after[process.uuid])
        late = max(naps(50))
        note(f"the longest of 50 wakeups took {late * 1e3:.2f} ms")
        assert late < 0.02
    gangs.look()
    assert gangs.active


def able_limits_are_kept() -> None:
    """A cgroup beside two gangs has the CPU time of its cpu.max, whether the kernel tells the scheduler of a
    limit or that has to look; of the next one too, and its share within a twentieth once it is lifted."""
    gangs, _, _ = loaded()
    (CGROUPS / "cgroup.subtree_control").write_text("+cpu")
    group = CGROUPS / "limited"
    group.mkdir()
    try:
        with busy(len(CPUS)) as (hogs, _):
            (group / "cgroup.procs").write_text(str(hogs.pid))
            for limit, least, most in LIMITS:
                (group / "cpu.max").write_text(limit)
                time.sleep(1.0)  # the period that ran on, and its debt
                had = used(group, SECONDS)
                figure(f"limit {limit}", had)
                note(f"cpu.max {limit}: {had:.3f} CPUs")
                assert least < had < most
    finally:
        wait_for(lambda: not (group / "cgroup.procs").read_text(), 5, "the group is empty")
        group.rmdir()
    gangs.look()
    assert gangs.active


def used(group: Path, seconds: float) -> float:
    """Return the CPUs that a cgroup uses."""

    def now() -> float:
        return int((group / "cpu.stat").read_text().split()[1]) / 1e6

    before, begin = now(), host.now()
    time.sleep(seconds)
    return (now() - before) / (host.now() - begin)


def naps(count: int) -> list[float]:
    """Return by how many seconds this thread, which sleeps for 10 ms at a time, is late."""
    found = []
    for _ in range(count):
        begin = host.now()
        time.sleep(0.01)
        found.append(host.now() - begin - 0.01)
    return found


@contextlib.contextmanager
def stopped(processes: list[Domain]) -> Iterator[None]:
    """Stop the processes (SIGSTOP): they do not run, and do not want to."""
    for process in processes:
        os.kill(process.pid or 0, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            os.kill(process.pid or 0, signal.SIGCONT)


def chore() -> float:
    """Return the seconds that an ordinary program takes."""
    begin = host.now()
    words = ["sh", "-c", f"i=0; while [ $i -lt {CHORE_ROUNDS} ]; do i=$((i+1)); done"]
    subprocess.run(words, check=True, timeout=60)
    return host.now() - begin


def able_ordinary_tasks_are_not_starved() -> None:
    """A program that is no gang takes at most twice as long beside CPUs full of gangs as with its fair share
    of the CPUs, and a turn."""
    gangs, _, processes = loaded()
    with stopped(processes):
        alone = min(chore() for _ in range(3))
    beside = chore()
    note(f"took {alone:.2f} s alone, {beside:.2f} s beside two gangs")
    fair = len(CPUS) / (1 + len(processes) * len(CPUS))
    assert beside <= 2 * alone / fair + SLOT_US / 1e6
    gangs.look()
    assert gangs.active


def able_dissolved_gang_runs_on() -> None:
    """Members that wait in their gang's queue when it is dissolved run on as ordinary tasks, also beside
    ordinary tasks that never sleep: no task is left in a queue that no CPU serves."""
    gangs, executor, processes = loaded()
    dissolved, rest = processes[0], processes[1:]
    with spinning("ordinary"):
        for _ in range(DISSOLUTIONS):
            assert executor.reconcile(plan_of(rest)).failures == ()
            note(f"all of its threads have run after {runs_on(dissolved, STRANDED_SECONDS):.1f} s")
            assert executor.reconcile(plan_of(processes)).failures == ()
            time.sleep(0.5)
    gangs.look()
    assert gangs.active


def runs_on(process: Domain, seconds: float) -> float:
    """Return the seconds until every thread of the process had got CPU time; fail when that is too long."""

    def cpu_seconds() -> list[float]:
        return [read_thread(process.pid or 0, vcpu.tid or 0).cpu_seconds or 0.0 for vcpu in process.vcpus]

    before = cpu_seconds()
    what = f"every thread of {process.name} has run"
    return wait_for(lambda: all(map(operator.lt, before, cpu_seconds())), seconds, what)


def able_strict_where_cpus_can_be_kicked() -> None:
    """A strict gang is scheduled where CPUs can be kicked, and four of five of its turns are whole, seven of
    ten of a relaxed gang's beside it. Where they cannot it is refused in one sentence, which says why, and
    both gangs are scheduled as before."""
    gangs, executor, processes = loaded()
    plan = plan_of(processes)
    strict, other = plan.gangs
    report = executor.reconcile(replace(plan, gangs=(replace(strict, mode=Mode.STRICT), other)))
    note("; ".join([*report.missing, *map(str, report.failures)]) or "scheduled")
    time.sleep(0.5)
    before = {uuid: gangs.stats(uuid) for uuid in (strict.uuid, other.uuid)}
    time.sleep(SECONDS)
    after = {uuid: gangs.stats(uuid) for uuid in (strict.uuid, other.uuid)}
    for gang, least in ((strict, WHOLE), (other, BESIDE_STRICT)):
        one, two = before[gang.uuid], after[gang.uuid]
        assert one and two
        turns, whole = two.turns - one.turns, two.whole - one.whole
        note(f"{gang.name}: {whole} of {turns} turns whole")
        assert turns > TURNS and whole >= least * turns
    if FEATURES["kick_cpu"]:
        assert (report.failures, report.missing) == ((), ())
    else:
        (failure,) = report.failures
        assert STRICT_REFUSED in str(failure), failure
        assert gangs.mode(strict.uuid) is Mode.RELAXED
    assert executor.reconcile(plan).failures == ()
    gangs.look()
    assert gangs.active


def able_ejected_by_the_kernel() -> None:
    """SysRq-S puts every task back on the default class; the reason is kept, and the next pass loads the
    scheduler again."""
    gangs, executor, processes = loaded()
    Path("/proc/sysrq-trigger").write_text("S")
    wait_for(lambda: host.scheduler() == "disabled", 5, "the scheduler is ejected")
    assert executor.reconcile(plan_of(processes)).failures == ()
    assert gangs.last_ejection
    note("\n".join(gangs.last_ejection.report))
    assert gangs.last_ejection.kind == "sysrq"
    assert "turn opened" in "\n".join(gangs.last_ejection.report)
    assert host.scheduler() == "enabled"


def able_unloads_clean() -> None:
    """The scheduler is gone with the last gang, no program of ours is left, and the former gangs run on."""
    _, executor, processes = loaded()
    assert executor.undo().failures == ()
    assert host.scheduler() == "disabled"
    wait_for(lambda: not host.our_programs(), 5, "everything is unloaded")
    for process in processes:
        runs_on(process, 0.5)
    stack.close()


def unable_nothing_is_loaded() -> None:
    """A kernel that cannot is left alone: the refusal is the preflight's sentence, without a verifier log."""
    gangs = Gangs(SLOT_US, [sched_ext.backend()])
    executor = Executor([gangs], Journal(Path("/run/lab-journal")))
    with spinning("a") as processes:
        report = executor.reconcile(plan_of(processes))
    assert report.missing == (f"gang: {preflight.check(bpf)}",)
    assert report.failures == ()
    assert report.writes == 0
    assert gangs.log == ""
    assert host.scheduler() == "disabled"
    assert host.our_programs() == []


if __name__ == "__main__":
    kinds = ["check_", "able_" if FEATURES["sched_ext"] else "unable_"]
    run(__file__, dict(globals()), tuple(kinds + ["kvm_"] * FEATURES["kvm"]))
