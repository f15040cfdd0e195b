# SPDX-License-Identifier: Apache-2.0
"""Affinities of the threads of a real process, which has the arguments and the thread names of a guest."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from gangd.actuate.affinity import ALL, Affinity
from gangd.actuate.executor import Executor
from gangd.actuate.journal import Entry, Journal
from gangd.errors import GangError, InvalidArgument, NotRunning
from gangd.events.threads import thread_groups
from gangd.model.cpulist import format_cpulist, parse_cpulist
from gangd.model.domain import Mode, ThreadGroup
from gangd.model.plan import GangPlan, HelperPlace, Placement, Plan

UUID = "11111111-2222-3333-4444-555555555555"
CPUS = sorted(os.sched_getaffinity(0))
GUEST = """
import ctypes, sys, threading
def run(name):
    ctypes.CDLL(None).prctl(15, name.encode(), 0, 0, 0)
    ready.wait()
    threading.Event().wait()
ready = threading.Barrier(2)
def clone(name):
    threading.Thread(target=run, args=(name,), daemon=True).start()
    ready.wait()
for name in ("CPU 0/KVM", "CPU 1/KVM", "worker", "worker"):
    clone(name)
print("ready", flush=True)
for line in sys.stdin:
    clone("worker")
    print("ready", flush=True)
"""
pytestmark = pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs")


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """Two vCPUs and three emulator threads that sleep."""
    command = [sys.executable, "-c", GUEST, "-uuid", UUID]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as process:
        assert process.stdout is not None and process.stdout.readline()
        yield process
        process.kill()


@pytest.fixture
def guest(process: subprocess.Popen[bytes]) -> int:
    """Return the guest's process id."""
    return process.pid


def plan(pid: int | None, *cpus: int, helpers: frozenset[int] = frozenset()) -> Plan:
    """The guest's vCPUs on these CPUs."""
    places = tuple(Placement(vcpu, None, cpu, "test") for vcpu, cpu in enumerate(cpus))
    around = (HelperPlace("emulator", helpers, "test"),) if helpers else ()
    return Plan(gangs=(GangPlan(UUID, "vm", pid, Mode.BALANCE, 0, places, "test", helpers=around),))


def affinities(pid: int) -> dict[str, list[set[int]]]:
    """Return the affinity of each thread, by the name of its group."""
    groups = thread_groups(pid, UUID)
    assert groups is not None
    return {name: [os.sched_getaffinity(tid) for tid in group.tids] for name, group in groups.items()}


def tree(root: Path, cpus: dict[int, str]) -> Affinity:
    """The affinities of emulator threads, whose names are not UTF-8, on a host of four CPUs, in files."""

    def write(tid: int, cpus: Iterable[int]) -> None:
        text = b"Name:\t\xff\xfe\nCpus_allowed_list:\t%s\n" % format_cpulist(cpus).encode()
        (root / f"proc/{tid}/status").write_bytes(text)

    for tid, text in cpus.items():
        (root / f"proc/{tid}").mkdir(parents=True, exist_ok=True)
        write(tid, parse_cpulist(text))
    (root / "sys/devices/system/cpu").mkdir(parents=True, exist_ok=True)
    (root / "sys/devices/system/cpu/possible").write_text("0-3")
    groups = {"emulator": ThreadGroup(tuple(cpus), frozenset(range(4)))}
    return Affinity(lambda _pid, _uuid: groups, root, write=write)


def allowed(root: Path, tid: int) -> str:
    """Return the CPUs that the thread may run on."""
    return (root / f"proc/{tid}/status").read_bytes().split()[-1].decode()


def test_affinities_are_set_verified_and_undone(guest: int, tmp_path: Path) -> None:
    """Emulator threads, too: all that are no vCPU's."""
    executor, before = Executor([Affinity(thread_groups)], Journal(tmp_path / "journal")), affinities(guest)
    assert sorted(before) == ["emulator", "vcpu/0", "vcpu/1"]
    wanted = plan(guest, CPUS[1], CPUS[0], helpers=frozenset({CPUS[1]}))
    report = executor.reconcile(wanted)
    assert (report.writes, report.failures) == (3, ())
    assert affinities(guest) == {
        "emulator": [{CPUS[1]}] * len(before["emulator"]), "vcpu/0": [{CPUS[1]}], "vcpu/1": [{CPUS[0]}]
    }  # fmt: skip
    assert executor.changes(wanted) == [] and executor.reconcile(wanted).writes == 0
    assert executor.undo().failures == ()
    assert affinities(guest) == before and not executor.journal.entries


