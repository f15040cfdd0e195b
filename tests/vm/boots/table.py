# SPDX-License-Identifier: Apache-2.0
"""The table of boots: which checks run in which VM, and in which run of the tests.

All boots are in virtual time: other users of the machine do not matter, only for how long they take. The
default run (`make test`) has one boot for each kind of kernel and of host, `make test-long` the long ones.
Debug kernels, the Intel host and planted faults are apart, since their boots differ otherwise (test_debug.py,
test_intel.py, test_faults.py).
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab import archive, deb, kmod, virtqemud
from lab.kernels import Row, rows
from lab.paths import MODULE_SOURCE, REPO
from vm.boots import run

Scripts = Mapping[str, tuple[str, ...]]
Files = Callable[[Row, Path], Sequence[Path]]

ROWS = rows()
BOOTABLE = {name: row for name, row in ROWS.items() if row.target in (None, "test-long")}
CHECKS = ("check_",)
LONG = ("check_", "long_")
MODULE_FULL = ("6.1", "6.12")  # where gang.ko is what gangd has
WEIGHTS = ("weights", "balance", "daemon")  # the last one configures gangd
# Rows of a kind that 6.12, 6.18 and 7.3 are of, too; those that are compiled; the one that is refused.
OTHERS = ("6.1", "6.12-scx", "6.16", "6.17", "7.0", "7.1", "7.2")
SCHEDULED = ("6.12-scx", "6.16", "6.17", "7.0", "7.3")  # beside 6.18, whose boots are more
TURNS = ("6.18", "7.2-bpo")  # where tasks are pulled, and where they are pushed


def kinds(row: Row) -> tuple[str, ...]:
    """Prefixes of the checks of kernel.py that are for this row."""
    able = "able_" if row.features.sched_ext else "unable_"
    return ("check_", able, *(["kvm_"] if row.features.kvm else []))


def together(row: Row) -> tuple[str, ...]:
    """Prefixes of the checks of together.py and lhp.py that are for this row."""
    return (*CHECKS, "strict_") if row.features.kick_cpu else CHECKS


def module_files(row: Row, folder: Path) -> list[Path]:
    """Make and return the files checks/module.py needs, in `folder`: the module twice, and the fuzzer."""
    shutil.copy(kmod.module(row), folder / "gang.ko")
    shutil.copy(kmod.module(row, debug=True), folder / "gang-debug.ko")
    fuzz = [run.INSIDE / "fuzz.c", f"-I{MODULE_SOURCE}/include", "-o", folder / "fuzz"]
    subprocess.run(["gcc", "-O2", "-Wall", "-Werror", *fuzz], check=True)
    return sorted(folder.iterdir())


def package_files(row: Row, folder: Path) -> list[Path]:
    """Build the Debian package and return it, with what the toolbox has not."""
    built = next(path for path in deb.build() if path.name.startswith("gangd_"))
    return [built, *archive.fetch("trixie", ["apparmor"], folder)]


def modular_files(row: Row, folder: Path) -> list[Path]:
    """Return the package's files and libvirt in parts."""
    locks = archive.fetch("trixie", ["libvirt-daemon-lock"], folder)
    return [*package_files(row, folder), *locks, *virtqemud.files()]


@dataclass(frozen=True)
class Plan:
    """A boot. scripts: each with the prefixes of its checks, in the order in which they run. whole: with
    systemd and libvirt; project: with gangd installed; append: words for the kernel's command line."""

    row: str
    scripts: Scripts
    long: bool = False
    whole: bool = False
    project: bool = True
    cpus: int = run.CPUS
    files: Files = lambda row, folder: ()
    environment: Mapping[str, str] = field(default_factory=dict)
    append: str = ""


def _long(row: str, *scripts: str, **options: Any) -> Plan:
    """All checks of these scripts, in the long run."""
    told = {"GANGD_LONG": "1"}
    return Plan(row, dict.fromkeys(scripts, LONG), True, environment=told, **options)


