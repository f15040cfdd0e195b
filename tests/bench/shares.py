# SPDX-License-Identifier: Apache-2.0
"""Runs in the VM, as root: what everybody beside a gang has of the CPUs.

A scene is some parties that want more CPUs than there are. Each is measured in rounds, every round with
threads of its own, first under the default class, then as the scene says under our scheduler, which is loaded
once for all. A party's figure is the CPUs that its threads have together.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from msgspec.structs import asdict

from bench import stats
from bench.backends import Missing, load
from bench.driver import WORK as FOLDER
from bench.driver import measure, parser, say
from bench.guest_pool import scope_of
from bench.records import Share
from gangd.actuate.backend import Loaded
from gangd.actuate.gang_setting import CacheSetting, GangSetting, Member
from gangd.measure.proc import read_thread
from gangd.model.domain import Mode
from lab.guests.counters import domain_xml
from lab.guests.domains import PREFIX, Guest, connect, paused, refuse_leftovers, resume

CGROUPS = Path("/sys/fs/cgroup")
PERIOD_US = 100_000
SIDES = ("default", "gang")
# gangd refuses these where gang.ko schedules: a vCPU without a CPU, and a gang below a cpu.max.
NOT_OF_THE_MODULE = ("thin beside one wider than the host", "a gang with cpu.max beside hogs")


@dataclass(frozen=True)
class Party:
    """`number` processes of `width` threads that never sleep; guest: KVM guests of `width` vCPUs instead.

    gang: each of them is one. weight, quota (CPUs): of a cgroup around all of them; a guest has one anyway.
    """

    name: str
    width: int
    number: int = 1
    guest: bool = False
    gang: bool = False
    nice: int = 0
    weight: int | None = None
    quota: float | None = None


SCENES: dict[str, tuple[Party, ...]] = {
    "a hog beside a gang": (Party("gang", 4, gang=True), Party("hog", 1)),
    "thin beside wide": (Party("wide", 4, gang=True), Party("thin", 1, gang=True)),
    "thin beside one wider than the host": (Party("wide", 8, gang=True), Party("thin", 1, gang=True)),
    "100 hogs of nice 19 beside a gang": (Party("gang", 4, gang=True), Party("hogs", 1, 100, nice=19)),
    "groups of weight 100 and 10000 beside a gang": (
        Party("gang", 4, gang=True),
        Party("light", 4, weight=100),
        Party("heavy", 4, weight=10000),
    ),
    "a group with cpu.max beside a gang": (Party("gang", 4, gang=True), Party("limited", 4, quota=1.0)),
    "a gang with cpu.max beside hogs": (Party("gang", 4, gang=True, quota=1.5), Party("hogs", 1, 4)),
    "a thin guest beside a wide one": (
        Party("wide guest", 4, guest=True, gang=True),
        Party("thin guest", 1, guest=True, gang=True),
    ),
    "an unmarked guest beside a marked one": (
        Party("marked guest", 4, guest=True, gang=True),
        Party("unmarked guest", 4, guest=True),
    ),
    "a hog beside a guest": (Party("guest", 4, guest=True, gang=True), Party("hog", 1)),
}  # fmt: skip


@dataclass(frozen=True)
class Process:
    """A process that runs: its threads in the order of its vCPUs."""

    pid: int
    tids: tuple[int, ...]

    def seconds(self) -> float:
        """CPU time of its threads so far."""
        return sum(read_thread(self.pid, tid).cpu_seconds or 0.0 for tid in self.tids)


class Stage:
    """The guests of all rounds, started once and frozen between rounds, and the cgroups of the parties."""

    def __init__(self, options: Namespace) -> None:
        self._options = options
        self._guests: dict[tuple[str, str], Guest] = {}
        self._connection: Any = None

    def __enter__(self) -> Stage:
        self._connection = connect("qemu:///system")
        refuse_leftovers(self._connection)
        FOLDER.mkdir(parents=True, exist_ok=True)
        shutil.copy(self._options.payload, FOLDER)
        (CGROUPS / "cgroup.subtree_control").write_text("+cpu")
        return self

    def __exit__(self, *_: object) -> None:
        for guest in self._guests.values():
            guest.destroy()
        shutil.rmtree(FOLDER, ignore_errors=True)

    @contextlib.contextmanager
    def playing(self, scene: str) -> Iterator[dict[Party, list[Process]]]:
        """The scene's parties, all of which run until the body ends."""
        with contextlib.ExitStack() as left:
            yield {party: [*self._begin(scene, party, left)] for party in SCENES[scene]}

    def _begin(self, scene: str, party: Party, left: contextlib.ExitStack) -> Iterator[Process]:
        if party.guest:
            guest = self._guest(scene, party)
            left.enter_context(thawed(scope_of(guest)))
            yield Process(guest.pid, tuple(tid for _, tid in sorted(guest.threads().items())))
            return
        group = left.enter_context(grouped(party)) if party.weight or party.quota else None
        for _ in range(party.number):
            process = left.enter_context(spinning(party))
            if group:
                (group / "cgroup.procs").write_text(str(process.pid))
            yield process

    def _guest(self, scene: str, party: Party) -> Guest:
        if (scene, party.name) not in self._guests:
            name = f"{PREFIX}{len(self._guests)}"
            kernel = FOLDER / self._options.payload.name
            words = {"window": self._options.window}
            text = domain_xml(name, "spin", cpus=party.width, kernel=kernel, options=words)
            with paused(self._connection, [text]) as (domain,):
                guest = Guest(domain)
                resume([guest])
            self._guests[scene, party.name] = guest
        return self._guests[scene, party.name]


