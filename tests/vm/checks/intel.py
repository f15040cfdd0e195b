# SPDX-License-Identifier: Apache-2.0
"""An Intel host as Bochs emulates it: VM exits, LHP and gangs, once for every set of KVM's parameters. On an
emulated AMD host the same, as the counter-test. One process does it all: Python takes long to start here.

GANGD_MODEL is "intel" or "amd". A result is under the name of its check and that of its settings in SETTINGS.
GANGD_ONLY: which checks to make, by the beginnings of these names; empty for all.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gangd.measure.exit_reasons import ISA_SVM, ISA_VMX, reason_name
from gangd.measure.probes import Probes, VcpuCount
from gangd.model.domain import Domain, Vcpu
from lab.guests.counters import ADDRESS, SIZE, Counters, NotReadyError
from vm.checks.inside import host
from vm.checks.inside.check import SHARE, note, run, wait_for
from vm.checks.inside.threads import Group, Rig, busy, cpu_shares, hog

MODEL = os.environ["GANGD_MODEL"]
# By vendor: module, instruction set, sets of parameters by name, and parameters that must read so.
SETTINGS: dict[str, dict[str, dict[str, str]]] = {
    "intel": {
        "apicv": {"enable_apicv": "Y", "preemption_timer": "Y"},
        "plain": {"enable_apicv": "N", "preemption_timer": "N"},
    },
    "amd": {"svm": {}},
}
MODULE = {"intel": "kvm_intel", "amd": "kvm_amd"}[MODEL]
ISA = {"intel": ISA_VMX, "amd": ISA_SVM}[MODEL]
# Without a threshold kvm_amd intercepts no PAUSE, whatever the count says.
PAUSE_LOOPS = {
    "intel": {"ple_gap": "128", "ple_window": "4096"},
    "amd": {"pause_filter_count": "3000", "pause_filter_thresh": "128"},
}[MODEL]
# Numbers of the manuals (Intel SDM vol. 3 appendix C, AMD APM vol. 2 appendix C), and the product's words.
WORDS = {
    "intel": {40: "pause", 1: "external_interrupt", 30: "io", 48: "ept_violation"},
    "amd": {0x77: "pause", 0x60: "external_interrupt", 0x7B: "io", 0x400: "npf"},
}[MODEL]
PAUSE = {"intel": 40, "amd": 0x77}[MODEL]
MSR_WRITES = {"intel": "msr_write", "amd": "msr"}[MODEL]

KVM_EXIT = "events/kvm/kvm_exit"
HISTOGRAM = Path("/sys/kernel/tracing") / KVM_EXIT
SECONDS = 1.0
URGENT = -15
# KVM doubles a vCPU's loop window at each PAUSE exit, and has the small one again when the vCPU is put on a
# CPU anew; a timer tick of the host, which leaves the guest as well, begins the count again. So a vCPU that
# is not disturbed leaves some six times and never more, however long it spins. A look so often disturbs it.
LOOK_SECONDS = 0.01
# A critical section of 0.2 ms, and of 2 ms: a vCPU waits for that longer than several loop windows.
LOCK = ("spinlock", "work=10000")
LONG_LOCK = ("spinlock", "work=100000")
BARRIER = ("barrier", "work=300")

_HIT = re.compile(r"\{ exit_reason:\s+(\d+) \} hitcount:\s+(\d+)")
_EXIT = re.compile(r"-(\d+)\s+\[\d+\].*? (\d+\.\d+): kvm_exit: ")

probes = Probes()


@dataclass(frozen=True)
class Guest:
    """A guest that is running the payload, as a group of threads and as the probes know it."""

    group: Group
    memory: Path

    @property
    def domain(self) -> Domain:
        """The guest's domain, as libvirt would name it."""
        vcpus = tuple(Vcpu(number, tid) for number, tid in enumerate(self.group.tids))
        return Domain(self.group.name, self.group.name, self.group.pid, self.group.pid, "running", vcpus)

    def counters(self) -> Counters:
        """Return the guest's own counters, read from its memory."""
        with self.memory.open("rb") as file:
            file.seek(ADDRESS)
            return Counters.parse(file.read(SIZE))

    def ready(self) -> bool:
        """The load has begun."""
        with contextlib.suppress(NotReadyError):
            return self.counters().iterations > 0
        return False

    def stop(self) -> None:
        """Take all vCPUs out of the guest: no counter moves any more."""
        os.kill(self.group.pid, signal.SIGSTOP)
        stopped = [Path(f"/proc/{self.group.pid}/task/{tid}/stat") for tid in self.group.tids]
        wait_for(lambda: all(stat.read_text().rpartition(")")[2].split()[0] == "T" for stat in stopped), 5,
                 f"{self.group.name} is stopped")  # fmt: skip

    def go_on(self) -> None:
        """After `stop`."""
        os.kill(self.group.pid, signal.SIGCONT)