def _kernel(name: str, row: Row) -> Plan:
    """The row has what it promises, and gang.ko does what it should."""
    full = name in MODULE_FULL
    scripts = {"kernel": kinds(row), "module": ("check_", "full_") if full else CHECKS}
    hostile = {"hostile": CHECKS} if name == "6.18" else {}
    told = {"GANGD_MODULE": "full" if full else "short"}
    if not row.builds_modules:
        return Plan(name, {"kernel": kinds(row)}, name in OTHERS)
    return Plan(name, {**scripts, **hostile}, name in OTHERS, files=module_files, environment=told)


def _together(name: str, *scripts: str, long: bool = False) -> Plan:
    """How far KVM guests run together, and what of their pausing is LHP: figures of the kernel's tracer."""
    return Plan(name, dict.fromkeys(scripts, together(ROWS[name])), long)


# The longest first: the processes that make them have their last at about the same time.
BOOTS: dict[str, Plan] = {
    "daemon 6.18": Plan("6.18", {"daemon": CHECKS}, whole=True),
    "gang 6.18": Plan("6.18", dict.fromkeys(("badinput", "gang"), CHECKS), whole=True),
    "package 6.18": Plan("6.18", {"package": CHECKS}, whole=True, project=False, files=package_files),
    "kernel 6.18": _kernel("6.18", ROWS["6.18"]),
    "fallback 6.12": Plan("6.12", {"fallback": CHECKS}, whole=True, files=lambda row, folder: [
        kmod.module(row), REPO / "systemd" / "gangd-module.conf"]),
    "together 6.18": _together("6.18", "together", "lhp"),
    "together 7.2-bpo": _together("7.2-bpo", "together"),
    **{f"kernel {name}": _kernel(name, row) for name, row in BOOTABLE.items() if name != "6.18"},
    # The long run.
    "weights 6.18": _long("6.18", *WEIGHTS, whole=True),
    "upgrade 6.18": _long("6.18", "package", whole=True, project=False, files=package_files),
    "modular 6.18": _long("6.18", "modular", whole=True, project=False, files=modular_files),
    "siege 6.18": _long("6.18", "lifecycle", "siege", "marks", whole=True),
    "storm 6.18": Plan("6.18", {"storm": CHECKS}, True, cpus=4, environment={"GANGD_STORM": "600"}),
    **{f"together {name}": _together(name, "together", long=True) for name in SCHEDULED},
    **{f"storm {name}": Plan(name, {"storm": CHECKS}, True, cpus=4) for name in SCHEDULED},
    **{f"whole {name}": _long(name, "daemon", "weights", whole=True) for name in SCHEDULED},
    "lhp 7.2-bpo": _together("7.2-bpo", "lhp", long=True),
    "loads 6.12": Plan("6.12", {"module": ("check_", "full_", "long_")}, True, files=module_files,
                       environment={"GANGD_MODULE": "full", "GANGD_LONG": "1"}),
    "isolated 6.18": Plan("6.18", {"isolated": ("check_", "partition_")}, True, whole=True,
                          append="nohz_full=1 isolcpus=managed_irq,1"),
    "reserved 6.18": Plan("6.18", {"reserved": CHECKS}, True, cpus=4),
    "cookies 6.12-scx": Plan("6.12-scx", {"cookies": CHECKS}, True, cpus=4),
    "kvm 6.18": Plan("6.18", {"kvm": CHECKS}, True, whole=True),
    "isolcpus 6.18": Plan("6.18", {"isolated": ("check_", "isolcpus_")}, True, append="isolcpus=1"),
    **{f"hostile {name}": _long(name, "hostile") for name in (*TURNS, *SCHEDULED)},
    **{f"gangs {name}": _long(name, "gang", "lifecycle", whole=True) for name in ("6.18", "7.2", "7.2-bpo")},
    **{f"widths {name}": _long(name, "matrix", cpus=4) for name in ("6.18", "7.2", "7.2-bpo")},
}  # fmt: skip
