# SPDX-License-Identifier: Apache-2.0
"""The host's CPUs, read from a tree of files."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangd.model.cpulist import format_cpulist, parse_cpulist
from gangd.model.topology import Cpu, Topology

from .shapes import CPU, SHAPES, Shape


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def cpu_files(cpu: int, siblings: str, package: int, caches: dict[int, str]) -> dict[str, str]:
    base = f"sys/devices/system/cpu/cpu{cpu}"
    files = {
        f"{base}/topology/thread_siblings_list": siblings,
        f"{base}/topology/physical_package_id": str(package),
    }
    for index, (level, shared) in enumerate(caches.items()):
        files[f"{base}/cache/index{index}/level"] = str(level)
        files[f"{base}/cache/index{index}/shared_cpu_list"] = shared
    return files


@pytest.fixture
def smt(tmp_path: Path) -> Path:
    """Two packages of two cores of two threads, numbered as Linux does; CPU 7 is offline."""
    files = {"sys/devices/system/cpu/online": "0-6", "sys/devices/system/cpu/isolated": "5"}
    for cpu in range(8):
        core, package = cpu % 4, cpu % 4 // 2
        siblings = f"{core},{core + 4}" if core != 3 else "3"
        llc = "0-1,4-5" if package == 0 else "2-3,6"
        files |= cpu_files(cpu, siblings, package, {1: siblings, 3: llc, 2: siblings})
    files |= {f"sys/devices/system/node/node{n}/cpulist": text for n, text in ((0, "0-1,4-5"), (1, "2-3,6"))}
    return write(tmp_path, files)


def test_cores_caches_packages_and_nodes(smt: Path) -> None:
    topology = Topology.read(smt)
    assert topology.cores() == [(0, 4), (1, 5), (2, 6), (3,)]
    assert [cpu.llc for cpu in topology.cpus] == [0, 0, 2, 2, 0, 0, 2]
    assert topology.cpus[6] == Cpu(id=6, core=2, llc=2, package=1, node=1)
    assert topology.isolated == {5}


def test_an_offline_cpu_is_not_there(smt: Path) -> None:
    assert 7 not in Topology.read(smt).ids


def test_topology_is_not_read_again_while_the_same_cpus_are_online(smt: Path) -> None:
    """Isolated and offline CPUs are read again, and all of it once another CPU is online."""
    last = Topology.read(smt)
    cpu = "sys/devices/system/cpu"
    write(smt, {f"{cpu}/cpu0/topology/physical_package_id": "1", f"{cpu}/isolated": "6"})
    now = Topology.read(smt, last)
    assert (now.cpus, now.isolated) == (last.cpus, {6})
    assert Topology.read(smt).cpus[0].package == 1
    write(smt, {f"{cpu}/online": "0-5"})
    assert Topology.read(smt, last) == Topology.read(smt)
    assert Topology.read(smt, last).ids == (0, 1, 2, 3, 4, 5)


@pytest.mark.parametrize("left_out", ["level", "shared_cpu_list"])
def test_a_cache_that_is_half_described_is_skipped(smt: Path, left_out: str) -> None:
    """The kernel leaves out a file whose value it does not know; the other caches are read."""
    before = Topology.read(smt)
    for index in smt.glob("sys/devices/system/cpu/cpu*/cache/index0"):
        (index / left_out).unlink()
    assert Topology.read(smt) == before


def test_without_a_cache_directory_a_die_shares_one(tmp_path: Path) -> None:
    files = {"sys/devices/system/cpu/online": "0-1"}
    for cpu in range(2):
        files |= cpu_files(cpu, str(cpu), 0, {})
    assert [cpu.llc for cpu in Topology.read(write(tmp_path, files)).cpus] == [0, 0]


def test_a_machine_that_describes_nothing_still_has_cpus(tmp_path: Path) -> None:
    topology = Topology.read(write(tmp_path, {"sys/devices/system/cpu/online": "0,2"}))
    assert topology.cpus == (Cpu(0, 0, 0, 0, 0), Cpu(2, 2, 0, 0, 0))
    assert topology.isolated == frozenset()


def test_an_unknown_package_counts_as_the_first(tmp_path: Path) -> None:
    files = {"sys/devices/system/cpu/online": "0"} | cpu_files(0, "0", -1, {})
    assert Topology.read(write(tmp_path, files)).cpus[0].package == 0


def test_no_sysfs_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Topology.read(tmp_path)


@pytest.mark.parametrize(
    ("name", "cpus", "cores", "caches", "nodes", "usable"),
    [
        ("desktop", 8, 4, 1, 1, 8),
        ("two-sockets", 32, 16, 2, 2, 32),
        ("epyc", 32, 16, 4, 2, 32),
        ("two-epycs", 256, 128, 16, 2, 256),
        ("hybrid", 20, 14, 1, 1, 20),
        ("big-little", 8, 8, 1, 1, 8),
        ("smt-off", 8, 8, 1, 1, 8),
        ("thread-offline", 15, 8, 2, 2, 15),
        ("isolcpus", 16, 8, 1, 1, 12),
        ("partition", 16, 8, 1, 1, 8),
        ("exclusive-v1", 8, 4, 1, 1, 6),
        ("reserved", 16, 8, 1, 1, 16),
        ("128-cores", 256, 128, 8, 2, 256),
        ("single-cpu", 1, 1, 1, 1, 1),
        ("genoa", 384, 192, 24, 2, 384),
        ("raptor-lake", 32, 24, 1, 1, 32),
        ("snc-2", 96, 48, 2, 4, 96),
        ("altra", 80, 80, 1, 1, 80),
        ("core-offline", 30, 15, 1, 1, 30),
    ],
)
def test_shapes(
    name: str, cpus: int, cores: int, caches: int, nodes: int, usable: int, tmp_path: Path
) -> None:
    """The topology has the CPUs that are online, the cores, caches and nodes they form, and the free ones."""
    topology = SHAPES[name].read(tmp_path)
    assert (len(topology.ids), len(topology.cores())) == (cpus, cores)
    assert len({cpu.llc for cpu in topology.cpus}) == caches
    assert len({cpu.node for cpu in topology.cpus}) == len(topology.nodes) == nodes
    assert len(topology.usable) == usable


def test_topology_knows_offline_cpus(tmp_path: Path) -> None:
    """The sibling of an offline CPU is a core by itself."""
    topology = SHAPES["thread-offline"].read(tmp_path)
    assert topology.offline == {9}
    assert (1,) in topology.cores()


def test_nodes_have_memory_and_distances(tmp_path: Path) -> None:
    """Memory and distances are what the firmware says; a node that is not there has none."""
    topology = SHAPES["two-sockets"].read(tmp_path)
    assert [node.memory_kib for node in topology.nodes] == [16 << 20] * 2
    assert [topology.distance(0, other) for other in (0, 1, 2)] == [10, 21, None]
    assert topology.distance(5, 0) is None


def test_kinds_of_cores(tmp_path: Path) -> None:
    """Named where there are several; Arm tells them by capacity."""
    hybrid = SHAPES["hybrid"].read(tmp_path / "hybrid")
    assert [cpu.kind for cpu in hybrid.cpus] == ["core"] * 12 + ["atom"] * 8
    arm = SHAPES["big-little"].read(tmp_path / "arm")
    assert [cpu.kind for cpu in arm.cpus] == ["capacity 446"] * 4 + ["capacity 1024"] * 4
    assert {cpu.kind for cpu in SHAPES["desktop"].read(tmp_path / "desktop").cpus} == {""}


CAPACITIES = {
    # of each CPU; the kinds that there are
    "Orion O6": ([1024, 985, 906, 866] * 2 + [380] * 4, {"capacity 1024", "capacity 380"}),
    "RK3588, binned": ([414] * 4 + [1003] * 2 + [1024] * 2, {"capacity 1024", "capacity 414"}),
    "CPPC": ([1024 - 2 * n for n in range(8)], {""}),
    "boost cores": ([1024, 1024, 960, 960, 955, 940, 940, 930], {""}),
    "three sorts": ([250] * 4 + [760] * 3 + [1024], {"capacity 1024", "capacity 760", "capacity 250"}),
}


@pytest.mark.parametrize("name", CAPACITIES)
def test_a_few_per_cent_make_no_kind_of_core(name: str, tmp_path: Path) -> None:
    """A core that has four fifths of the fastest of its kind is of it."""
    capacities, kinds = CAPACITIES[name]
    files = {f"{CPU}/cpu{n}/cpu_capacity": str(capacity) for n, capacity in enumerate(capacities)}
    topology = Shape(cores=len(capacities), threads=1, files=files).read(tmp_path)
    assert {cpu.kind for cpu in topology.cpus} == kinds


def test_this_machine_can_be_read() -> None:
    assert Topology.read().cpus


@given(st.sets(st.integers(0, 300)))
def test_cpulists_round_trip(cpus: set[int]) -> None:
    assert parse_cpulist(format_cpulist(cpus)) == cpus


@pytest.mark.parametrize("text", ["a", "1-", "-1", "1--2", "0x1", "3-1", "0-9999999", "1 2", "٣"])
def test_a_text_that_is_no_cpulist_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_cpulist(text)
