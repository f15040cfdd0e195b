# SPDX-License-Identifier: Apache-2.0
"""The conditions of a figure, its origin: all that it depends on, so that no result mixes two of them."""

from __future__ import annotations

import ast
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

from guests.domains import WINDOW
from vm import emulator, kernels, project, qemu
from vm.meaning import meaning
from vm.paths import LAB
from vm.qemu import Clock

from experiments import settings
from experiments.result import Document
from experiments.seeds import image
from experiments.tile import image as tile

# By part the module that measures it in the VM.
MODULES = {"matrix": "experiments.driver", "overhead": "experiments.overhead",
           "adaptive": "experiments.adaptive", "shares": "experiments.shares",
           "seeds": "experiments.seeds.driver", "latency": "experiments.seeds.latency",
           "tile": "experiments.tile.driver"}  # fmt: skip
WITHOUT_DAEMON = ("matrix", "noise", "shares")  # their drivers order the backends themselves
LINUX = ("seeds", "latency", "tile")  # whose guests run Linux
HERE = Path(__file__).parent
# By part the program of its threads on the host.
PROGRAMS = {"overhead": HERE / "wakeup.c", **dict.fromkeys(("shares", "tile"), LAB / "checks/inside/spin.c")}
PAYLOAD_KINDS = (".S", ".c", ".h", ".ld")


def origin(part: str, options: Namespace) -> Document:
    """Return the conditions of a part's figures."""
    module = part == "matrix" or not kernels.row(options.kernel).features.sched_ext
    virtual = {"instruction_ns": 2**qemu.SHIFT, "lockstep_ns": qemu.LOCKSTEP_NS}
    return {
        "sources": sources(part, module),
        "module": module,
        "emulator": emulator.fingerprint(),
        "guest": guest(part),
        "driver": driver(part),
        "clock": options.clock,
        **(virtual if options.clock == Clock.VIRTUAL.value else {}),
        "row": options.kernel,
        "window": WINDOW,
        **settings.of_origin(options),
    }


def sources(part: str, module: bool) -> str:
    """A hash of what schedules, plans and counts in this part."""
    return project.measured(module, part not in WITHOUT_DAEMON)


def driver(part: str) -> str:
    """A hash of how a round is measured: the part's module, what that imports of the lab, and its program."""
    module = MODULES.get(part, MODULES["matrix"])
    program = [PROGRAMS[part]] if part in PROGRAMS else []
    return meaning([*sorted(imported(LAB / f"{module.replace('.', '/')}.py")), *program])


def imported(module: Path) -> set[Path]:
    """Return a file of the lab and those that it imports, in the end."""
    found: set[Path] = set()
    left = [module]
    while left:
        path = left.pop()
        if path not in found:
            found.add(path)
            left += _imports(path)
    return found


def _imports(path: Path) -> Iterator[Path]:
    """Yield the files of the lab that a file imports. A package may stand for modules."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        files = (LAB / f"{name.replace('.', '/')}.py" for name in names)
        yield from (file for file in files if file.is_file())


def guest(part: str) -> str:
    """A hash of what runs in the guests."""
    if part == "tile":
        return tile.fingerprint()
    if part in LINUX:
        return image.fingerprint()
    return meaning(sorted(path for path in (LAB / "guests/flat").iterdir() if path.suffix in PAYLOAD_KINDS))