def test_a_thread_that_taskset_moved_is_left_alone(guest: int, tmp_path: Path) -> None:
    """Before or after: what was found is put back, and who came later wins."""
    executor = Executor([Affinity(thread_groups)], Journal(tmp_path / "journal"))
    groups = thread_groups(guest, UUID)
    assert groups is not None
    (first,), (second,) = groups["vcpu/0"].tids, groups["vcpu/1"].tids
    os.sched_setaffinity(first, {CPUS[1]})
    executor.reconcile(plan(guest, CPUS[0], CPUS[0]))
    assert os.sched_getaffinity(first) == {CPUS[0]}
    os.sched_setaffinity(second, {CPUS[1]})
    said = f"vCPU 1 of 'vm' was pinned by hand to {CPUS[1]}: left alone"
    assert executor.reconcile(plan(guest, CPUS[0], CPUS[0])).failures == (said,)
    assert executor.undo().failures == (said,)
    assert (os.sched_getaffinity(first), os.sched_getaffinity(second)) == ({CPUS[1]}, {CPUS[1]})


def test_a_refused_thread_keeps_no_other_from_its_place(guest: int) -> None:
    """The kernel refuses the first of the emulator threads: the others move all the same."""

    def write(tid: int, cpus: Iterable[int]) -> None:
        if tid == guest:
            raise PermissionError
        os.sched_setaffinity(tid, cpus)

    with pytest.raises(GangError, match="its cgroup and the host allow only"):
        Affinity(thread_groups, write=write).write(f"{UUID}/{guest}/emulator", str(CPUS[1]))
    assert sorted(affinities(guest)["emulator"], key=len) == [{CPUS[1]}, {CPUS[1]}, set(CPUS)]


def test_a_thread_that_nobody_can_move_is_left_out(tmp_path: Path) -> None:
    """The flags of a worker of io_uring: its CPUs are not the group's, and nothing is asked of it."""
    affinity = tree(tmp_path, {7: "1", 8: "0-3"})
    for tid, flags in ((7, 0x400040), (8, 0x4404040)):
        task = tmp_path / f"proc/{tid}/task/{tid}"
        task.mkdir(parents=True)
        (task / "stat").write_text(f"{tid} (a) b) S 1 7 7 0 -1 {flags} 0 0\n")
    assert affinity.read(f"{UUID}/7/emulator") == "1"
    affinity.write(f"{UUID}/7/emulator", "2")
    assert (allowed(tmp_path, 7), allowed(tmp_path, 8)) == ("2", "0-3")


@pytest.mark.parametrize(
    ("found", "later", "after", "said"),
    [
        pytest.param("0-3", ("1", "1", "2"), ("0-3", "0-3", "2"), None, id="a thread that came later"),
        pytest.param("0-3", ("1", "1", "1"), ("0-3", "0-3", "0-3"), None, id="a clone"),
        pytest.param("0-2", ("1", "1", "0-3"), ("0-2", "0-2", "0-3"), None, id="one that may go anywhere"),
        pytest.param("0-3", ("2", "2", "2-3"), ("2", "2", "2-3"), "2-3", id="none is gangd's"),
    ],
)
def test_an_undo_judges_each_thread(
    tmp_path: Path, found: str, later: tuple[str, ...], after: tuple[str, ...], said: str | None
) -> None:
    """A thread that is where gangd put it goes back; one that is elsewhere stays."""
    journal, wanted = Journal(tmp_path / "journal"), plan(7, helpers=frozenset({1}))
    assert Executor([tree(tmp_path, {7: found, 8: found})], journal).reconcile(wanted).writes == 1
    executor = Executor([tree(tmp_path, dict(enumerate(later, 7)))], journal)
    assert len(executor.changes(Plan())) == (not said)
    report = executor.undo()
    sentence = f"the emulator threads of '{UUID}' were pinned by hand to {said}: left alone"
    assert report.failures == ((sentence,) if said else ())
    assert tuple(allowed(tmp_path, tid) for tid in (7, 8, 9)) == after and not journal.entries


def test_threads_that_are_pinned_differently_are_left_alone(guest: int, tmp_path: Path) -> None:
    """An operator pinned one emulator thread: gangd could not put it back. Pinned alike again, they go."""
    executor = Executor([Affinity(thread_groups)], Journal(tmp_path / "journal"))
    groups = thread_groups(guest, UUID)
    assert groups is not None
    one = groups["emulator"].tids[-1]
    os.sched_setaffinity(one, {CPUS[0]})
    before, wanted = affinities(guest), plan(guest, helpers=frozenset({CPUS[1]}))
    assert executor.changes(wanted) == []
    said = "the emulator threads of 'vm' are pinned differently by hand: left alone"
    assert executor.reconcile(wanted).failures == (said,)
    assert affinities(guest) == before and not executor.journal.entries
    os.sched_setaffinity(one, CPUS)
    assert executor.reconcile(wanted).writes == 1
    os.sched_setaffinity(one, {CPUS[0]})
    assert executor.undo().failures == ()
    assert affinities(guest) == before


