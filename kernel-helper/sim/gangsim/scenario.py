# SPDX-License-Identifier: Apache-2.0
"""The input of a simulation: a host, its guests, the costs of operations. Plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from gangsim.errors import ScenarioError

MAX_CPUS = 1024  # GANG_MAX_CPUS
DOMAIN_CPUS = 64  # GANG_DOMAIN_CPUS
DOMAIN_GANGS = 256  # GANG_DOMAIN_GANGS
MAX_GUESTS = 1023  # GANG_MAX_GANGS without "no gang"
MAX_VCPUS = 128  # sim_mask
MAX_LLCS = 64  # GANG_MAX_DOMAINS

SCHEDULERS = ("gang", "default", "pinned", "balance")  # enum sim_scheduler, in its order
ROLES = ("member", "asleep", "hog", "cycle", "chain")  # enum sim_role, in its order
LOADS = ("spin", "barrier", "ipi", "sleep", "duty")  # enum sim_load, in its order
MODES = ("off", "balance", "relaxed", "strict")  # enum gang_mode, in its order

# microseconds of work a round, and of what follows it (load.c says what that is)
DEFAULT_WORK = {
    "spin": (100.0, 0.0),
    "barrier": (20.0, 0.0),
    "ipi": (20.0, 2.0),
    "sleep": (500.0, 0.0),
    "duty": (2000.0, 2000.0),
}


@dataclass(frozen=True)
class Guest:
    """A guest: its load (one of LOADS), its width, its cgroup weight, microseconds of a round.

    busy: its first vCPUs do the load, None: all; of the others each works rest_work_us, then sleeps for
    rest_sleep_us, or sleeps for ever. cpus: cpu.max of the guest, in CPUs. ple: vCPUs that spin exit.
    marked: scheduled as a gang, where there are gangs, until unmark_ms if given; mode: the scenario's,
    if None. pins: the CPU that an operator gave each vCPU. room: the CPUs that an operator limits it to.
    """

    load: str = "barrier"
    vcpus: int = 2
    weight: int = 100
    work_us: float | None = None
    extra_us: float | None = None
    busy: int | None = None
    rest_work_us: float = 0
    rest_sleep_us: float = 0
    ple: bool = False
    marked: bool = True
    mode: str | None = None
    name: str = ""
    parent: str = ""
    cpus: float | None = None
    idle: bool = False
    unmark_ms: float | None = None
    pins: tuple[int, ...] | None = None
    room: tuple[int, ...] | None = None

    @property
    def work_ns(self) -> int:
        """Work of one round."""
        return round(1000 * (DEFAULT_WORK[self.load][0] if self.work_us is None else self.work_us))

    @property
    def extra_ns(self) -> int:
        """ipi: what an interrupt costs its receiver; duty: how long a vCPU sleeps."""
        return round(1000 * (DEFAULT_WORK[self.load][1] if self.extra_us is None else self.extra_us))

    @property
    def members(self) -> int:
        """vCPUs that do the load."""
        return self.vcpus if self.busy is None else self.busy

    def called(self, number: int) -> str:
        """Return the guest's name, made of its `number` where it has none."""
        return self.name or f"g{number}"

    def cpus_of(self, host: Host) -> Sequence[int]:
        """The CPUs that its vCPUs may have, unless pinned."""
        return self.room or range(host.reserved, host.cpus)

    def role(self, index: int) -> str:
        """The role of vCPU `index`, one of ROLES."""
        if index >= self.members:
            return "cycle" if self.rest_work_us else "asleep"
        return "member"


@dataclass(frozen=True)
class Task:
    """`count` ordinary tasks. hog: never sleeps; cycle: works, sleeps; chain: works, forks the next, exits.

    cpus: where they may run, None: anywhere; group: the name of a Group; start_ms: when they begin.
    """

    load: str = "hog"
    count: int = 1
    work_us: float = 1000
    sleep_us: float = 1000
    nice: int = 0
    idle: bool = False
    cpus: tuple[int, ...] | None = None
    group: str = ""
    kthread: bool = False
    start_ms: float = 0
    name: str = ""


