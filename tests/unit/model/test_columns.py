# SPDX-License-Identifier: Apache-2.0
"""Which CPUs become gang domains, on hosts of real shapes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fakes import host
from gangd.model.columns import DOMAIN_CPUS, DOMAINS, gang_domains, host_domains
from gangd.model.topology import Cpu, Topology

from .seats import cpus_of
from .shapes import SHAPES


def test_a_domain_for_each_cache() -> None:
    """Two packages, two gang domains; each says which CPUs share what."""
    domains = gang_domains(host(packages=2, cores=2, threads=2))
    assert [d.cpus for d in domains] == [(0, 4, 1, 5), (2, 6, 3, 7)]
    assert domains[0].reason == "CPUs 0-1,4-5 share a last-level cache"


def test_a_large_cache_is_cut_at_core_borders() -> None:
    """No domain is larger than the scheduler's matrix, and no core is in two."""
    topology = Topology(tuple(Cpu(n, n // 3 * 3, 0, 0, 0) for n in range(150)))
    domains = gang_domains(topology)
    assert [len(d.cpus) for d in domains] == [63, 63, 24]
    for core in topology.cores():
        assert sum(bool(set(core) & set(d.cpus)) for d in domains) == 1


def test_kinds_of_cores_are_not_mixed(tmp_path: Path) -> None:
    """Large and small cores under one cache make two domains, and a wide guest gets one of them."""
    topology = SHAPES["hybrid"].read(tmp_path)
    assert [d.cpus for d in gang_domains(topology, [(20, None)])] == [tuple(range(12)), tuple(range(12, 20))]
    assert cpus_of(topology, 8, 6, 2) == [[0, 1, 2, 3, 4, 5, 6, 7], [12, 13, 14, 15, 16, 17], [8, 9]]
    arm = SHAPES["big-little"].read(tmp_path / "arm")
    assert cpus_of(arm, 1) == [[4]]


def test_cpus_that_are_somebody_elses_are_left_alone(tmp_path: Path) -> None:
    """isolcpus=, a cpuset partition, an exclusive cpuset."""
    for name, free in (("isolcpus", 12), ("partition", 8), ("exclusive-v1", 6)):
        (domain,) = gang_domains(SHAPES[name].read(tmp_path / name))
        assert len(domain.cpus) == free


def test_a_partition_of_the_guests_is_theirs(tmp_path: Path) -> None:
    """machine.slice has CPUs to itself: they are a gang domain."""
    topology = SHAPES["guests-partition"].read(tmp_path)
    assert not topology.taken
    assert [4, 5, 6, 7, 12, 13, 14, 15] in [sorted(domain.cpus) for domain in gang_domains(topology)]


def test_cpus_that_guests_may_not_have_are_apart(tmp_path: Path) -> None:
    """The scheduler's domains are cut there, too: a gang has its turns in whole ones."""
    for name, first in (("reserved", (0, 8, 1, 9)), ("isolcpus", (0, 8, 1, 9, 4, 12, 5, 13, 6, 14, 7, 15))):
        pieces = host_domains(SHAPES[name].read(tmp_path / name))
        assert len(pieces) == 2 and tuple(cpu.id for cpu in pieces[0]) == first


def test_a_wide_guest_makes_neighbouring_caches_one(tmp_path: Path) -> None:
    """A wide guest merges caches of one node, else of two; the reason tells the cost, other indices stay."""
    topology = SHAPES["epyc"].read(tmp_path)  # 2 nodes, 2 caches each, of 4 cores of 2 threads
    plain, wide, wider = (gang_domains(topology, [(width, None)]) for width in (8, 9, 17))
    assert [d.index for d in plain] == [0, 1, 2, 3]
    assert [(d.index, len(d.cpus)) for d in wide] == [(0, 16), (2, 8), (3, 8)]
    assert wide[0].reason == (
        "CPUs 0-7,16-23 span 2 last-level caches of node 0: no cache is as wide as a guest"
    )
    assert [len(d.cpus) for d in wider] == [24, 8]
    assert wider[0].reason == (
        "CPUs 0-11,16-27 span nodes 0-1: memory of one is at up to 1.2 times the distance away for the rest"
    )


def test_a_wide_guest_widens_where_it_is_allowed(tmp_path: Path) -> None:
    """Its CPUs are what counts: the first caches stay as they are."""
    topology = SHAPES["epyc"].read(tmp_path)
    limited = gang_domains(topology, [(9, frozenset({*range(8, 16), *range(24, 28)}))])
    assert [(d.index, len(d.cpus)) for d in limited] == [(0, 8), (1, 8), (2, 16)]


def test_nodes_below_one_cache_are_apart(tmp_path: Path) -> None:
    """Sub-NUMA clusters: each half of a cache has its own memory. A wide guest spans two, and is told."""
    topology = SHAPES["snc-2"].read(tmp_path)  # 2 packages, each one cache and two nodes of 12 cores
    domains = gang_domains(topology)
    assert [len(d.cpus) for d in domains] == [24] * 4
    assert domains[1].reason == "CPUs 12-23,60-71 share a last-level cache and node 1"
    wide = gang_domains(topology, [(25, None)])
    assert [len(d.cpus) for d in wide] == [48, 24, 24]
    assert wide[0].reason.startswith("CPUs 0-23,48-71 span nodes 0-1: memory of one is at up to 1.2 times")


def test_no_domain_is_wider_than_the_matrix(tmp_path: Path) -> None:
    """A guest of 200 gets the widest there can be."""
    topology = SHAPES["128-cores"].read(tmp_path)  # caches of 16 cores of 2 threads
    assert max(len(d.cpus) for d in gang_domains(topology, [(200, None)])) == DOMAIN_CPUS
    (placed,) = cpus_of(topology, 200)
    assert len(placed) == 200 and len(set(placed)) == DOMAIN_CPUS


def test_caches_of_one_cpu_are_one_domain() -> None:
    """No gang fits one: they are together by node, or by kind where a node has one; large ones stay."""
    topology = Topology(
        (*(Cpu(n, n, n, 0, 0) for n in range(3)), Cpu(3, 3, 3, 1, 1), Cpu(4, 4, 3, 1, 1), Cpu(5, 5, 5, 2, 2),
         Cpu(6, 6, 6, 3, 3))
    )  # fmt: skip
    assert [d.cpus for d in gang_domains(topology)] == [(0, 1, 2), (3, 4), (5, 6)]


@pytest.mark.parametrize("name", SHAPES)
def test_a_domain_begins_where_the_scheduler_has_it(name: str, tmp_path: Path) -> None:
    """A domain has the scheduler's number of its first CPUs, with CPUs set apart, too, and wide guests."""
    topology = SHAPES[name].read(tmp_path)
    apart = replace(topology, isolated=frozenset(topology.cores()[0]))
    for some in (topology, apart):
        known = host_domains(some)
        assert sorted(cpu.id for piece in known for cpu in piece) == list(some.ids)
        for domain in (*gang_domains(some), *gang_domains(some, [(40, None)])):
            assert domain.cpus[0] in {cpu.id for cpu in known[domain.index]}


def test_no_more_domains_than_the_scheduler_knows() -> None:
    """Neighbours are made one until they are few enough, and are numbered anew."""
    topology = Topology(tuple(Cpu(n, n, n // 4 * 4, 0, 0) for n in range(4 * 150)))
    domains = gang_domains(topology)
    assert [d.index for d in domains] == list(range(len(domains)))
    assert 32 <= len(domains) <= DOMAINS
    assert max(len(d.cpus) for d in domains) <= DOMAIN_CPUS
    assert sum(len(d.cpus) for d in domains) == 600
