# SPDX-License-Identifier: Apache-2.0
"""The host's CPUs, read from a tree of files."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangd.model.topology import Cpu, Topology, format_cpulist, parse_cpulist


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
    assert topology.llcs() == [(0, 1, 4, 5), (2, 3, 6)]
    assert topology.cpus[6] == Cpu(id=6, core=2, llc=2, package=1, node=1)
    assert topology.isolated == {5}


def test_an_offline_cpu_is_not_there(smt: Path) -> None:
    assert 7 not in Topology.read(smt).ids


def test_without_a_cache_directory_a_core_is_its_own_cache(tmp_path: Path) -> None:
    files = {"sys/devices/system/cpu/online": "0-1"}
    for cpu in range(2):
        files |= cpu_files(cpu, str(cpu), 0, {})
    assert Topology.read(write(tmp_path, files)).llcs() == [(0,), (1,)]


def test_a_machine_that_describes_nothing_still_has_cpus(tmp_path: Path) -> None:
    topology = Topology.read(write(tmp_path, {"sys/devices/system/cpu/online": "0,2"}))
    assert topology.cpus == (Cpu(0, 0, 0, 0, 0), Cpu(2, 2, 2, 0, 0))
    assert topology.isolated == frozenset()


def test_an_unknown_package_counts_as_the_first(tmp_path: Path) -> None:
    files = {"sys/devices/system/cpu/online": "0"} | cpu_files(0, "0", -1, {})
    assert Topology.read(write(tmp_path, files)).cpus[0].package == 0


def test_no_sysfs_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Topology.read(tmp_path)


def test_this_machine_can_be_read() -> None:
    assert Topology.read().cpus


@given(st.sets(st.integers(0, 300)))
def test_cpulists_round_trip(cpus: set[int]) -> None:
    assert parse_cpulist(format_cpulist(cpus)) == cpus


@pytest.mark.parametrize("text", ["a", "1-", "-1", "1--2", "0x1", "3-1", "0-9999999", "1 2", "٣"])
def test_what_is_no_cpulist_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_cpulist(text)
