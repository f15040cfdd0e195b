# SPDX-License-Identifier: Apache-2.0
"""The host's CPUs: threads, cores, last-level caches, dies, packages, NUMA nodes.

Source: /sys/devices/system/cpu (Documentation/admin-guide/cputopology.rst and
Documentation/ABI/testing/sysfs-devices-system-cpu), /sys/devices/system/node, and the
cpusets in /sys/fs/cgroup. The root is an argument, so that a directory tree is a test
fixture.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from gangd.model.cpulist import parse_cpulist

_UNKNOWN = -1
# A core that has this much of a faster one's capacity is of its kind: pairs of equal cores differ by some per
# cent where firmware names the highest clock of each (CPPC). The kernel's own margin, fits_capacity()
# (kernel/sched/fair.c).
ALIKE = 0.8


@dataclass(frozen=True)
class Cpu:
    """An online logical CPU. `core`, `llc` are the lowest CPU number that shares them.

    kind: which sort of core on a host with several: "core" and "atom" as x86 names its event
    counters, "capacity N" of 1024 by cpu_capacity; "" where all cores are alike.
    """

    id: int
    core: int
    llc: int
    package: int
    node: int
    die: int = 0
    kind: str = ""


@dataclass(frozen=True)
class Node:
    """A NUMA node. memory_kib: None = unknown. distances: to all nodes in their order; 10 is itself."""

    id: int
    memory_kib: int | None = None
    distances: tuple[int, ...] = ()


@dataclass(frozen=True)
class Topology:
    """The online CPUs of a host, by id.

    isolated: by isolcpus=. taken: in a cpuset that has them to itself. offline: present, not online.
    guests: those of machine.slice, in which libvirt puts guests (AllowedCPUs= of systemd); empty: all.
    """

    cpus: tuple[Cpu, ...] = ()
    isolated: frozenset[int] = frozenset()
    taken: frozenset[int] = frozenset()
    offline: frozenset[int] = frozenset()
    guests: frozenset[int] = frozenset()
    nodes: tuple[Node, ...] = ()

    @cached_property
    def ids(self) -> tuple[int, ...]:
        """Ids of all online CPUs, ascending."""
        return tuple(cpu.id for cpu in self.cpus)

    @cached_property
    def usable(self) -> frozenset[int]:
        """Online CPUs that nobody has set apart."""
        return frozenset(self.ids) - self.isolated - self.taken

    def room(self, allowed: frozenset[int]) -> frozenset[int]:
        """The CPUs for a guest whose cgroup allows `allowed` (empty: all). A guest that may have none but
        those that are set apart lives there, and they are its own."""
        free = self.usable & allowed if allowed else self.usable
        return free or (allowed & self.taken) - self.isolated

    def distance(self, one: int, other: int) -> int | None:
        """Between two NUMA nodes as the firmware says it, 10 = local; None = unknown."""
        known = {node.id: node.distances for node in self.nodes}
        return dict(zip(known, known.get(one, ()), strict=False)).get(other)

    def cores(self) -> list[tuple[int, ...]]:
        """CPU ids grouped by physical core, in order of the lowest id."""
        cores: dict[int, list[int]] = defaultdict(list)
        for cpu in self.cpus:
            cores[cpu.core].append(cpu.id)
        return [tuple(core) for _, core in sorted(cores.items())]

    @classmethod
    def read(cls, root: Path = Path("/"), last: Topology | None = None) -> Topology:
        """Read a host's topology below `root`.

        last: what is known. While the same CPUs are online, their cores and caches are those they had,
        and not read: that is a dozen files for each.
        Raises FileNotFoundError when `root` holds no sysfs CPU tree.
        """
        base = root / "sys/devices/system/cpu"
        online = parse_cpulist((base / "online").read_text())
        where, nodes = _nodes(root / "sys/devices/system/node")
        known = last.cpus if last is not None and online == frozenset(last.ids) else None
        guests = _cpulist_or(root / "sys/fs/cgroup/machine.slice/cpuset.cpus.effective", ()) & online
        return cls(
            known or _cpus(root / "sys/devices", base, online, where),
            isolated=_cpulist_or(base / "isolated", ()),
            taken=_taken(root / "sys/fs/cgroup", online) - guests,  # a partition may be the guests' own
            offline=_cpulist_or(base / "present", online) - online,
            guests=guests,
            nodes=nodes,
        )


def _cpus(devices: Path, base: Path, online: frozenset[int], where: dict[int, int]) -> tuple[Cpu, ...]:
    kinds = _kinds(devices, base, online)
    return _with_caches(
        tuple(
            _read_cpu(base / f"cpu{cpu}", cpu, where.get(cpu, 0), kinds.get(cpu, ""))
            for cpu in sorted(online)
        )
    )


def _read_cpu(path: Path, cpu: int, node: int, kind: str) -> Cpu:
    topology = path / "topology"
    siblings = _cpulist_or(topology / "thread_siblings_list", {cpu})
    return Cpu(
        id=cpu,
        core=min(siblings),
        llc=min(_llc_cpus(path / "cache"), default=_UNKNOWN),
        package=_number(topology / "physical_package_id"),
        node=node,
        die=_number(topology / "die_id"),
        kind=kind,
    )


def _with_caches(cpus: tuple[Cpu, ...]) -> tuple[Cpu, ...]:
    """Take a die's CPUs of one node to share a cache where none is described that cores share.

    Some Arm firmware describes none, or (Ampere Altra) only those that each core has to itself: gangs
    cannot be co-scheduled over single cores.
    """
    dies: dict[tuple[int, int, int], list[Cpu]] = {}
    for cpu in cpus:
        dies.setdefault((cpu.package, cpu.die, cpu.node), []).append(cpu)
    placed = [
        replace(cpu, llc=die[0].id) if cpu.llc == _UNKNOWN or _shares_none(die) else cpu
        for die in dies.values()
        for cpu in die
    ]
    return tuple(sorted(placed, key=lambda cpu: cpu.id))


def _shares_none(die: Sequence[Cpu]) -> bool:
    """No two of its cores have a cache in common."""
    cores = len({cpu.core for cpu in die})
    return cores > 1 and cores == len({cpu.llc for cpu in die})


def _number(path: Path) -> int:
    """A file's number; 0 where it is missing or -1, which is how the kernel says unknown."""
    return max(int(path.read_text()), 0) if path.exists() else 0


