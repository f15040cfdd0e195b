# SPDX-License-Identifier: Apache-2.0
"""Runs in the VM, as root: what ordinary work pays for gangd.

Three kinds of work. hackbench and the pipe count seconds, the third the 99th percentile of the wait for a CPU
after a wakeup, in microseconds. Each is done under every condition in turn, there and back. There is one KVM
guest, which is frozen unless the condition says that it runs. Then, once, what each op of the scheduling
class takes, by the kernel's tracer, and what each BPF program does, as the kernel counts it.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

from bench import stats
from bench.backends import Missing, load
from bench.driver import WORK as FOLDER
from bench.driver import measure, parser, say
from bench.guest_pool import GuestPool
from bench.records import Event, Memory, OpCost, Ops
from bench.records import Overhead as Found
from gangd.control import client as control
from lab.guests.domains import Load, connect, refuse_leftovers, start
from lab.observe import ops
from lab.observe.service import cpu_seconds

# By condition what it is compared with. busy: the guest runs, and there is no gangd; daemon: gangd with its
# probes, nothing marked; loaded: the scheduler besides, without a gang; sleeping: the frozen guest is a gang;
# running: it runs.
AGAINST = {"daemon": "default", "loaded": "default", "sleeping": "default", "running": "busy"}
CONDITIONS = ("busy", "default", "daemon", "loaded", "sleeping", "running")
WITH_DAEMON = ("daemon", "loaded", "sleeping", "running")
# By condition the class that schedules ordinary work.
CLASSES = {"default": "fair", "busy": "fair", "loaded": "ext", "sleeping": "ext", "running": "ext"}
SETTLE_SECONDS = 0.5
SCHEDULED_SECONDS = 120.0  # the kernel verifies the scheduler
REST_SECONDS, AT_REST = 120.0, 0.02  # of the start; CPU seconds in a second
STATS_SECONDS = 2.0
STATS = Path("/proc/sys/kernel/bpf_stats_enabled")
HACKBENCH = ("hackbench", "-g", "1", "-l", "40")
ROUND_TRIPS = 1000
PIPE = ("perf", "bench", "-f", "simple", "sched", "pipe", "-l", str(ROUND_TRIPS))
WAKEUP_SECONDS = 1


def hackbench() -> float:
    """Seconds that 40 tasks take to pass their messages."""
    found = re.search(r"^Time: ([\d.]+)", _said(*HACKBENCH), re.MULTILINE)
    assert found, "hackbench printed no time"
    return float(found[1])


def pipe() -> float:
    """Seconds for so many turns of two tasks that wake each other through a pipe."""
    return float(_said(*PIPE).split()[-1])


def wakeup() -> float:
    """Microseconds from wakeup to CPU, 99th percentile."""
    return float(_said("/share/wakeup", str(WAKEUP_SECONDS)).split()[1])


WORK: dict[str, Callable[[], float]] = {"hackbench": hackbench, "pipe": pipe, "wakeup": wakeup}


def _said(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def main() -> int:
    """0 when everything was measured."""
    options = parser().parse_args()
    return measure("overhead", Overhead(options), options.result)


class Overhead:
    """All rounds of all kinds of work."""

    def __init__(self, options: Namespace) -> None:
        self._options = options
        self._values: dict[str, dict[str, list[float]]] = {
            work: {condition: [] for condition in CONDITIONS} for work in WORK
        }
        self._memory = Memory()
        self._events: dict[str, dict[str, Event]] = {}
        self._ops: dict[str, Ops] = {}
        self._pool: GuestPool | None = None
        self._gangd = False

    def run(self) -> Found:
        """The `overhead` part of the result. Raises Missing where our scheduler cannot be loaded."""
        connection = connect("qemu:///system")
        refuse_leftovers(connection)
        FOLDER.mkdir(parents=True, exist_ok=True)
        shutil.copy(self._options.payload, FOLDER)
        guest = Load("spin", self._options.vcpus, {"window": self._options.window})
        self._pool = GuestPool(start(connection, FOLDER / self._options.payload.name, guest, 1))
        say("the guest runs")
        self._service("stop")
        for number in range(self._options.rounds):
            for name in CONDITIONS if number % 2 == 0 else CONDITIONS[::-1]:
                with self._condition(name):
                    for work, seconds in WORK.items():
                        self._values[work][name].append(seconds())
                last = ", ".join(f"{work} {found[name][-1]:g}" for work, found in self._values.items())
                say(f"round {number + 1} of {self._options.rounds}, {name}: {last}")
        for name, kind in CLASSES.items():
            with self._condition(name):
                self._ops[name] = operations(kind)
                if kind == "ext":
                    self._events[name] = events(STATS_SECONDS)
            say(f"{name}: a pipe's round trip is {self._ops[name].round_trip_ns:.0f} ns of the class")
        return self._document()

    def close(self) -> None:
        """Neither guest nor gangd is left."""
        self._service("stop")
        if self._pool:
            self._pool.close()
        shutil.rmtree(FOLDER, ignore_errors=True)

    @contextlib.contextmanager
    def _condition(self, name: str) -> Iterator[None]:
        assert self._pool is not None
        (guest,) = self._pool.guests
        self._pool.only([])
        self._service("start" if name in WITH_DAEMON else "stop")
        marked = control.connect() if name in ("sleeping", "running") else None
        loaded = load("sched_ext") if name == "loaded" else None
        try:
            if marked:
                marked.mark(guest.name, policy="relaxed")
                _until_scheduled(marked, guest.name)
                self._memory = _memory()
            if name in ("busy", "running"):
                self._pool.only([guest])
            time.sleep(SETTLE_SECONDS)
            yield
            ejection = loaded.ejected() if loaded else None
            if ejection:
                raise Missing(f"the kernel ejected the scheduler: {ejection.sentence}")
            if marked:
                _until_scheduled(marked, guest.name)
        finally:
            self._pool.only([])
            if loaded:
                loaded.close()
            if marked:
                marked.unmark(guest.name)

    def _service(self, verb: str) -> None:
        if self._gangd != (verb == "start"):
            subprocess.run(["systemctl", verb, "gangd"], check=True)
            if verb == "start":
                _until_at_rest()
        self._gangd = verb == "start"

    def _document(self) -> Found:
        return Found(
            conditions=list(CONDITIONS),
            medians={work: {name: median(found[name]) for name in CONDITIONS}
                     for work, found in self._values.items()},
            # A ratio of times is theirs over ours, so that more is better.
            ratios={work: {name: stats.paired(zip(found[base], found[name], strict=True))
                              for name, base in AGAINST.items()}
                       for work, found in self._values.items()},
            values=self._values,
            events=self._events,
            ops=self._ops,
            memory=self._memory,
        )  # fmt: skip


def operations(kind: str) -> Ops:
    """Return what each op of a class takes while hackbench runs, and all of a pipe's round trip, in ns.

    Raises Missing where the kernel's tracer cannot tell.
    """
    try:
        with ops.traced(kind) as found:
            hackbench()
        with ops.traced(kind) as trips:
            pipe()
    except OSError as error:
        raise Missing(f"no op can be timed: {error}") from None
    spent = sum(cost["calls"] * cost["ns"] for cost in trips.values())
    costs = {op: OpCost(**cost) for op, cost in found.items()}
    return Ops(ops=costs, round_trip_ns=spent / ROUND_TRIPS)


def events(seconds: float) -> dict[str, Event]:
    """Return, by BPF program of ours, its runs meanwhile and the ns of each, which counting makes longer."""
    STATS.write_text("1")
    try:
        before = _programs()
        hackbench()
        time.sleep(seconds)
        after = _programs()
    finally:
        STATS.write_text("0")
    found = {}
    for name, (runs, spent) in after.items():
        old_runs, old_spent = before.get(name, (0, 0))
        if runs > old_runs:
            found[name] = Event(runs=runs - old_runs, ns=(spent - old_spent) / (runs - old_runs))
    return found


def _programs() -> dict[str, tuple[int, int]]:
    """Return runs and nanoseconds of all programs, by name: this VM has no others but systemd's."""
    found: dict[str, tuple[int, int]] = {}
    for program in json.loads(_said("bpftool", "-j", "prog", "show")):
        if program.get("type") in ("struct_ops", "tracing", "raw_tracepoint", "tracepoint"):
            runs, spent = found.get(program.get("name", ""), (0, 0))
            found[program.get("name", "")] = (
                runs + program.get("run_cnt", 0),
                spent + program.get("run_time_ns", 0),
            )
    return found


