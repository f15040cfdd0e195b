# SPDX-License-Identifier: Apache-2.0
"""The conditions of a figure, its origin: all that it depends on, so that no result mixes two of them."""

from __future__ import annotations

import ast
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

from bench import settings
from bench.records import Origin
from bench.seeds import image
from bench.tile import image as tile
from lab import emulator, kernels, project, qemu
from lab.closure import closure
from lab.guests.domains import WINDOW
from lab.meaning import meaning
from lab.paths import LAB
from lab.qemu import Clock

# By part the module that measures it in the VM.
MODULES = {"matrix": "bench.driver", "overhead": "bench.overhead",
           "adaptive": "bench.adaptive", "shares": "bench.shares",
           "seeds": "bench.seeds.driver", "latency": "bench.seeds.latency",
           "tile": "bench.tile.driver"}  # fmt: skip
WITHOUT_DAEMON = ("matrix", "noise", "shares")  # their drivers order the backends themselves
LINUX = ("seeds", "latency", "tile")  # whose guests run Linux
HERE = Path(__file__).parent
TESTS = LAB.parent
# By part the program of its threads on the host.
PROGRAMS = {
    "overhead": HERE / "wakeup.c",
    **dict.fromkeys(("shares", "tile"), TESTS / "vm/checks/inside/spin.c"),
}
PAYLOAD_KINDS = (".S", ".c", ".h", ".ld")


def origin(part: str, options: Namespace) -> Origin:
    """Return the conditions of a part's figures."""
    module = part == "matrix" or not kernels.row(options.kernel).features.sched_ext
    virtual = {"instruction_ns": 2**qemu.SHIFT, "lockstep_ns": qemu.LOCKSTEP_NS}
    return Origin(
        sources=sources(part, module),
        module=module,
        emulator=emulator.fingerprint(),
        guest=guest(part),
        driver=driver(part),
        clock=options.clock,
        **(virtual if options.clock == Clock.VIRTUAL.value else {}),
        row=options.kernel,
        window=WINDOW,
        **settings.of_origin(options),
    )


def sources(part: str, module: bool) -> str:
    """A hash of what schedules, plans and counts in this part."""
    return project.measured(module, part not in WITHOUT_DAEMON)


def driver(part: str) -> str:
    """A hash of how a round is measured: the part's module, what that imports of tests/, and its program."""
    module = MODULES.get(part, MODULES["matrix"])
    program = [PROGRAMS[part]] if part in PROGRAMS else []
    return meaning([*sorted(imported(TESTS / f"{module.replace('.', '/')}.py")), *program])


def imported(module: Path) -> set[Path]:
    """Return a file of tests/ and those that it imports, in the end."""
    return closure(module, _imports)


def _imports(path: Path) -> Iterator[Path]:
    """Yield the files of tests/ that a file imports. A package may stand for modules."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        files = (TESTS / f"{name.replace('.', '/')}.py" for name in names)
        yield from (file for file in files if file.is_file())


def guest(part: str) -> str:
    """A hash of what runs in the guests."""
    if part == "tile":
        return tile.fingerprint()
    if part in LINUX:
        return image.fingerprint()
    return meaning(sorted(path for path in (LAB / "guests/flat").iterdir() if path.suffix in PAYLOAD_KINDS))
