# SPDX-License-Identifier: Apache-2.0
"""The simulator in C and the BPF scheduler: compiled with gcc, told and read through ctypes."""

from __future__ import annotations

import ctypes
import subprocess
import time
import zlib
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from gangd.bpf import abi
from gangsim.describe import STRUCTS, values
from gangsim.errors import Ejected
from gangsim.layout import Layout, lay_out
from gangsim.scenario import Scenario, check

SOURCES = Path(__file__).resolve().parents[1]
HELPER = SOURCES.parent
ROOMS = ("model", "machine", "kernel", "fair", "run")  # the C of the simulator; shim/ is the scheduler's
ROOT = HELPER.parent
FLAGS = ("-O2", "-g", "-shared", "-fPIC", "-std=gnu11", "-fno-strict-aliasing")
OWN_FLAGS = ("-Wall", "-Wextra", "-Werror", "-Wno-sign-compare")
# clang has its say about the scheduler's text where it is compiled for BPF
SCHEDULER_FLAGS = ("-w", "-Werror=implicit-function-declaration")
TRACES = 200_000
ERRORS = {-1: "not enough memory", -2: "the scheduler's object cannot be loaded"}


@dataclass(frozen=True)
class Run:
    """The result of one scenario under one scheduler. Names as in describe.h, times in nanoseconds.

    host: struct sim_result; guests: struct sim_guest_result of each. tasks: struct sim_task_result of each
    task, vCPUs first, with its `name` ("g0/1" is vCPU 1 of guest 0) and its `share` of a CPU.
    counters: the gang scheduler's own; stats: as it left them. trace: (start, end, CPU, task) of the time
    asked for. guest_of: number of the guest by task, -1: an ordinary task. wall: seconds the simulation took.
    """

    scheduler: str
    seconds: float
    host: dict[str, int]
    guests: list[dict[str, int]]
    tasks: list[dict[str, Any]]
    counters: dict[str, int]
    stats: bytes
    trace: list[tuple[int, int, int, int]]
    guest_of: list[int]
    wall: float

    def of(self, name: str) -> list[dict[str, Any]]:
        """The tasks of the guest or of the Task with that name."""
        return [task for task in self.tasks if task["name"].split("/")[0] == name]

    def share(self, name: str) -> float:
        """CPUs that they had, all together."""
        return sum(float(task["share"]) for task in self.of(name))


class Engine:
    """The compiled simulator. `helper` is a kernel-helper folder, whose scheduler is simulated."""

    def __init__(
        self,
        folder: Path,
        helper: Path = HELPER,
        program: Path | None = None,
        *defines: str,
    ) -> None:
        """Compile into `folder` what is not compiled yet. CalledProcessError: gcc was unhappy.

        program: another scheduler than that of `helper`, with its own orders; defines: for it, as for gcc.
        """
        folder.mkdir(parents=True, exist_ok=True)
        library = _simulator(folder)
        self._library = ctypes.CDLL(str(library))
        self._object = str(_scheduler(folder, library, helper, program, defines))
        self._make_racing = partial(_scheduler, folder, library, helper, program, defines, racing=True)

    def run(self, scenario: Scenario, scheduler: str, trace: tuple[int, int] = (0, 0)) -> Run:
        """Simulate; write down who runs where within `trace` (ns).

        ScenarioError: it cannot be. Ejected: the kernel would have thrown the scheduler out.
        """
        check(scenario)
        program = str(self._make_racing()) if scenario.race or scenario.costs.line_us else self._object
        layout = lay_out(scenario, scheduler, trace, TRACES if trace[1] else 0)
        host = STRUCTS["result"]()
        guests = (STRUCTS["guest_result"] * max(len(scenario.guests), 1))()
        tasks = (STRUCTS["task_result"] * len(layout.names))()
        traces = (STRUCTS["segment"] * layout.traces)()
        error, stats = ctypes.create_string_buffer(512), ctypes.create_string_buffer(4096)
        answer = STRUCTS["answer"](*map(ctypes.addressof, (host, guests, tasks, traces, error, stats)))
        began = time.perf_counter()
        code = self._library.sim_run(ctypes.byref(layout.description), ctypes.byref(answer), program.encode())
        wall = time.perf_counter() - began
        if code > 0:
            raise Ejected(f"'{scenario.name}': the scheduler was ejected: {error.value.decode()}")
        if code:
            raise MemoryError(f"cannot simulate '{scenario.name}': {ERRORS[code]}")
        counters = abi.GangSchedStats.unpack(stats.raw[: ctypes.sizeof(abi.GangSchedStats)])
        return Run(
            scheduler,
            scenario.seconds,
            values(host),
            [values(one) for one in guests[: len(scenario.guests)]],
            _tasks(layout, tasks, scenario.seconds),
            {name: getattr(counters, name) for name, *_ in counters._fields_ if not _is_list(counters, name)},
            stats.raw,
            [(s.start, s.end, s.cpu, s.task) for s in traces[: host.traces]],
            layout.guest_of,
            wall,
        )


