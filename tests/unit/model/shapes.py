# SPDX-License-Identifier: Apache-2.0
"""Hosts as sysfs shows them: shapes that exist, written below a folder."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from gangd.model.cpulist import format_cpulist
from gangd.model.topology import Topology

CPU = "sys/devices/system/cpu"


@dataclass(frozen=True)
class Shape:
    """A host of so many packages, in each so many nodes, in each so many caches, in each so many cores, of
    so many threads. Linux numbers the first threads of all cores, then the second ones.

    files: more files, or "" to have one left out.
    """

    packages: int = 1
    nodes: int = 1
    caches: int = 1
    cores: int = 4
    threads: int = 2
    offline: tuple[int, ...] = ()
    files: dict[str, str] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Cores of the host."""
        return self.packages * self.nodes * self.caches * self.cores

    def tree(self) -> dict[str, str]:
        """File name -> text."""
        online = set(range(self.total * self.threads)) - set(self.offline)
        files = {
            f"{CPU}/online": format_cpulist(online),
            f"{CPU}/present": f"0-{self.total * self.threads - 1}",
        }
        for cpu in online:
            files |= self._cpu(cpu, online)
        count = self.packages * self.nodes
        for node in range(count):
            base = f"sys/devices/system/node/node{node}"
            files[f"{base}/cpulist"] = self._list(self._sharing(node, self.caches * self.cores) & online)
            files[f"{base}/meminfo"] = f"Node {node} MemTotal:       {16 << 20} kB"
            files[f"{base}/distance"] = " ".join(str(self._distance(node, other)) for other in range(count))
        return {name: text for name, text in (files | self.files).items() if text}

    def _cpu(self, cpu: int, online: set[int]) -> dict[str, str]:
        core = cpu % self.total
        per_package = self.nodes * self.caches * self.cores
        base = f"{CPU}/cpu{cpu}"
        siblings = self._list(self._sharing(core, 1) & online)
        return {
            f"{base}/topology/thread_siblings_list": siblings,
            f"{base}/topology/physical_package_id": str(core // per_package),
            f"{base}/topology/die_id": str(core % per_package // (self.caches * self.cores)),
            f"{base}/cache/index0/level": "1",
            f"{base}/cache/index0/shared_cpu_list": siblings,
            f"{base}/cache/index3/level": "3",
            f"{base}/cache/index3/shared_cpu_list": self._list(
                self._sharing(core // self.cores, self.cores) & online
            ),
        }

    def _sharing(self, group: int, cores: int) -> set[int]:
        first = range(group * cores, (group + 1) * cores)
        return {core + thread * self.total for core in first for thread in range(self.threads)}

    def _distance(self, one: int, other: int) -> int:
        if one == other:
            return 10
        return 12 if one // self.nodes == other // self.nodes else 21

    @staticmethod
    def _list(cpus: set[int]) -> str:
        return format_cpulist(cpus) or "\n"

    def read(self, root: Path) -> Topology:
        """Written below `root`, and read as a host."""
        for name, text in self.tree().items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n")
        return Topology.read(root)


def _hybrid() -> Shape:
    """6 cores with two threads and 8 small ones under one cache, numbered as Alder Lake numbers them."""
    shape = Shape(cores=20, threads=1)
    siblings = {}
    for core in range(6):
        pair = f"{2 * core}-{2 * core + 1}"
        siblings |= {
            f"{CPU}/cpu{cpu}/topology/thread_siblings_list": pair for cpu in (2 * core, 2 * core + 1)
        }
    kinds = {"sys/devices/cpu_core/cpus": "0-11", "sys/devices/cpu_atom/cpus": "12-19"}
    return replace(shape, files=siblings | kinds)


def _big_little() -> Shape:
    """Four small and four large cores; no cache is described."""
    shape = Shape(cores=8, threads=1)
    caches = {name: "" for name in shape.tree() if "/cache/" in name}
    capacities = {f"{CPU}/cpu{cpu}/cpu_capacity": "446" if cpu < 4 else "1024" for cpu in range(8)}
    return replace(shape, files=caches | capacities)


def _snc() -> Shape:
    """Two Xeons of 24 cores with SNC-2: both nodes of a package are below its one L3 cache."""
    shape = Shape(packages=2, nodes=2, cores=12)
    package = {cpu: {c for c in range(96) if c % 48 // 24 == cpu % 48 // 24} for cpu in range(96)}
    caches = {
        f"{CPU}/cpu{cpu}/cache/index3/shared_cpu_list": format_cpulist(shared)
        for cpu, shared in package.items()
    }
    dies = {f"{CPU}/cpu{cpu}/topology/die_id": "0" for cpu in package}
    return replace(shape, files=caches | dies)


def _raptor_lake() -> Shape:
    """8 cores with two threads and 16 small ones in clusters of four that share an L2 cache; one L3."""
    shape = Shape(cores=32, threads=1)
    files = {"sys/devices/cpu_core/cpus": "0-15", "sys/devices/cpu_atom/cpus": "16-31"}
    for cpu in range(32):
        first = cpu - cpu % (2 if cpu < 16 else 4)
        files[f"{CPU}/cpu{cpu}/cache/index2/level"] = "2"
        files[f"{CPU}/cpu{cpu}/cache/index2/shared_cpu_list"] = f"{first}-{first + (1 if cpu < 16 else 3)}"
        if cpu < 16:
            files[f"{CPU}/cpu{cpu}/topology/thread_siblings_list"] = f"{first}-{first + 1}"
    return replace(shape, files=files)


def _altra() -> Shape:
    """80 cores without SMT, of which the firmware describes no cache beyond each core's own L2."""
    shape = Shape(cores=80, threads=1)
    own = {f"{CPU}/cpu{cpu}/cache/index3/level": "2" for cpu in range(80)}
    own |= {f"{CPU}/cpu{cpu}/cache/index3/shared_cpu_list": str(cpu) for cpu in range(80)}
    return replace(shape, files=own)


SHAPES: dict[str, Shape] = {
    "desktop": Shape(cores=4),
    "two-sockets": Shape(packages=2, cores=8),
    "epyc": Shape(packages=1, nodes=2, caches=2, cores=4),
    "two-epycs": Shape(packages=2, nodes=1, caches=8, cores=8),
    "hybrid": _hybrid(),
    "big-little": _big_little(),
    "smt-off": Shape(cores=8, offline=tuple(range(8, 16))),
    "thread-offline": Shape(packages=2, cores=4, offline=(9,)),
    "isolcpus": Shape(cores=8, files={f"{CPU}/isolated": "2-3,10-11"}),
    "partition": Shape(cores=8, files={"sys/fs/cgroup/cpuset.cpus.effective": "0-3,8-11"}),
    "guests-partition": Shape(
        cores=8,
        files={
            "sys/fs/cgroup/cpuset.cpus.effective": "0-3,8-11",
            "sys/fs/cgroup/machine.slice/cpuset.cpus.effective": "4-7,12-15",
        },
    ),
    "exclusive-v1": Shape(
        cores=4,
        files={
            "sys/fs/cgroup/cpuset/rt/cpuset.cpu_exclusive": "1",
            "sys/fs/cgroup/cpuset/rt/cpuset.cpus": "3,7",
            "sys/fs/cgroup/cpuset/machine/cpuset.cpu_exclusive": "0",
            "sys/fs/cgroup/cpuset/machine/cpuset.cpus": "0-7",
        },
    ),
    "reserved": Shape(cores=8, files={"sys/fs/cgroup/machine.slice/cpuset.cpus.effective": "2-7,10-15"}),
    "128-cores": Shape(packages=2, nodes=1, caches=4, cores=16),
    "single-cpu": Shape(cores=1, threads=1),
    "genoa": Shape(packages=2, caches=12, cores=8),
    "raptor-lake": _raptor_lake(),
    "snc-2": _snc(),
    "altra": _altra(),
    "core-offline": Shape(cores=16, offline=(5, 21)),
}