def _until_at_rest() -> None:
    """Wait until gangd has started: what it costs is asked of a daemon at work. Raises Missing."""
    pid = int(_said("systemctl", "show", "--value", "--property=MainPID", "gangd"))
    deadline, used = time.monotonic() + REST_SECONDS, 0.0
    while time.monotonic() < deadline:
        before, used = used, cpu_seconds(pid)
        if used and used - before < AT_REST:
            return
        time.sleep(1.0)
    raise Missing(f"gangd has not come to rest {REST_SECONDS:.0f} s after its start")


def _until_scheduled(client: Any, name: str) -> None:
    """Wait until the daemon says that the guest is scheduled as a gang. Raises Missing."""
    deadline = time.monotonic() + SCHEDULED_SECONDS
    while True:
        (found,) = (d for d in client.domains()["domains"] if d["name"] == name)
        if found["schedule"] == "relaxed":
            return
        if time.monotonic() > deadline:
            raise Missing(f"gangd does not schedule {name}: {found['schedule']}: {found['schedule_reason']}")
        time.sleep(0.25)


def _memory() -> Memory:
    """Return the bytes the kernel has locked for our maps, and these divided by the most vCPUs they hold."""
    maps = [found for found in json.loads(_said("bpftool", "-j", "map", "show")) if "name" in found]
    ours = {m["name"]: m["bytes_memlock"] for m in maps if m.get("bytes_memlock")}
    members = next((m["max_entries"] for m in maps if m["name"] == "members"), None)
    total = sum(ours.values())
    return Memory(maps=ours, bytes=total, bytes_per_vcpu=total / members if members else None)


if __name__ == "__main__":
    sys.exit(main())