def _is_list(struct: Any, name: str) -> bool:
    return not isinstance(getattr(struct, name), int)


def _tasks(layout: Layout, results: Any, seconds: float) -> list[dict[str, Any]]:
    return [
        {"name": name, "share": one.run_ns / 1e9 / seconds, **values(one)}
        for name, one in zip(layout.names, results, strict=True)
    ]


def _is_fresh(made: Path, inputs: list[Path]) -> bool:
    return made.exists() and made.stat().st_mtime > max(path.stat().st_mtime for path in inputs)


def _compile(made: Path, *arguments: str) -> Path:
    fresh = made.with_suffix(f".{time.monotonic_ns()}")
    subprocess.run(["gcc", *FLAGS, *arguments, "-o", str(fresh)], check=True)
    fresh.replace(made)
    return made


def _simulator(folder: Path) -> Path:
    library = folder / "sim.so"
    own = [path for room in ROOMS for path in sorted(SOURCES.glob(f"{room}/*.[ch]"))]
    if _is_fresh(library, [*own, *SOURCES.glob("shim/**/*.h")]):
        return library
    return _compile(library, *OWN_FLAGS, f"-I{SOURCES}", *(str(path) for path in own if path.suffix == ".c"))


def _scheduler(
    folder: Path,
    library: Path,
    helper: Path,
    program: Path | None,
    more: tuple[str, ...],
    racing: bool = False,
) -> Path:
    """The object is linked against the simulator by its path, so it calls the one that loads it.

    racing: it calls race.c at every access to memory, where the thread sanitizer's run time would be.
    """
    if program:
        more = (f'-DSHIM_SCHEDULER="{program}"', *more)
    if racing:
        more = ("-fsanitize=thread", *more)
    other = zlib.crc32(" ".join((str(helper.resolve()), *more)).encode())
    made = folder / f"gang-{other:08x}.so"
    parts = [helper / part for part in ("bpf", "core", "include")]
    own = [*SOURCES.glob("shim/**/*.[ch]"), SOURCES / "model/describe.h", library]
    own += [program] if program else []
    if _is_fresh(made, [*own, *(path for part in parts for path in part.rglob("*.[ch]"))]):
        return made
    includes = [f"-I{path}" for path in (SOURCES, SOURCES / "shim", *parts)]
    text = str(SOURCES / "shim/object.c")
    # in two steps: linked with the flag it would bring the sanitizer's own run time along
    part = _compile(made.with_suffix(".o"), "-c", *SCHEDULER_FLAGS, *more, *includes, text)
    return _compile(made, "-Wl,-z,defs", str(part), str(library.resolve()))


def run(
    scenario: Scenario, scheduler: str = "gang", helper: Path = HELPER, folder: Path = ROOT / "build/sim"
) -> Run:
    """Simulate `scenario` under the scheduler of that kernel-helper folder, compiled as far as need be."""
    return Engine(folder, helper).run(scenario, scheduler)
