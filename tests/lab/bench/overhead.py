# SPDX-License-Identifier: Apache-2.0
"""Runs in the VM, as root: what ordinary work pays for our scheduler when nothing is marked.

Three kinds of work, each under the default class, under our full-switch scheduler with no gang, and beside
a gang that sleeps; in turn, there and back. hackbench and the pipe count seconds, the third the 99th
percentile of the wait for a CPU after a wakeup, in microseconds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

from demo.machine import SharedMachine, between

from bench import result
from bench.backends import Missing, load
from bench.driver import parser
from bench.switch import COLUMNS, CPUS, cores
from gangd.actuate.backend import Loaded
from gangd.model.domain import WEIGHT_DEFAULT, Mode

CONDITIONS = ("default", "loaded", "sleeping")
BEGIN = time.monotonic()
SETTLE_SECONDS = 0.5
HACKBENCH = ("hackbench", "-g", "2", "-l", "150")
PIPE = ("perf", "bench", "-f", "simple", "sched", "pipe", "-l", "4000")
WAKEUP_SECONDS = 3
ROUNDS_FACTOR = 2


def hackbench() -> float:
    """Seconds that 80 tasks take to pass their messages."""
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
    document = json.loads(options.result.read_text()) if options.result.exists() else result.empty()
    try:
        document["overhead"] = Overhead(options).run()
    except Missing as missing:
        _say(f"not available: {missing}")
        return 1
    document["kernel"] = os.uname().release
    new = options.result.with_suffix(".new")
    new.write_text(json.dumps(result.finish(document), indent=1) + "\n")
    new.replace(options.result)
    return 0 if document["overhead"]["complete"] else 1


class Overhead:
    """All rounds of all kinds of work."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        # Ordinary work scatters more than guests that do nothing but spin.
        self._rounds: int = options.rounds * ROUNDS_FACTOR
        self._machine = SharedMachine(options.machine)
        self._values: dict[str, dict[str, list[float]]] = {
            work: {condition: [] for condition in CONDITIONS} for work in WORK
        }
        self._thrown = 0
        self._memory: dict[str, Any] = {}

    def run(self) -> dict[str, Any]:
        """The `overhead` part of the result. Raises Missing where our scheduler cannot be loaded."""
        for number in range(self._rounds):
            for name in CONDITIONS if number % 2 == 0 else CONDITIONS[::-1]:
                with _condition(name, round(self._options.slot_ms * 1000), self._memory):
                    time.sleep(SETTLE_SECONDS)
                    self._measure(name, number)
            _say(f"round {number + 1} of {self._rounds}: " + "; ".join(self._last()))
        return self._document()

    def _measure(self, condition: str, number: int) -> None:
        for work, measure in WORK.items():
            values = self._values[work][condition]
            while len(values) <= number and self._thrown <= self._options.patience:
                quiet = self._machine.sample()
                value = measure()
                self._machine.sample()  # may be older than the end; the next one is not
                if between(quiet, self._machine.sample()).disturbed(self._options.disturbed):
                    self._thrown += 1
                    continue
                values.append(value)

    def _last(self) -> Iterator[str]:
        for work, found in self._values.items():
            last = ", ".join(f"{name} {values[-1]:g}" for name, values in found.items() if values)
            yield f"{work}: {last}"

    def _document(self) -> dict[str, Any]:
        medians = {
            work: {name: median(values) for name, values in found.items() if values}
            for work, found in self._values.items()
        }
        # Of times: the default's over ours, so that more is better.
        ratios = {
            work: {name: found["default"] / found[name] for name in CONDITIONS[1:] if name in found}
            for work, found in medians.items()
            if "default" in found
        }
        rounds = [len(values) for found in self._values.values() for values in found.values()]
        return {
            "conditions": list(CONDITIONS),
            "medians": medians,
            "ratios": ratios,
            "values": self._values,
            "thrown_away": self._thrown,
            "memory": self._memory,
            "complete": min(rounds) >= self._rounds,
        }


@contextlib.contextmanager
def _condition(name: str, slot_us: int, memory: dict[str, Any]) -> Iterator[None]:
    """The default class; our scheduler; our scheduler with a gang of which nobody runs."""
    if name == "default":
        yield
        return
    loaded = load("sched_ext", None)
    sleeper = subprocess.Popen(["sleep", "infinity"])
    try:
        if name == "sleeping":
            _mark(loaded, sleeper.pid, slot_us)
        memory.update(_memory())
        yield
        ejection = loaded.ejected()
        if ejection:
            raise Missing(f"the kernel ejected the scheduler: {ejection.sentence}")
    finally:
        loaded.close()
        sleeper.kill()
        sleeper.wait()


def _mark(loaded: Loaded, pid: int, slot_us: int) -> None:
    """A gang of one thread, on the first CPU."""
    os.sched_setaffinity(pid, {CPUS[0]})
    loaded.set_domain(0, list(CPUS), slot_us, cores())
    setting = {"domain": 0, "members": [[0, pid, CPUS[0]]], "mode": Mode.RELAXED.value, "pid": pid,
               "weight": WEIGHT_DEFAULT}  # fmt: skip
    loaded.set_gang(1, setting, COLUMNS)


def _memory() -> dict[str, Any]:
    """What the kernel has locked for our maps, and that by the most vCPUs they can hold."""
    maps = json.loads(_said("bpftool", "-j", "map", "show"))
    ours = {m["name"]: m["bytes_memlock"] for m in maps if m.get("bytes_memlock")}
    members = next((m["max_entries"] for m in maps if m["name"] == "members"), None)
    total = sum(ours.values())
    return {"maps": ours, "bytes": total, "bytes_per_vcpu": total / members if members else None}


def _say(sentence: str) -> None:
    print(f"[{time.monotonic() - BEGIN:5.0f} s] {sentence}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
