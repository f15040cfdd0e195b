# SPDX-License-Identifier: Apache-2.0
"""The simulator, compiled once, and with a scheduler that writes down how it is called."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gangsim.costs import Costs
from gangsim.engine import HELPER, Engine, Run
from gangsim.scenario import Host, Scenario, Task

PROBE = Path(__file__).with_name("probe.bpf.c")
KINDS = (
    "none", "init", "cgroup_init", "init_task", "enable", "set_weight", "disable", "exit_task", "select",
    "runnable", "enqueue", "dispatch", "running", "stopping", "quiescent", "yield", "tick", "timer",
)  # fmt: skip
PRICES = ("op", "call", "queue", "step", "select", "enqueue", "dispatch", "running", "stopping", "timer_op")
FREE = Costs(**{f"{name}_us": 0.0 for name in PRICES})
BOOT_US = 1_000_000_000
Event = tuple[float, str, int, int, int]
Probe = Callable[..., list[Event]]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sim")


@pytest.fixture(scope="session")
def engine(folder: Path) -> Engine:
    """A compiler that is missing or unhappy is a failure."""
    return Engine(folder)


@pytest.fixture(scope="session")
def probe(folder: Path) -> Probe:
    """Run tasks under the probe, compiled with `defines`; returns what it wrote down.

    Of each call: microseconds, its name, pid, CPU, flags. Decisions are free unless costs are given.
    """

    def run(*tasks: Task, defines: str = "", cpus: int = 1, ms: float = 100, **other: object) -> list[Event]:
        scenario = Scenario("probe", Host(cpus, 1, cpus), (), ms / 1000, costs=FREE, tasks=tasks)
        scenario = replace(scenario, **other)  # type: ignore[arg-type]
        made = Engine(folder, HELPER, PROBE, *(f"-D{one}" for one in defines.split()))
        found = made.run(scenario, "gang").stats
        events = [one for one in struct.iter_unpack("=QQIiII", found) if one[2]]
        return [
            (now / 1000 - BOOT_US, KINDS[kind], pid, cpu, flags) for now, flags, kind, pid, cpu, _ in events
        ]

    return run


def shared_core_us(run: Run, threads: int) -> list[float]:
    """Each time that two parties were on one core at once."""
    cores: dict[int, list[tuple[int, int, int]]] = {}
    for start, end, cpu, task in run.trace:
        cores.setdefault(cpu // threads, []).append((start, end, run.guest_of[task]))
    found = []
    for parts in cores.values():
        until: dict[int, int] = {}
        for start, end, party in sorted(parts):
            found += [
                (min(end, at) - start) / 1e3 for other, at in until.items() if other != party and at > start
            ]
            until[party] = max(until.get(party, 0), end)
    return found