@dataclass(frozen=True)
class Group:
    """A cgroup: cpu.weight, cpu.max in CPUs, cpu.idle. parent: a group before it, none: the root."""

    name: str
    weight: int = 100
    parent: str = ""
    cpus: float | None = None
    period_us: float = 100_000
    idle: bool = False


@dataclass(frozen=True)
class Host:
    """CPUs in cores of `threads` hardware threads and last-level caches of `llc_cpus` CPUs.

    reserved: the first CPUs, which no guest may have (AllowedCPUs= of machine.slice).
    """

    cpus: int = 8
    threads: int = 2
    llc_cpus: int = 64
    reserved: int = 0

    def domains(self) -> list[range]:
        """Return the CPUs of each gang domain: gangd.model.columns.host_domains."""
        cache = self.llc_cpus if self.llc_cpus > 1 else self.cpus
        width = DOMAIN_CPUS // self.threads * self.threads
        starts = [cpu for cpu in range(self.cpus) if cpu == self.reserved or cpu % cache % width == 0]
        return [range(*ends) for ends in zip(starts, [*starts[1:], self.cpus], strict=True)]


@dataclass(frozen=True)
class Costs:
    """Microseconds; docs/simulation.md has the reasons.

    turn: the longest of a gang; slice: of EEVDF on one CPU; tick: of the scheduler; switch: nobody runs;
    kick: from sending an interrupt to the CPU choosing anew; send: of each, to the sender; timer: how late
    one fires; ple: a spinning vCPU exits after; exit: what that costs; balance: between two looks of EEVDF
    for a busier CPU.
    Of the scheduler: select, enqueue, dispatch, running, stopping, timer_op: a call of that op or of a
    timer's callback; op: of any other. To each is added what it does: call: each look at a map or queue;
    queue: each lock taken; step: each round of a loop.
    """

    turn_us: float = 12_000
    slice_us: float = 700
    switch_us: float = 2
    kick_us: float = 3
    send_us: float = 0.5
    timer_us: float = 3
    tick_us: float = 4_000
    ple_us: float = 20
    exit_us: float = 2
    balance_us: float = 32_000
    select_us: float = 0.1
    enqueue_us: float = 0.1
    dispatch_us: float = 0.1
    running_us: float = 0.1
    stopping_us: float = 0.1
    timer_op_us: float = 0.5
    op_us: float = 0.1
    call_us: float = 0.015
    queue_us: float = 0.06
    step_us: float = 0.003


@dataclass(frozen=True)
class Scenario:
    """A scenario to simulate under several schedulers.

    race: CPUs meet inside the gang scheduler, left at one in so many of its accesses to memory.
    ticks_together: ticks come to all CPUs at once, as real ones do; else each CPU has a phase of its own.
    forgets: sched_ext loses SCX_ENQ_PREEMPT of a task that is moved to another CPU, as before 7.0.
    """

    name: str
    host: Host
    guests: tuple[Guest, ...]
    seconds: float = 10
    seed: int = 1
    mode: str = "relaxed"
    costs: Costs = field(default_factory=Costs)
    schedulers: tuple[str, ...] = SCHEDULERS
    tasks: tuple[Task, ...] = ()
    groups: tuple[Group, ...] = ()
    race: int = 0
    ticks_together: bool = False
    forgets: bool = True

    @property
    def vcpus(self) -> int:
        """The number of vCPUs of all guests."""
        return sum(guest.vcpus for guest in self.guests)

    def alone(self, guest: Guest, seconds: float = 10) -> Scenario:
        """`guest` with a host of this kind to itself."""
        return replace(self, guests=(guest,), tasks=(), seconds=seconds)


