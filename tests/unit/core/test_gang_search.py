# SPDX-License-Identifier: Apache-2.0
"""Idle CPUs and CPUs to steal from: who is found, in which order, and never one that may not be."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .conftest import HELPER, HERE
from .search_lib import CPUS, NOBODY, Host, Search

same_host = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@st.composite
def hosts(draw: st.DrawFn) -> Host:
    """Up to 6 caches of up to 6 cores of 1 to 8 threads, CPU numbers in any order."""
    shape = draw(st.lists(st.lists(st.integers(1, 8), min_size=1, max_size=6), min_size=1, max_size=6))
    count = sum(threads for llc in shape for threads in llc)
    spread = draw(st.sampled_from([1, 3, CPUS // count]))
    numbers = iter(draw(st.permutations([n * spread for n in range(count)])))
    return Host(tuple(tuple(tuple(next(numbers) for _ in range(n)) for n in llc) for llc in shape))


def some(data: st.DataObject, cpus: list[int]) -> set[int]:
    """A subset, none and all included."""
    mask = data.draw(st.integers(0, 2 ** len(cpus) - 1) | st.sampled_from([0, 2 ** len(cpus) - 1]))
    return {cpu for at, cpu in enumerate(cpus) if mask >> at & 1}


def expected(host: Host, prev: int, usable: set[int], idle: set[int]) -> set[int]:
    """Whom a waking task may be given, by the order of gang_search.h; empty: nobody."""
    whole = {cpu for core in host.cores() if core <= idle for cpu in core} & usable
    near, far = host.llc_of(prev) & usable, usable - host.llc_of(prev)
    ranked = [{prev} & usable, whole & near, host.core_of(prev) & usable, near, whole & far, far]
    return next((found for found in ranked if found), set())


@same_host
@given(host=hosts(), data=st.data())
def test_the_right_idle_cpu_is_found(search: Search, host: Host, data: st.DataObject) -> None:
    """The previous one, an idle core of the cache, a sibling, the cache, the others: whoever is first."""
    search.reset(host)
    idle, allowed = some(data, host.cpus), some(data, host.cpus)
    prev = data.draw(st.sampled_from(host.cpus))
    for cpu in idle:
        search.idle(cpu)
    found = search.find(prev, allowed)
    assert found in (expected(host, prev, idle & allowed, idle) or {NOBODY})


@same_host
@given(host=hosts(), data=st.data())
def test_every_idle_cpu_is_handed_out_once(search: Search, host: Host, data: st.DataObject) -> None:
    """Who is found is claimed: as many wakers are served as CPUs are idle, no two get the same."""
    search.reset(host)
    idle, allowed = some(data, host.cpus), some(data, host.cpus)
    for cpu in idle:
        search.idle(cpu)
    wakers = data.draw(st.lists(st.sampled_from([*host.cpus, CPUS - 1]), min_size=len(idle) + 1))
    found = [search.find(prev, allowed) for prev in wakers]
    assert sorted(cpu for cpu in found if cpu != NOBODY) == sorted(idle & allowed)
    assert {cpu for cpu in host.cpus if search.is_idle(cpu)} == idle - allowed


@same_host
@given(host=hosts(), data=st.data())
def test_victims_come_nearest_first_and_all_of_them(search: Search, host: Host, data: st.DataObject) -> None:
    """Every other overloaded CPU is named once: those of the core, of the cache, of the rest."""
    search.reset(host)
    overloaded = some(data, host.cpus)
    for cpu in overloaded:
        search.waiting(cpu, data.draw(st.integers(1, 5)))
    thief = data.draw(st.sampled_from(host.cpus))
    found = search.victims(thief)
    assert sorted(found) == sorted(overloaded - {thief})
    distance = [0 if v in host.core_of(thief) else 1 if v in host.llc_of(thief) else 2 for v in found]
    assert distance == sorted(distance)


@same_host
@given(host=hosts(), data=st.data())
def test_the_masks_follow_what_is_noted(search: Search, host: Host, data: st.DataObject) -> None:
    """Whatever is noted in whatever order, a bit says what was noted last; offline is neither."""
    search.reset(host)
    idle: set[int] = set()
    waiting: set[int] = set()
    for _ in range(data.draw(st.integers(0, 30))):
        cpu = data.draw(st.sampled_from(host.cpus))
        match data.draw(st.sampled_from(["idle", "busy", "waiting", "alone", "offline"])):
            case "idle":
                search.idle(cpu)
                idle.add(cpu)
            case "busy":
                search.idle(cpu, False)
                idle.discard(cpu)
            case "waiting":
                search.waiting(cpu, 2)
                waiting.add(cpu)
            case "alone":
                search.waiting(cpu, 0)
                waiting.discard(cpu)
            case "offline":
                search.offline(cpu)
                idle.discard(cpu)
                waiting.discard(cpu)
    assert {cpu for cpu in host.cpus if search.is_idle(cpu)} == idle
    assert set(search.victims(CPUS - 1)) == waiting - {CPUS - 1}


@same_host
@given(host=hosts())
def test_no_line_has_two_caches_and_no_core_two_lines(search: Search, host: Host) -> None:
    """Who shares a line shares a cache; siblings share a line; at most 8 CPUs do."""
    search.reset(host)
    on_line: dict[int, list[int]] = {}
    for cpu in host.cpus:
        on_line.setdefault(search.line(cpu), []).append(cpu)
    for cpus in on_line.values():
        assert len(cpus) <= 8 and len({min(host.llc_of(cpu)) for cpu in cpus}) == 1
    for core in host.cores():
        assert len({search.line(cpu) for cpu in core}) == 1


@pytest.mark.parametrize("threads", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("llcs", [1, 16, 64])
def test_the_largest_host_fits(search: Search, threads: int, llcs: int) -> None:
    """1,024 CPUs in up to 64 caches: the last idle CPU is found, each line read a bounded number of times."""
    cores = CPUS // threads // llcs
    numbers = iter(range(CPUS))
    host = Host(
        tuple(tuple(tuple(next(numbers) for _ in range(threads)) for _ in range(cores)) for _ in range(llcs))
    )
    search.reset(host)
    last = host.cpus[-1]
    search.idle(last)
    search.waiting(last, 1)
    assert search.find(0, host.cpus) == last
    assert search.find(0, host.cpus) == NOBODY
    assert search.cost() <= 2 * (2 * search.all_lines() + 2)
    before = search.cost()
    assert search.victims(0) == [last]
    assert search.cost() - before <= search.all_lines() + 1


@pytest.mark.parametrize(
    "call",
    [
        (0, 0, 1, True),
        (CPUS, 0, 1, False),
        (1, 1, 2, False),
        (1, 0, 0, False),
        (1, 0, 9, False),
        (1, 2, 2, True),
    ],
)
def test_what_makes_no_sense_is_not_added(search: Search, call: tuple[int, int, int, bool]) -> None:
    """A CPU twice or out of range, a sibling without its core, a core of no or of nine threads."""
    search.clear()
    assert search.add(0, 0, 1, True)
    assert not search.add(*call)


def test_a_core_is_completed_before_the_next_begins(search: Search) -> None:
    """Half a core would never be idle."""
    search.clear()
    assert not search.add(0, 0, 2, False)
    assert search.add(0, 0, 2, True)
    assert not search.add(1, 0, 1, False)
    assert search.add(1, 1, 2, False)


def test_a_task_from_nowhere_finds_a_cpu(search: Search) -> None:
    """Also a previous CPU that is not of this host leads to an idle one."""
    search.reset(Host((((0, 1),), ((2, 3),))))
    search.idle(3)
    assert search.find(700, [0, 1, 2]) == NOBODY
    assert search.find(700, [3]) == 3


def test_it_compiles_for_bpf(tmp_path: Path) -> None:
    """With clang, the kernel's loop form and BPF's atomics."""
    multiarch = subprocess.run(["gcc", "-print-multiarch"], check=True, capture_output=True, text=True)
    includes = [f"-I{HELPER / part}" for part in ("include", "core", "bpf")]
    command: list[str | Path] = ["clang-19", "-O2", "-g", "-target", "bpf", "-mcpu=v3", "-Wall", "-Werror"]
    command += ["-D__TARGET_ARCH_x86", *includes, "-idirafter", f"/usr/include/{multiarch.stdout.strip()}"]
    subprocess.run([*command, "-c", HERE / "search_bpf.c", "-o", tmp_path / "search.o"], check=True)