@contextlib.contextmanager
def guest(name: str, load: tuple[str, ...], *cpus: int) -> Iterator[Guest]:
    """A guest with one vCPU for each of `cpus`, on that CPU; its load runs."""
    memory = Path("/dev/shm") / name
    words = [str(SHARE / "vmm"), str(SHARE / "loads.elf"), str(memory), str(len(cpus)), load[0]]
    process = subprocess.Popen([*words, f"cpus={len(cpus)}", *load[1:]], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        tids = tuple(map(int, process.stdout.readline().split()))
        found = Guest(Group(name, process.pid, tids, cpus), memory)
        spread = range(os.cpu_count() or 1)  # the payload's CPUs start side by side
        for tid, cpu in zip(tids, spread, strict=False):
            os.sched_setaffinity(tid, {cpu})
        wait_for(lambda: found.ready() or process.poll() is not None, 30, f"{name} runs")
        assert process.poll() is None, f"{name} ended"
        found.group.pin()
        yield found
        assert process.poll() is None, f"{name} ended"
    finally:
        process.kill()
        process.wait()
        memory.unlink()


@dataclass(frozen=True)
class Seen:
    """A guest's counts in a window: the probes', by vCPU, the kernel tracer's, and the guest's iterations."""

    vcpus: Mapping[int, VcpuCount]
    exits: Mapping[int, int]
    pauses: int
    lhp: int
    iterations: int

    @property
    def named(self) -> dict[str, int]:
        """Exits of all vCPUs by the product's words."""
        found: dict[str, int] = {}
        for vcpu in self.vcpus.values():
            for name, count in (vcpu.exits or {}).items():
                found[name] = found.get(name, 0) + count
        return found

    def probed(self, what: str) -> int:
        """Return the sum of a counter over all vCPUs; fail when it is unknown."""
        counts = [getattr(vcpu, what) for vcpu in self.vcpus.values()]
        assert None not in counts, f"{what} is unknown"
        return sum(counts)


def window(one: Guest, seconds: float = SECONDS) -> Seen:
    """Probes and tracer over the very same exits: the guest is stopped at both ends. In between CPU 0 is
    taken for a moment every LOOK_SECONDS."""
    one.stop()
    probes.sync([one.domain])
    assert probes.reason == "", f"{probes.reason}\n{probes.log[-3000:]}"
    begin = one.counters().iterations
    (HISTOGRAM / "trigger").write_text("hist:keys=exit_reason")
    try:
        with host.traced(one.group.tids) as trace, pauses_traced():
            one.go_on()
            look(seconds)
            one.stop()
        text, hits = (host.TRACE / "trace").read_text(), (HISTOGRAM / "hist").read_text()
    finally:
        (HISTOGRAM / "trigger").write_text("!hist:keys=exit_reason")
    vcpus, done = probes.read()[one.domain.uuid].vcpus, one.counters().iterations - begin
    one.go_on()
    told = list(pauses_of(text, one.group.tids, trace.events))
    exits = {int(number): int(count) for number, count in _HIT.findall(hits)}
    return Seen(vcpus, exits, len(told), sum(told), done)


def look(seconds: float) -> None:
    """Wake on CPU 0 so often."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {0})
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(LOOK_SECONDS)
    os.sched_setaffinity(0, before)


@contextlib.contextmanager
def pauses_traced() -> Iterator[None]:
    """The tracer of host.traced records PAUSE exits, too."""
    (host.TRACE / KVM_EXIT / "filter").write_text(f"exit_reason=={PAUSE}")
    (host.TRACE / KVM_EXIT / "enable").write_text("1")
    try:
        yield
    finally:
        (host.TRACE / KVM_EXIT / "enable").write_text("0")


def pauses_of(text: str, tids: tuple[int, ...], events: list[host.Event]) -> Iterator[bool]:
    """For each PAUSE exit in a trace, whether a sibling waited for a CPU then."""
    state: dict[int, str] = dict.fromkeys(tids, host.BLOCKED)
    left = list(reversed(events))
    for found in _EXIT.finditer(text):
        tid, when = int(found[1]), float(found[2])
        while left and left[-1].time <= when:
            event = left.pop()
            if event.state != host.WOKEN:
                state[event.tid] = event.state
            elif state[event.tid] == host.BLOCKED:
                state[event.tid] = host.WAITING
        yield any(state[other] == host.WAITING for other in tids if other != tid)


def agreed(seen: Seen) -> None:
    """Probes and tracer say the same of PAUSE exits, and nearly the same of which are LHP: at one moment the
    tracer's event and the probe's may stand in either order."""
    pauses, lhp = seen.probed("pause_exits"), seen.probed("lhp_exits")
    note(f"{pauses} PAUSE exits, {lhp} LHP; {seen.lhp} LHP by the tracer; {seen.iterations} iterations")
    assert pauses == seen.pauses
    assert abs(lhp - seen.lhp) <= 0.05 * pauses + 2


def check_kvm_has_these_settings(settings: Mapping[str, str]) -> None:
    """KVM is loaded with the parameters asked for, and arms pause-loop exiting as it does by default."""
    if (Path("/sys/module") / MODULE).exists():
        subprocess.run(["rmmod", MODULE], check=True)
    subprocess.run(["modprobe", MODULE, *(f"{name}={value}" for name, value in settings.items())], check=True)
    for name, value in {**settings, **PAUSE_LOOPS}.items():
        read = (Path("/sys/module") / MODULE / "parameters" / name).read_text().strip()
        note(f"{name}={read}")
        assert read == value, f"{name} is {read}"


def check_exits_are_counted_by_reason(settings: Mapping[str, str]) -> None:
    """The probes count exactly the exits that the kernel's histogram has, reason by reason, under the
    product's words; PAUSE exits while no sibling waits for a CPU are contention, not LHP."""
    del settings
    with guest("apart", LONG_LOCK, 0, 1) as one:
        seen = window(one)
    note(f"exits: {dict(sorted(seen.named.items()))}")
    assert seen.named == {reason_name(ISA, number): count for number, count in seen.exits.items()}
    for number, word in WORDS.items():
        assert seen.named.get(word, 0) == seen.exits.get(number, 0)
    assert seen.named["pause"] == seen.probed("pause_exits") > 0
    assert seen.named["external_interrupt"] > 0
    agreed(seen)
    # A task of the host's own takes a CPU now and then: what is LHP is for the tracer to say.
    assert seen.probed("lhp_exits") < seen.probed("pause_exits")


def check_siblings_on_one_cpu_are_lhp(settings: Mapping[str, str]) -> None:
    """While a vCPU waits for the CPU that its sibling spins on, every PAUSE exit is LHP."""
    del settings
    with guest("together", LOCK, 1, 1) as one:
        seen = window(one)
    agreed(seen)
    assert seen.probed("pause_exits") > 0
    assert seen.probed("lhp_exits") >= 0.95 * seen.probed("pause_exits")


def check_a_preempted_sibling_is_lhp(settings: Mapping[str, str]) -> None:
    """A real-time task takes one vCPU's CPU: the PAUSE exits of the other, at a barrier, are LHP."""
    del settings
    with guest("robbed", BARRIER, 0, 1) as one, hog(1):
        seen = window(one)
    agreed(seen)
    assert seen.probed("pause_exits") > 0
    assert seen.probed("lhp_exits") >= 0.8 * seen.probed("pause_exits")


def check_interrupts_leave_as_the_settings_say(settings: Mapping[str, str]) -> None:
    """An end of interrupt takes no exit with APICv; with the preemption timer KVM uses it for the guest's."""
    with guest("ipi", ("ipi", "work=300"), 0, 1) as one:
        seen = window(one, SECONDS / 2)
    writes = seen.named.get(MSR_WRITES, 0) / seen.iterations
    note(f"{writes:.2f} MSR writes left the guest per IPI; exits: {dict(sorted(seen.named.items()))}")
    with guest("duty", ("duty", "on=5", "off=5"), 0, 1) as one:
        timers = window(one, SECONDS / 2).named.get("preemption_timer", 0)
    note(f"{timers} exits of the preemption timer")
    if settings.get("enable_apicv") == "Y":
        assert 0.9 <= writes <= 1.2  # the IPI itself
    else:
        assert 1.8 <= writes <= 2.4  # the IPI, and the end of interrupt
    assert (timers > 0) == (settings.get("preemption_timer") == "Y")


def check_gangs_are_whole(settings: Mapping[str, str]) -> None:
    """Two guests at barriers on two CPUs: as gangs of our scheduler, bound to no CPU, four of five of their
    turns are whole, and co-run is at least 0.8 by the tracer. Beside an ordinary task on one of the CPUs,
    neither they nor that task get less than 0.9 of what the default scheduler gives them."""
    del settings
    rig = Rig((0, 1))
    with guest("a", BARRIER, 0, 1) as a, guest("b", BARRIER, 0, 1) as b:
        with busy(1, 1) as (task, tids):  # without it the default scheduler moves two such guests in step
            default, before, used = measured(a, b, beside=(task.pid, tids[0]))
        note(f"default beside a task: iterations {default}, co-run {before[0]:.1%} {before[1]:.1%}")
        for one in (a, b):
            one.group.let_go()
        rig.schedule(a.group, b.group)
        assert host.scheduler() == "enabled"
        time.sleep(0.3)
        first = [rig.stats(one.group) for one in (a, b)]
        alone, shares, _ = measured(a, b)
        last = [rig.stats(one.group) for one in (a, b)]
        with busy(1, 1) as (task, tids):
            gang, after, had = measured(a, b, beside=(task.pid, tids[0]))
        report = rig.executor.undo()
        assert report.failures == () and rig.reason() == ""
    note(f"gang: iterations {alone}, co-run {shares[0]:.1%} {shares[1]:.1%}")
    note(f"gang beside a task: iterations {gang}, co-run {after[0]:.1%} {after[1]:.1%}")
    note(f"gang / default: {sum(gang) / sum(default):.2f}; the task: {used:.2f} CPUs, now {had:.2f}")
    for early, late, share in zip(first, last, shares, strict=True):
        turns, whole = late.turns - early.turns, late.whole - early.whole
        note(f"{whole} of {turns} turns whole")
        assert turns >= 10
        assert 0.8 * turns <= whole <= turns + 1
        assert share >= 0.8
    assert sum(gang) >= 0.9 * sum(default)
    assert had >= 0.9 * used


def measured(*guests: Guest, beside: tuple[int, int] | None = None) -> tuple[list[int], list[float], float]:
    """Iterations and co-run shares of the guests in the same time, and the CPUs that another thread had."""
    with host.traced(tid for one in guests for tid in one.group.tids) as trace:
        before = [one.counters().iterations for one in guests]
        had = cpu_shares([beside] if beside else [], SECONDS)
        done = [one.counters().iterations - count for one, count in zip(guests, before, strict=True)]
    return done, [trace.account(one.group.tids).share for one in guests], sum(had)


def cases(only: tuple[str, ...]) -> dict[str, Callable[[], None]]:
    """Every check once for each of the model's settings, in the order they are run in."""
    found: dict[str, Callable[[], None]] = {}
    for name, settings in SETTINGS[MODEL].items():
        for check, function in list(globals().items()):
            if check.startswith("check_"):
                found[f"{check}-{name}"] = functools.partial(function, settings)
    return {name: case for name, case in found.items() if name.startswith(only)}


if __name__ == "__main__":
    os.setpriority(os.PRIO_PROCESS, 0, URGENT)  # guests that spin on every CPU are in its way
    run(__file__, cases(tuple(os.environ.get("GANGD_ONLY", "").split(","))))