@contextlib.contextmanager
def thawed(scope: Path) -> Iterator[None]:
    """A guest runs in the body, and is frozen afterwards."""
    (scope / "cgroup.freeze").write_text("0")
    yield
    (scope / "cgroup.freeze").write_text("1")


@contextlib.contextmanager
def grouped(party: Party) -> Iterator[Path]:
    """A cgroup with the party's weight and quota; it is empty again when the body ends."""
    group = CGROUPS / f"shares-{party.name}"
    group.mkdir()
    try:
        if party.weight:
            (group / "cpu.weight").write_text(str(party.weight))
        if party.quota:
            (group / "cpu.max").write_text(f"{party.quota * PERIOD_US:.0f} {PERIOD_US}")
        yield group
    finally:
        group.rmdir()


@contextlib.contextmanager
def spinning(party: Party) -> Iterator[Process]:
    """A process with a thread for each vCPU of the party, on any CPU."""
    command = ["/share/spin", str(party.width)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        tids = tuple(int(process.stdout.readline()) for _ in range(party.width))
        for tid in tids:
            os.sched_setaffinity(tid, range(os.cpu_count() or 1))
            os.setpriority(os.PRIO_PROCESS, tid, party.nice)
        yield Process(process.pid, tids)
    finally:
        process.kill()
        process.wait()


class Shares:
    """All rounds of all scenes."""

    def __init__(self, options: Namespace, stage: Stage) -> None:
        self._options, self._stage = options, stage
        self._loaded: Loaded | None = None
        self._bound = not sched_ext_here()
        self._scenes = {n: s for n, s in SCENES.items() if not (self._bound and n in NOT_OF_THE_MODULE)}
        self._cpus: dict[tuple[str, str, str], list[float]] = {}

    def run(self) -> list[Share]:
        """The `shares` part of the result. Raises Missing where our scheduler cannot be had or is ejected."""
        for side in SIDES:
            if side == "gang":
                self._loaded = load("module" if self._bound else "sched_ext")
            for scene in self._scenes:
                for number in range(self._options.rounds):
                    self._round(side, scene, number)
        return [self._row(scene, party) for scene, parties in self._scenes.items() for party in parties]

    def close(self) -> None:
        """The default class is back."""
        if self._loaded:
            self._loaded.close()

    def _round(self, side: str, scene: str, number: int) -> None:
        with self._stage.playing(scene) as parties, self._marked(parties):
            time.sleep(self._options.settle)
            before, begin = used(parties), time.monotonic()
            time.sleep(self._options.seconds)
            after, passed = used(parties), time.monotonic() - begin
        ejection = self._loaded.ejected() if self._loaded else None
        if ejection:
            raise Missing(f"the kernel ejected the scheduler in {scene}: {ejection.sentence}")
        for party, had in after.items():
            found = self._cpus.setdefault((side, scene, party.name), [])
            found.append((had - before[party]) / passed)
        said = ", ".join(f"{party.name} {self._cpus[side, scene, party.name][-1]:.3f}" for party in parties)
        say(f"{side}, round {number + 1} of {self._options.rounds}, {scene}: {said} CPUs")

    @contextlib.contextmanager
    def _marked(self, parties: dict[Party, list[Process]]) -> Iterator[None]:
        """The gangs of the scene are gangs while the body runs, if our scheduler is loaded."""
        if self._loaded is None:
            yield
            return
        cpus = range(self._options.smp)
        slot_us = round(self._options.slot_ms * 1000)
        siblings = tuple(cpu - cpu % 2 for cpu in cpus)
        self._loaded.set_cache(0, CacheSetting(tuple(cpus), slot_us, siblings))
        gangs = [process for party, found in parties.items() if party.gang for process in found]
        settings = {number: setting(process) for number, process in enumerate(gangs, 1)}
        if self._bound:
            bind(gangs, {cpu: {cpu} for cpu in cpus})
        for number, words in settings.items():
            self._loaded.set_gang(number, words, {cpu: cpu for cpu in cpus})
        try:
            yield
        finally:
            for number, words in settings.items():
                self._loaded.drop_gang(number, words)
            if self._bound:
                bind(gangs, {cpu: set(cpus) for cpu in cpus})

    def _row(self, scene: str, party: Party) -> Share:
        """CPUs in each round, their medians, the ratio of the sides (stats.py), and what the party has of its
        quota under our scheduler."""
        default, gang = (self._cpus[side, scene, party.name] for side in SIDES)
        return Share(
            **asdict(stats.paired(zip(gang, default, strict=True))),
            scene=scene,
            party=party.name,
            cpus={"default": default, "gang": gang},
            default=median(default),
            gang=median(gang),
            of_quota=median(gang) / party.quota if party.quota else None,
        )


def sched_ext_here() -> bool:
    """True if the kernel has sched_ext; gang.ko schedules where it has not."""
    return Path("/sys/kernel/sched_ext").exists()


def bind(gangs: Sequence[Process], cpus: dict[int, set[int]]) -> None:
    """Each vCPU to its CPUs, as gangd has it where gang.ko schedules."""
    for process in gangs:
        for vcpu, tid in enumerate(process.tids):
            os.sched_setaffinity(tid, cpus[vcpu])


def used(parties: dict[Party, list[Process]]) -> dict[Party, float]:
    """CPU seconds of each party so far."""
    return {party: sum(process.seconds() for process in found) for party, found in parties.items()}


def setting(process: Process) -> GangSetting:
    """A gang as the actuator writes it."""
    members = tuple(Member(vcpu, tid, vcpu) for vcpu, tid in enumerate(process.tids))
    return GangSetting(0, members, Mode.RELAXED, process.pid)


def main() -> int:
    """0 when everything was measured."""
    options = parser().parse_args()
    # This process measures, so it must not wait for a turn; its children are ordinary.
    os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    with Stage(options) as stage:
        return measure("shares", Shares(options, stage), options.result)


if __name__ == "__main__":
    sys.exit(main())