def check(scenario: Scenario) -> None:
    """Raise ScenarioError with one sentence if it cannot be simulated."""
    host = scenario.host
    whole = host.cpus % host.threads == 0 and host.llc_cpus % host.threads == 0
    faults = {
        f"{host.cpus} CPUs, from 1 to {MAX_CPUS} can be": not 1 <= host.cpus <= MAX_CPUS,
        f"cores of {host.threads} threads, from 1 to 8 can be": not 1 <= host.threads <= 8,
        "CPUs that do not make whole cores": not whole,
        f"more than {MAX_LLCS} caches": -(-host.cpus // max(host.llc_cpus, 1)) > MAX_LLCS,
        f"{len(scenario.guests)} guests, from 1 to {MAX_GUESTS} can be": len(scenario.guests) > MAX_GUESTS
        or not (scenario.guests or scenario.tasks),
        f"no time to simulate: {scenario.seconds} s": scenario.seconds <= 0,
        f"a scheduler that is none of {', '.join(SCHEDULERS)}": not set(scenario.schedulers)
        <= set(SCHEDULERS),
        f"a mode that is none of {', '.join(MODES[2:])}": scenario.mode not in MODES[2:],
        "a time that is not positive": min(vars(scenario.costs).values()) < 0
        or min(getattr(scenario.costs, f"{name}_us") for name in ("turn", "slice", "tick", "balance")) <= 0,
        **{fault: True for guest in scenario.guests for fault in _faults(guest, host)},
        **{fault: True for task in scenario.tasks for fault in _task_faults(task, scenario)},
        **dict.fromkeys(_group_faults(scenario), True),
    }
    for fault, found in faults.items():
        if found:
            raise ScenarioError(f"cannot simulate '{scenario.name}': it has {fault}")


def _faults(guest: Guest, host: Host) -> list[str]:
    if guest.load not in LOADS:
        return [f"a load '{guest.load}', which is none of {', '.join(LOADS)}"]
    widest = min(host.cpus, MAX_VCPUS)
    faults = []
    if not 1 <= guest.vcpus <= widest:
        faults.append(f"a guest of {guest.vcpus} vCPUs, from 1 to {widest} fit the host")
    if guest.load in ("ipi", "sleep") and guest.vcpus < 2:
        faults.append(f"a guest of one vCPU with load {guest.load}, which needs two")
    if guest.pins is not None and (
        len(guest.pins) != guest.vcpus or not set(guest.pins) <= set(range(host.cpus))
    ):
        faults.append(f"a guest of {guest.vcpus} vCPUs pinned to CPUs {guest.pins}")
    if guest.room is not None and not set(guest.room) & set(range(host.cpus)):
        faults.append(f"a guest limited to CPUs {guest.room}")
    if guest.work_ns <= 0 or (guest.load in ("ipi", "duty") and guest.extra_ns <= 0):
        faults.append("a round of no time")
    if guest.busy is not None and not 0 <= guest.busy <= guest.vcpus:
        faults.append(f"a guest of {guest.vcpus} vCPUs of which {guest.busy} are busy")
    if not 1 <= guest.weight <= 10000:
        faults.append(f"a weight of {guest.weight}, from 1 to 10000 can be")
    return faults


def _task_faults(task: Task, scenario: Scenario) -> list[str]:
    faults = []
    if task.load not in ROLES[2:]:
        faults.append(f"a task '{task.load}', which is none of {', '.join(ROLES[2:])}")
    if task.work_us <= 0 or (task.load == "cycle" and task.sleep_us <= 0) or task.count < 1:
        faults.append("a task that does nothing")
    if not -20 <= task.nice <= 19:
        faults.append(f"a task of nice {task.nice}, from -20 to 19 can be")
    if task.cpus is not None and not (task.cpus and set(task.cpus) <= set(range(scenario.host.cpus))):
        faults.append("a task that may run on no CPU, or on one that is not there")
    if task.group and task.group not in {group.name for group in scenario.groups}:
        faults.append(f"a task in group '{task.group}', which is not there")
    return faults


def _group_faults(scenario: Scenario) -> list[str]:
    known, faults = {"", "machine", "system"}, []
    guests = {guest.called(number) for number, guest in enumerate(scenario.guests)}
    for group in scenario.groups:
        if group.name in guests:
            faults.append(f"a group '{group.name}' of a guest's name")
        if group.parent not in known:
            faults.append(f"a group '{group.name}' in '{group.parent}', which is not there before it")
        if not 1 <= group.weight <= 10000 or (group.cpus is not None and group.cpus <= 0):
            faults.append(f"a group '{group.name}' of no weight or no time")
        known.add(group.name)
    return faults
