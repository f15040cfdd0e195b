# SPDX-License-Identifier: Apache-2.0
"""From a scenario to the structs of describe.h: who is where, in which cgroup, with which number."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gangsim import placement
from gangsim.describe import CPUS, NEVER, NONE, STRUCTS
from gangsim.scenario import LOADS, MODES, ROLES, SCHEDULERS, Group, Guest, Scenario, Task

TOGETHER_NS = 1_000_000  # vCPUs start within
FIRST_PID = 1000
MACHINE, SYSTEM = "machine", "system"


@dataclass
class Layout:
    """The description, and what it points to, which has to live as long."""

    description: Any
    names: list[str]
    guest_of: list[int]
    traces: int
    keep: list[Any] = field(default_factory=list)


class _Maker:
    def __init__(self, scenario: Scenario, scheduler: str) -> None:
        self.scenario, self.scheduler = scenario, scheduler
        self.random = random.Random(scenario.seed)
        self.groups: list[Any] = []
        self.numbers: dict[str, int] = {}
        self.guests: list[Any] = []
        self.tasks: list[Any] = []
        self.names: list[str] = []
        self.group(Group("", 100))
        for one in (Group(MACHINE), Group(SYSTEM), *scenario.groups):
            self.group(one)
        placed = placement.place(scenario.host, scenario.guests, self.scheduler != "pinned")
        for number, guest in enumerate(scenario.guests):
            self.guest(number, guest, *placed[number])
        for task in scenario.tasks:
            self.ordinary(task)

    def group(self, group: Group) -> int:
        quota = NEVER if group.cpus is None else round(group.cpus * group.period_us * 1000)
        number = self.numbers[group.name] = self.numbers.get(group.name, len(self.groups))
        made = STRUCTS["group_config"](
            quota_ns=quota,
            period_ns=round(group.period_us * 1000),
            parent=self.numbers[group.parent] if group.parent else 0,
            weight=group.weight,
            idle=group.idle,
        )
        self.groups[number : number + 1] = [made]
        return number

    def guest(self, number: int, guest: Guest, domain: int, homes: Sequence[int]) -> None:
        """Lay a guest out as libvirt does: a cgroup for the guest, in it one for each vCPU."""
        name = guest.called(number)
        marked = guest.marked and self.scheduler == "gang"
        own = Group(name, guest.weight, guest.parent or MACHINE, guest.cpus, idle=guest.idle)
        self.group(own)
        self.guests.append(
            STRUCTS["guest_config"](
                work_ns=guest.work_ns,
                extra_ns=guest.extra_ns,
                unmark_ns=NEVER if guest.unmark_ms is None else round(guest.unmark_ms * 1e6),
                load=LOADS.index(guest.load),
                vcpus=guest.vcpus,
                first=len(self.tasks),
                gang=1 + sum(1 for one in self.guests if one.gang) if marked else 0,
                domain=domain,
                mode=MODES.index(guest.mode or self.scenario.mode),
                ple=guest.ple,
            )
        )
        tgid = FIRST_PID + len(self.tasks)
        homes = guest.pins or homes
        room = guest.cpus_of(self.scenario.host)
        for index in range(guest.vcpus):
            bound = guest.pins or self.scheduler == "pinned"
            self.task(
                f"{name}/{index}",
                **_pace(guest, index),
                start_ns=self.start(guest, index),
                allowed=[homes[index]] if bound else room,
                guest=number,
                index=index,
                home=homes[index],
                group=self.group(Group(f"{name}/vcpu{index}", parent=name)),
                tgid=tgid,
            )

    def start(self, guest: Guest, index: int) -> int:
        """A vCPU's start, in ns. One of a pair that wakes each other begins; an odd one sleeps for ever."""
        role, busy = guest.role(index), guest.members
        if role == "asleep" or (
            guest.load == "sleep" and role == "member" and (index & 1 or index + 1 == busy)
        ):
            return NEVER
        within = guest.extra_ns if guest.load == "duty" else TOGETHER_NS
        return self.random.randrange(max(within, 1))

    def ordinary(self, task: Task) -> None:
        allowed = range(self.scenario.host.cpus) if task.cpus is None else task.cpus
        for index in range(task.count):
            home = self.random.choice(list(allowed)) if task.cpus is None else task.cpus[index % len(allowed)]
            links = 2 if task.load == "chain" else 1
            start = round(task.start_ms * 1e6) + self.random.randrange(TOGETHER_NS)
            for link in range(links):
                self.task(
                    f"{task.name or task.load}/{index}" + ("'" if link else ""),
                    work_ns=round(task.work_us * 1000),
                    sleep_ns=round(task.sleep_us * 1000),
                    role=ROLES.index(task.load),
                    start_ns=NEVER if link else start,
                    allowed=allowed,
                    guest=NONE,
                    index=link,
                    home=home,
                    group=self.numbers[task.group or SYSTEM],
                    nice=task.nice,
                    idle=task.idle,
                    kthread=task.kthread,
                    tgid=FIRST_PID + len(self.tasks),
                )

    def task(self, name: str, allowed: Sequence[int], **members: int) -> None:
        pid = FIRST_PID + len(self.tasks)
        self.tasks.append(STRUCTS["task_config"](allowed=_words(allowed), pid=pid, **members))
        self.names.append(name)


def _words(cpus: Iterable[int]) -> Any:
    """Return a bit for each CPU, as the simulator has sets of them."""
    words = (ctypes.c_uint64 * (CPUS // 64))()
    for cpu in cpus:
        words[cpu // 64] |= 1 << cpu % 64
    return words


def _pace(guest: Guest, index: int) -> dict[str, int]:
    role = guest.role(index)
    work, sleep = guest.work_ns, guest.extra_ns
    if role == "cycle":
        work, sleep = round(guest.rest_work_us * 1000), round(guest.rest_sleep_us * 1000)
    return {"role": ROLES.index(role), "work_ns": work, "sleep_ns": sleep}


def lay_out(scenario: Scenario, scheduler: str, trace: tuple[int, int], traces: int) -> Layout:
    """The whole description of one run."""
    maker = _Maker(scenario, scheduler)
    config = _config(scenario, scheduler, maker)
    config.trace_from, config.trace_to, config.traces = *trace, traces
    keep = [config, *map(_array, (maker.groups, maker.guests, maker.tasks))]
    description = STRUCTS["description"](*(ctypes.addressof(one) for one in keep))
    guest_of = [-1 if one.guest == NONE else one.guest for one in maker.tasks]
    return Layout(description, maker.names, guest_of, traces, keep)


def _array(made: list[Any]) -> Any:
    return (type(made[0]) * len(made))(*made) if made else ctypes.c_uint64()


def _config(scenario: Scenario, scheduler: str, maker: _Maker) -> Any:
    host = scenario.host
    return STRUCTS["config"](
        seed=scenario.seed,
        duration_ns=round(scenario.seconds * 1e9),
        scheduler=SCHEDULERS.index(scheduler),
        cpus=host.cpus,
        threads=host.threads,
        llc_cpus=host.llc_cpus,
        starts=_words(domain[0] for domain in host.domains()),
        guests=len(maker.guests),
        tasks=len(maker.tasks),
        groups=len(maker.groups),
        race=scenario.race,
        together=scenario.ticks_together,
        forgets=scenario.forgets,
        **scenario.costs.of(scheduler),
    )
