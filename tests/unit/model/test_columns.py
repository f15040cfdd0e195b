# SPDX-License-Identifier: Apache-2.0
"""Which CPUs become caches, on hosts of real shapes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fakes import host
from gangd.model.columns import CACHE_CPUS, CACHES, Columns, caches, host_caches
from gangd.model.cpulist import parse_cpulist
from gangd.model.plan import Cache
from gangd.model.topology import Cpu, Topology

from .seats import cpus_of, guests, seat
from .shapes import SHAPES


def joined(topology: Topology, *spans: set[int]) -> tuple[Cache, ...]:
    """The caches once gangs span these CPUs."""
    columns = Columns(topology)
    gangs = {cpu: {str(number)} for number, span in enumerate(spans) for cpu in span}
    assert all(columns.join(span, gangs) for span in spans)
    return columns.caches()


def test_a_domain_for_each_cache() -> None:
    """Two packages, two caches; each says which CPUs share what."""
    found = caches(host(packages=2, cores=2, threads=2))
    assert [d.cpus for d in found] == [(0, 4, 1, 5), (2, 6, 3, 7)]
    assert found[0].reason == "CPUs 0-1,4-5 share a last-level cache"


def test_a_large_cache_is_cut_at_core_borders() -> None:
    """No domain is larger than the scheduler's matrix, and no core is in two."""
    topology = Topology(tuple(Cpu(n, n // 3 * 3, 0, 0, 0) for n in range(150)))
    found = caches(topology)
    assert [len(d.cpus) for d in found] == [63, 63, 24]
    for core in topology.cores():
        assert sum(bool(set(core) & set(d.cpus)) for d in found) == 1


def test_kinds_of_cores_are_not_mixed(tmp_path: Path) -> None:
    """Large and small cores under one cache make two found; a guest that has room in one gets one."""
    topology = SHAPES["hybrid"].read(tmp_path)
    assert [d.cpus for d in caches(topology)] == [tuple(range(12)), tuple(range(12, 20))]
    assert cpus_of(topology, 8, 6, 2) == [[0, 1, 2, 3, 4, 5, 6, 7], [12, 13, 14, 15, 16, 17], [8, 9]]
    arm = SHAPES["big-little"].read(tmp_path / "arm")
    assert cpus_of(arm, 1) == [[4]]


def test_cpus_that_are_somebody_elses_are_left_alone(tmp_path: Path) -> None:
    """isolcpus=, a cpuset partition, an exclusive cpuset."""
    for name, free in (("isolcpus", 12), ("partition", 8), ("exclusive-v1", 6)):
        (domain,) = caches(SHAPES[name].read(tmp_path / name))
        assert len(domain.cpus) == free


def test_a_partition_of_the_guests_is_theirs(tmp_path: Path) -> None:
    """machine.slice has CPUs to itself: they are a cache."""
    topology = SHAPES["guests-partition"].read(tmp_path)
    assert not topology.taken
    assert [4, 5, 6, 7, 12, 13, 14, 15] in [sorted(domain.cpus) for domain in caches(topology)]


APART = {
    # CPUs of machine.slice, on 4 cores of which n has the threads n and n + 4; None: a partition of others
    "whole cores": ("0-1,4-5", [(0, 4, 1, 5), (2, 6, 3, 7)]),
    "second threads": ("4-7", [(0, 1, 2, 3), (4, 5, 6, 7)]),
    "odd CPUs": ("1,3,5,7", [(0, 4, 2, 6), (1, 5, 3, 7)]),
    "one thread": ("0-6", [(0, 4, 1, 5, 2, 6, 3), (7,)]),
}


@pytest.mark.parametrize("name", APART)
def test_cpus_that_guests_may_not_have_are_apart(name: str) -> None:
    """The scheduler's found are cut there, too, and if that is between two threads: a gang has its turns in
    whole ones."""
    theirs, pieces = APART[name]
    topology = replace(host(cores=4, threads=2), guests=parse_cpulist(theirs))
    assert [tuple(cpu.id for cpu in piece) for piece in host_caches(topology)] == pieces


def test_isolated_cpus_are_apart(tmp_path: Path) -> None:
    """isolcpus=: the scheduler has a domain of them, in which nobody is seated."""
    pieces = host_caches(SHAPES["isolcpus"].read(tmp_path))
    assert [tuple(cpu.id for cpu in p) for p in pieces] == [
        (0, 8, 1, 9, 4, 12, 5, 13, 6, 14, 7, 15),
        (2, 10, 3, 11),
    ]


def test_a_gang_makes_the_domains_it_spans_one(tmp_path: Path) -> None:
    """The reason tells what that costs, and the other found keep their indices."""
    topology = SHAPES["epyc"].read(tmp_path)  # 2 nodes, 2 caches each, of 4 cores of 2 threads
    plain, wide, wider = (joined(topology, span) for span in ({0}, {0, 4}, {0, 8}))
    assert [d.index for d in plain] == [0, 1, 2, 3]
    assert [(d.index, len(d.cpus)) for d in wide] == [(0, 16), (2, 8), (3, 8)]
    assert wide[0].reason == (
        "CPUs 0-7,16-23 span 2 last-level caches of node 0: no cache has room for a guest"
    )
    assert [(d.index, len(d.cpus)) for d in wider] == [(0, 16), (1, 8), (3, 8)]
    assert wider[0].reason == (
        "CPUs 0-3,8-11,16-19,24-27 span nodes 0-1: memory of one is at up to 1.2 times the distance away for "
        "the rest"
    )


def test_nodes_below_one_cache_are_apart(tmp_path: Path) -> None:
    """Sub-NUMA clusters: each half of a cache has its own memory. A wide guest spans two, and is told."""
    topology = SHAPES["snc-2"].read(tmp_path)  # 2 packages, each one cache and two nodes of 12 cores
    found = caches(topology)
    assert [len(d.cpus) for d in found] == [24] * 4
    assert found[1].reason == "CPUs 12-23,60-71 share a last-level cache and node 1"
    wide = seat(topology, guests(25)).caches
    assert [len(d.cpus) for d in wide] == [48, 24, 24]
    assert wide[0].reason.startswith("CPUs 0-23,48-71 span nodes 0-1: memory of one is at up to 1.2 times")


def test_a_cache_too_large_for_one_domain_is_cut(tmp_path: Path) -> None:
    """The cut is at a core border, near the gang, and through no other gang; without one nothing changes."""
    large = host(packages=2, cores=20, threads=2)  # core n has CPUs n and n + 40
    one, other, *rest = joined(large, {3, 22}, {5, 15})
    assert not rest and (one.index, other.index) == (0, 1)
    assert {3, 5, 15, 22} <= set(one.cpus) and len(one.cpus) + len(other.cpus) == 80
    assert {cpu % 40 for cpu in other.cpus}.isdisjoint(cpu % 40 for cpu in one.cpus)
    columns, everywhere = Columns(large), {cpu: {str(cpu // 20 % 2)} for cpu in range(80)}
    assert not columns.join({3, 22}, everywhere)
    assert columns.caches() == caches(large)


def test_no_domain_is_wider_than_the_matrix(tmp_path: Path) -> None:
    """A guest of 200 gets the widest there can be."""
    topology = SHAPES["128-cores"].read(tmp_path)  # caches of 16 cores of 2 threads
    assert max(len(d.cpus) for d in seat(topology, guests(200)).caches) == CACHE_CPUS
    (placed,) = cpus_of(topology, 200)
    assert len(placed) == 200 and len(set(placed)) == CACHE_CPUS


def test_caches_of_one_cpu_are_one_domain() -> None:
    """No gang fits one: they are together by node, or by kind where a node has one; large ones stay."""
    topology = Topology(
        (*(Cpu(n, n, n, 0, 0) for n in range(3)), Cpu(3, 3, 3, 1, 1), Cpu(4, 4, 3, 1, 1), Cpu(5, 5, 5, 2, 2),
         Cpu(6, 6, 6, 3, 3))
    )  # fmt: skip
    assert [d.cpus for d in caches(topology)] == [(0, 1, 2), (3, 4), (5, 6)]


@pytest.mark.parametrize("name", SHAPES)
def test_a_domain_begins_where_the_scheduler_has_it(name: str, tmp_path: Path) -> None:
    """A domain has the scheduler's number of its first CPUs, with CPUs set apart, too, and wide guests."""
    topology = SHAPES[name].read(tmp_path)
    apart = replace(topology, isolated=frozenset(topology.cores()[0]))
    for some in (topology, apart):
        known = host_caches(some)
        assert sorted(cpu.id for piece in known for cpu in piece) == list(some.ids)
        for domain in (*caches(some), *seat(some, guests(40)).caches):
            assert domain.cpus[0] in {cpu.id for cpu in known[domain.index]}


def test_no_more_domains_than_the_scheduler_knows() -> None:
    """Neighbours are made one until they are few enough, and are numbered anew."""
    topology = Topology(tuple(Cpu(n, n, n // 4 * 4, 0, 0) for n in range(4 * 150)))
    found = caches(topology)
    assert [d.index for d in found] == list(range(len(found)))
    assert 32 <= len(found) <= CACHES
    assert max(len(d.cpus) for d in found) <= CACHE_CPUS
    assert sum(len(d.cpus) for d in found) == 600
