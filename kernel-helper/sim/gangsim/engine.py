# SPDX-License-Identifier: Apache-2.0
"""The simulator in C: compiled with gcc, described and read through ctypes (mirror of sim.h)."""

from __future__ import annotations

import ctypes
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gangsim import placement
from gangsim.scenario import LOADS, MODES, SCHEDULERS, Scenario, check

SOURCES = Path(__file__).resolve().parents[1]
HELPER = SOURCES.parent
FLAGS = ("-O2", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-Wno-sign-compare")
TRACES = 200_000
U32, U64 = ctypes.c_uint32, ctypes.c_uint64


def _struct(name: str, wide: str, narrow: str = "") -> type[ctypes.Structure]:
    """A C struct of 64-bit members, then 32-bit ones."""
    fields = [(field, U64) for field in wide.split()] + [(field, U32) for field in narrow.split()]
    return type(name, (ctypes.Structure,), {"_fields_": fields})


Config = _struct(
    "Config",
    "seed duration_ns slot_ns slice_ns switch_ns kick_ns jitter_ns balance_ns trace_from trace_to",
    "scheduler cpus threads llc_cpus guests domains traces pad",
)
GuestConfig = _struct("GuestConfig", "work_ns extra_ns", "load vcpus weight first domain mode")
Place = _struct("Place", "", "domain column")
GuestResult = _struct(
    "GuestResult",
    "rounds run_ns wait_ns some_ns corun_ns starts costarted skew_ns skew_max_ns vcpu_min_ns vcpu_max_ns",
)
Result = _struct(
    "Result",
    "run_ns switch_ns idle_ns costop_ns decisions switches kicks migrations slots early_ends fillers"
    " search_lines events",
    "traces pad",
)
Segment = _struct("Segment", "start end", "cpu guest")


@dataclass(frozen=True)
class Run:
    """What one scheduler made of one scenario. Names as in sim.h, times in nanoseconds.

    host: struct sim_result; guests: struct sim_guest_result of each.
    trace: (start, end, CPU, guest) of the time asked for.
    wall: seconds the simulation itself took.
    """

    scheduler: str
    seconds: float
    host: dict[str, int]
    guests: list[dict[str, int]]
    trace: list[tuple[int, int, int, int]]
    wall: float


class Engine:
    """The compiled simulator."""

    def __init__(self, folder: Path) -> None:
        """Compile into `folder` what is not compiled yet. CalledProcessError: gcc was unhappy."""
        self._library = ctypes.CDLL(str(_compiled(folder)))

    def run(self, scenario: Scenario, scheduler: str, trace: tuple[int, int] = (0, 0)) -> Run:
        """Simulate; write down who runs where within `trace` (ns). ScenarioError: it cannot be."""
        check(scenario)
        placed = placement.place(scenario.host, scenario.guests)
        config = _config(scenario, scheduler, trace)
        guests = _guests(scenario, placed)
        homes = [cpu for _, cpus in placed for cpu in cpus]
        host, results = Result(), (GuestResult * len(guests))()
        segments = (Segment * config.traces)()
        began = time.perf_counter()
        error = self._library.sim_run(
            ctypes.byref(config), guests, _places(scenario), (U32 * len(homes))(*homes),
            ctypes.byref(host), results, segments,
        )  # fmt: skip
        if error:
            raise MemoryError(f"cannot simulate '{scenario.name}': not enough memory")
        wall = time.perf_counter() - began
        found = [(s.start, s.end, s.cpu, s.guest) for s in segments[: host.traces]]
        return Run(scheduler, scenario.seconds, _values(host), [_values(r) for r in results], found, wall)


def _compiled(folder: Path) -> Path:
    library = folder / "sim.so"
    inputs = [*SOURCES.glob("*.[ch]"), *(HELPER / "core").glob("*.h"), *(HELPER / "include").glob("*.h")]
    if library.exists() and library.stat().st_mtime > max(path.stat().st_mtime for path in inputs):
        return library
    folder.mkdir(parents=True, exist_ok=True)
    includes = [f"-I{HELPER / part}" for part in ("core", "include")]
    sources = sorted(str(path) for path in SOURCES.glob("*.c"))
    fresh = library.with_suffix(".so.tmp")
    subprocess.run(["gcc", *FLAGS, *includes, *sources, "-o", str(fresh)], check=True)
    fresh.replace(library)
    return library


def _config(scenario: Scenario, scheduler: str, trace: tuple[int, int]) -> Any:
    host, costs = scenario.host, scenario.costs
    names = ("slot", "slice", "switch", "kick", "jitter", "balance")
    return Config(
        seed=scenario.seed,
        duration_ns=round(scenario.seconds * 1e9),
        trace_from=trace[0],
        trace_to=trace[1],
        scheduler=SCHEDULERS.index(scheduler),
        cpus=host.cpus,
        threads=host.threads,
        llc_cpus=host.llc_cpus,
        guests=len(scenario.guests),
        domains=len(host.domains()),
        traces=TRACES if trace[1] else 0,
        **{f"{name}_ns": round(1000 * getattr(costs, f"{name}_us")) for name in names},
    )


def _guests(scenario: Scenario, placed: list[tuple[int, list[int]]]) -> Any:
    first, found = 0, []
    for guest, (domain, _) in zip(scenario.guests, placed, strict=True):
        mode = MODES.index(scenario.mode)
        load = LOADS.index(guest.load)
        values = (guest.work_ns, guest.extra_ns, load, guest.vcpus, guest.weight, first, domain, mode)
        found.append(GuestConfig(*values))
        first += guest.vcpus
    return (GuestConfig * len(found))(*found)


def _places(scenario: Scenario) -> Any:
    found = [
        Place(index, column)
        for index, domain in enumerate(scenario.host.domains())
        for column in range(len(domain))
    ]
    return (Place * len(found))(*found)


def _values(struct: ctypes.Structure) -> dict[str, int]:
    return {field[0]: getattr(struct, field[0]) for field in struct._fields_ if field[0] != "pad"}