def _kinds(devices: Path, base: Path, online: frozenset[int]) -> dict[int, str]:
    """CPU id -> kind, empty when all are alike (Documentation/admin-guide/perf on cpu_core and cpu_atom)."""
    kinds = {
        cpu: path.name.removeprefix("cpu_")
        for path in sorted(devices.glob("cpu_*"))
        for cpu in _cpulist_or(path / "cpus", ())
    }
    if not kinds:
        files = {cpu: base / f"cpu{cpu}" / "cpu_capacity" for cpu in online}
        kinds = _by_capacity({cpu: _number(path) for cpu, path in sorted(files.items()) if path.exists()})
    return kinds if len(set(kinds.values())) > 1 else {}


def _by_capacity(capacities: dict[int, int]) -> dict[int, str]:
    """CPU id -> kind, which is named after its fastest core."""
    kinds: dict[int, str] = {}
    fastest = 0
    for cpu, capacity in sorted(capacities.items(), key=lambda one: -one[1]):
        if capacity < ALIKE * fastest or not fastest:
            fastest = capacity
        kinds[cpu] = f"capacity {fastest}"
    return kinds


def _taken(cgroup: Path, online: frozenset[int]) -> frozenset[int]:
    """CPUs in a cpuset that has them to itself: a partition of cgroup v2, an exclusive cpuset of v1.

    Source: Documentation/admin-guide/cgroup-v2.rst (a partition's CPUs leave cpuset.cpus.effective of
    the root), Documentation/admin-guide/cgroup-v1/cpusets.rst (cpu_exclusive). libvirt makes neither.
    """
    effective = cgroup / "cpuset.cpus.effective"
    if effective.exists():
        return online - _cpulist_or(effective, online)
    found: set[int] = set()
    for flag in (cgroup / "cpuset").glob("*/cpuset.cpu_exclusive"):
        if flag.read_text().strip() == "1":
            found |= _cpulist_or(flag.with_name("cpuset.cpus"), ())
    return frozenset(found) & online


def _llc_cpus(cache: Path) -> frozenset[int]:
    """CPUs that share the highest-level cache; empty when sysfs describes none.

    The kernel leaves out each file whose value it does not know (cache_default_attrs_is_visible()).
    """
    best, shared = -1, frozenset[int]()
    for index in sorted(cache.glob("index*")):
        level, cpus = index / "level", index / "shared_cpu_list"
        if level.exists() and cpus.exists() and (found := int(level.read_text())) > best:
            best, shared = found, parse_cpulist(cpus.read_text())
    return shared


def _nodes(path: Path) -> tuple[dict[int, int], tuple[Node, ...]]:
    """CPU id -> NUMA node, and the nodes; both empty on a kernel without NUMA."""
    where: dict[int, int] = {}
    folders = sorted((int(node.name.removeprefix("node")), node) for node in path.glob("node[0-9]*"))
    for number, folder in folders:
        where.update(dict.fromkeys(_cpulist_or(folder / "cpulist", ()), number))
    return where, tuple(_read_node(folder, number) for number, folder in folders)


def _read_node(folder: Path, number: int) -> Node:
    memory, distance = folder / "meminfo", folder / "distance"
    total = re.search(r"MemTotal:\s+([0-9]+) kB", memory.read_text()) if memory.exists() else None
    distances = distance.read_text().split() if distance.exists() else ()
    return Node(number, int(total[1]) if total else None, tuple(map(int, distances)))


def _cpulist_or(path: Path, default: Iterable[int]) -> frozenset[int]:
    cpus = parse_cpulist(path.read_text()) if path.exists() else frozenset[int]()
    return cpus or frozenset(default)
