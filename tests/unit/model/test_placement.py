# SPDX-License-Identifier: Apache-2.0
"""Where gangs go, on hosts that are made up."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gangd.model.placement import DOMAIN_CPUS, Crowd, gang_domains, place
from gangd.model.topology import Cpu, Topology
from gangd.testing import guest, host


def cpus_of(topology: Topology, *widths: int, crowd: Crowd | None = None) -> list[list[int] | str]:
    """Place guests of these widths one after the other; the CPUs of each, or why not."""
    crowd = crowd or Crowd()
    found: list[list[int] | str] = []
    for number, width in enumerate(widths, 1):
        placed = place(guest(f"g{number}", number, width), topology, gang_domains(topology), crowd)
        found.append(placed if isinstance(placed, str) else [p.cpu for p in placed[1]])
    return found


def test_a_domain_for_each_cache() -> None:
    """Two packages, two gang domains; each says which CPUs share what."""
    domains = gang_domains(host(packages=2, cores=2, threads=2))
    assert [d.cpus for d in domains] == [(0, 4, 1, 5), (2, 6, 3, 7)]
    assert domains[0].reason == "CPUs 0-1,4-5 share a last-level cache"


def test_a_large_cache_is_cut_at_core_borders() -> None:
    """No domain is larger than the scheduler's matrix, and no core is in two."""
    cpus = tuple(Cpu(n, n // 3 * 3, 0, 0, 0) for n in range(150))
    topology = Topology(cpus)
    domains = gang_domains(topology)
    assert [len(d.cpus) for d in domains] == [63, 63, 24]
    for core in topology.cores():
        assert sum(bool(set(core) & set(d.cpus)) for d in domains) == 1


def test_isolated_cpus_are_left_alone() -> None:
    """isolcpus= belongs to somebody else."""
    whole = host(cores=2, threads=1)
    assert [d.cpus for d in gang_domains(Topology(whole.cpus, frozenset({1})))] == [(0,)]
    assert gang_domains(Topology(whole.cpus, frozenset({0, 1}))) == ()


def test_siblings_share_a_core() -> None:
    """vCPUs 0 and 1 on one core: no other guest of the slot is on it."""
    assert cpus_of(host(cores=2, threads=2), 2) == [[0, 2]]


def test_the_next_guest_goes_where_nobody_is() -> None:
    """First free cores of a cache, then another cache, then shared in time."""
    topology = host(packages=2, cores=2, threads=1)
    assert cpus_of(topology, 2, 2, 2) == [[0, 1], [2, 3], [0, 1]]
    assert cpus_of(host(cores=4, threads=1), 2, 2, 2) == [[0, 1], [2, 3], [0, 1]]


def test_a_newcomer_moves_nobody() -> None:
    """The same guests first get the same places, whoever comes after."""
    topology = host(cores=4, threads=2)
    assert cpus_of(topology, 2, 4, 3)[:2] == cpus_of(topology, 2, 4)


def test_too_wide_takes_turns() -> None:
    """A guest wider than every gang domain has all of one, and some of its vCPUs take turns."""
    (cpus,) = cpus_of(host(packages=2, cores=2, threads=1), 5)
    assert cpus == [0, 1, 0, 1, 0]
    topology = host(cores=2, threads=1)
    placed = place(guest("wide", 1, vcpus=3), topology, gang_domains(topology), Crowd())
    assert not isinstance(placed, str)
    turns = [place.reason.endswith("takes turns with another vCPU of this guest") for place in placed[1]]
    assert turns == [False, False, True]


def test_no_cpu_is_a_sentence() -> None:
    """A host of which nothing is known holds nobody."""
    assert cpus_of(Topology(), 2) == ["no gang domain has a CPU"]


def test_reasons_say_what_is_shared() -> None:
    """Core, thread of the core, and how many others are there already."""
    topology, crowd = host(cores=1, threads=2), Crowd()
    texts = []
    for number in (1, 2, 3):
        placed = place(guest(f"g{number}", number), topology, gang_domains(topology), crowd)
        assert not isinstance(placed, str)
        texts.append(placed[1][1].reason)
    assert texts == [
        "core 0, thread 2 of 2; free",
        "core 0, thread 2 of 2; shared in time with 1 other gang",
        "core 0, thread 2 of 2; shared in time with 2 other gangs",
    ]


HOSTS = st.builds(host, packages=st.integers(1, 3), cores=st.integers(1, 6), threads=st.integers(1, 2))


@given(topology=HOSTS, widths=st.lists(st.integers(1, 14), max_size=12))
def test_every_placement_is_lawful(topology: Topology, widths: list[int]) -> None:
    """One CPU for each vCPU, all in one gang domain, and no CPU twice unless all of the widest are taken."""
    domains = [set(d.cpus) for d in gang_domains(topology)]
    assert all(len(cpus) <= DOMAIN_CPUS for cpus in domains)
    for width, cpus in zip(widths, cpus_of(topology, *widths), strict=True):
        assert not isinstance(cpus, str)
        assert len(cpus) == width
        assert len(set(cpus)) == min(width, max(map(len, domains)))
        assert any(set(cpus) <= domain for domain in domains)


@given(topology=HOSTS, count=st.integers(1, 20))
def test_guests_as_wide_as_a_core_spread_evenly(topology: Topology, count: int) -> None:
    """No core has two guests more than another."""
    threads = len(topology.cores()[0])
    crowd = Crowd()
    cpus_of(topology, *[threads] * count, crowd=crowd)
    loads = [crowd.members[cpu] for cpu in topology.ids]
    assert max(loads) - min(loads) <= 1