def test_a_thread_that_a_guest_clones_during_an_undo(
    process: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    """A clone has the pin of its maker, which the undo moves afterwards; gangd listed the threads before."""
    cloning: list[bytes] = []

    def write(tid: int, cpus: Iterable[int]) -> None:
        if cloning:
            assert process.stdin and process.stdout
            process.stdin.write(cloning.pop())
            process.stdout.readline()
        os.sched_setaffinity(tid, cpus)

    affinity = Affinity(thread_groups, write=write)
    executor = Executor([affinity], Journal(tmp_path / "journal"))
    executor.reconcile(plan(process.pid, helpers=frozenset({CPUS[1]})))
    cloning.append(b"\n")
    assert executor.undo().failures == ()
    assert affinities(process.pid)["emulator"] == [set(CPUS)] * 4


@pytest.mark.parametrize(("passing", "clones", "calls"), [(True, 1, 3), (False, 1, 4), (True, 99, 6)])
def test_clones_are_looked_for_a_few_times(passing: bool, clones: int, calls: int) -> None:
    """Until there is none, or five times; the value is then read of the threads that were found last."""
    lists: list[tuple[int, ...]] = []

    def find(_pid: int, _uuid: str) -> dict[str, ThreadGroup]:
        lists.append(tuple(range(2**30, 2**30 + min(len(lists), clones) + 1)))
        return {"emulator": ThreadGroup(lists[-1], frozenset(CPUS))}

    asked: list[int] = []
    affinity = Affinity(find, write=lambda tid, _cpus: asked.append(tid))
    with affinity.passing() if passing else nullcontext():
        affinity.write(f"{UUID}/7/emulator", ALL)
        affinity.read(f"{UUID}/7/emulator")
    assert len(lists) == calls and asked == list(lists[-2] if clones > 1 else lists[-1])


def test_a_pin_of_libvirts_wins(guest: int) -> None:
    """A cpuset of one CPU: whatever is asked for, the thread runs there, and nothing is left to write."""
    groups = thread_groups(guest, UUID)
    assert groups is not None
    pinned = {name: replace(group, room=frozenset({CPUS[0]})) for name, group in groups.items()}
    affinity = Affinity(lambda _pid, _uuid: pinned)
    key = f"{UUID}/{guest}/vcpu/0"
    assert [affinity.shows(key, value) for value in (ALL, str(CPUS[0]), str(CPUS[1]))] == [ALL, ALL, ""]


def test_a_guest_that_ended_has_no_affinity(guest: int, tmp_path: Path) -> None:
    """The process has ended, or belongs to another guest."""
    key, affinity = f"{UUID}/{guest}/vcpu/0", Affinity(thread_groups)
    assert affinity.read(key) == ALL
    assert affinity.read(key.replace("1111-", "2222-")) is None
    assert affinity.read(f"{UUID}/{guest}/vcpu/7") is None
    with pytest.raises(NotRunning, match="the guest is not running"):
        affinity.write(f"{UUID}/{guest}/vcpu/7", "0")


def test_affinity_errors_name_their_reason(guest: int) -> None:
    """The host has no such CPU, the value is no list of CPUs, or the key names no threads."""
    affinity = Affinity(thread_groups)
    with pytest.raises(GangError, match="its cgroup and the host allow only CPUs "):
        affinity.write(f"{UUID}/{guest}/vcpu/0", "4000")
    with pytest.raises(InvalidArgument, match="'x' is not a list of CPUs"):
        affinity.write(f"{UUID}/{guest}/vcpu/0", "x")
    for rest in ("vcpu/0", "1/vcpu", "1/vcpu/x", "1/emulator/1", "x/emulator", "1/"):
        with pytest.raises(InvalidArgument, match="names no threads of a guest"):
            affinity.read(f"{UUID}/{rest}")


def test_an_entry_of_another_version_stops_no_other(guest: int, tmp_path: Path) -> None:
    """The entry's key names no threads: the undo says so, keeps the entry, and goes on."""
    journal, before = Journal(tmp_path / "journal"), affinities(guest)
    executor = Executor([Affinity(thread_groups)], journal)
    executor.reconcile(plan(guest, CPUS[1], CPUS[0]))
    journal.put("affinity", f"{UUID}/77/vcpu", Entry("all", "3"))
    assert executor.undo().failures == (f"'{UUID}/77/vcpu' names no threads of a guest",)
    assert affinities(guest) == before and len(journal.entries) == 1


def test_a_plan_wants_what_it_places(guest: int) -> None:
    """A plan wants no pin for a gang without a process, nor for one whose scheduler chooses its CPUs."""
    assert Affinity(thread_groups).wanted(plan(None, 0, 1)) == {}
    assert Affinity(thread_groups, roams=lambda gang: True).wanted(plan(guest, 0, 1)) == {}
    found = Affinity(thread_groups).wanted(plan(7, 2, 3, helpers=frozenset({0, 1})))
    assert {key: want.value for key, want in found.items()} == {
        f"{UUID}/7/vcpu/0": "2", f"{UUID}/7/vcpu/1": "3", f"{UUID}/7/emulator": "0-1"
    }  # fmt: skip


def test_threads_are_looked_for_once_in_a_pass() -> None:
    calls = []

    def find(pid: int, uuid: str) -> dict[str, ThreadGroup]:
        calls.append((pid, uuid))
        return {}

    affinity = Affinity(find)
    with affinity.passing():
        assert [affinity.read(f"{UUID}/7/vcpu/{number}") for number in range(3)] == [None] * 3
    affinity.read(f"{UUID}/7/vcpu/0")
    assert calls == [(7, UUID)] * 2
