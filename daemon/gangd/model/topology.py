# SPDX-License-Identifier: Apache-2.0
"""The host's CPUs: threads, cores, last-level caches, packages, NUMA nodes.

Source: /sys/devices/system/cpu (Documentation/admin-guide/cputopology.rst and
Documentation/ABI/testing/sysfs-devices-system-cpu). The root is an argument, so
that a directory tree is a test fixture.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

# Six digits: far above any NR_CPUS, and a hostile "0-99999999999" costs nothing.
_RANGE = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?")


@dataclass(frozen=True)
class Cpu:
    """One online logical CPU. `core`, `llc` are the lowest CPU number that shares them."""

    id: int
    core: int
    llc: int
    package: int
    node: int


@dataclass(frozen=True)
class Topology:
    """The online CPUs of a host, by id."""

    cpus: tuple[Cpu, ...] = ()
    isolated: frozenset[int] = frozenset()

    @property
    def ids(self) -> tuple[int, ...]:
        """Ids of all online CPUs, ascending."""
        return tuple(cpu.id for cpu in self.cpus)

    def cores(self) -> list[tuple[int, ...]]:
        """CPU ids grouped by physical core, in order of the lowest id."""
        return self._groups("core")

    def llcs(self) -> list[tuple[int, ...]]:
        """CPU ids grouped by last-level cache, in order of the lowest id."""
        return self._groups("llc")

    def _groups(self, key: str) -> list[tuple[int, ...]]:
        groups: dict[int, list[int]] = defaultdict(list)
        for cpu in self.cpus:
            groups[getattr(cpu, key)].append(cpu.id)
        return [tuple(group) for _, group in sorted(groups.items())]

    @classmethod
    def read(cls, root: Path = Path("/")) -> Topology:
        """Read a host's topology below `root`.

        Raises FileNotFoundError when `root` holds no sysfs CPU tree.
        """
        base = root / "sys/devices/system/cpu"
        online = parse_cpulist((base / "online").read_text())
        nodes = _nodes(root / "sys/devices/system/node")
        cpus = tuple(_read_cpu(base / f"cpu{cpu}", cpu, nodes.get(cpu, 0)) for cpu in sorted(online))
        isolated = base / "isolated"
        return cls(cpus, parse_cpulist(isolated.read_text()) if isolated.exists() else frozenset())


def _read_cpu(path: Path, cpu: int, node: int) -> Cpu:
    topology = path / "topology"
    siblings = _cpulist_or(topology / "thread_siblings_list", {cpu})
    package = topology / "physical_package_id"
    return Cpu(
        id=cpu,
        core=min(siblings),
        llc=min(_llc_cpus(path / "cache") or siblings),
        package=max(int(package.read_text()), 0) if package.exists() else 0,
        node=node,
    )


def _llc_cpus(cache: Path) -> frozenset[int]:
    """CPUs that share the highest-level cache; empty when sysfs describes none."""
    best, shared = -1, frozenset[int]()
    for index in sorted(cache.glob("index*")):
        level = int((index / "level").read_text())
        if level > best:
            best, shared = level, parse_cpulist((index / "shared_cpu_list").read_text())
    return shared


def _nodes(path: Path) -> dict[int, int]:
    """CPU id -> NUMA node; empty on a kernel without NUMA."""
    found: dict[int, int] = {}
    for node in path.glob("node[0-9]*"):
        for cpu in _cpulist_or(node / "cpulist", ()):
            found[cpu] = int(node.name.removeprefix("node"))
    return found


def _cpulist_or(path: Path, default: Iterable[int]) -> frozenset[int]:
    cpus = parse_cpulist(path.read_text()) if path.exists() else frozenset[int]()
    return cpus or frozenset(default)


def parse_cpulist(text: str) -> frozenset[int]:
    """CPU numbers of a kernel list such as "0-2,5".

    Raises ValueError on anything else. Source: lib/bitmap.c, bitmap_parselist().
    """
    cpus: set[int] = set()
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        match = _RANGE.fullmatch(part)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise ValueError(f"not a list of CPUs: {text!r}")
        cpus.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return frozenset(cpus)


def format_cpulist(cpus: Iterable[int]) -> str:
    """The kernel's list form of some CPU numbers: {0, 1, 2, 5} -> "0-2,5"."""
    runs: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
