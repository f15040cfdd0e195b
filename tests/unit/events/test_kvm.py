# SPDX-License-Identifier: Apache-2.0
"""Guests that KVM tells of, in a tree of files that looks like a host."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from gangd.errors import GangError, InvalidArgument, InvalidMark, NoSuchDomain, NotMarked
from gangd.events import kvm as kvm_source
from gangd.events import kvm_reader
from gangd.events.kvm import KvmSource
from gangd.events.kvm_reader import machines, named, read_guests, thread_groups
from gangd.model.affect import Affect
from gangd.model.domain import KVM, Domain, Mark
from gangd.model.event import Connected, DomainGone, DomainSeen, Event, Resynced

SCOPE = "qemu.slice/100.scope"
EVERY = frozenset(range(4))


def as_it_is(_key: str, now: frozenset[int]) -> frozenset[int]:
    """gangd has pinned nobody."""
    return now


class Host:
    """A root directory with KVM's debugfs in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.put("proc/sys/kernel/random/boot_id", "5e0c1a52-8f3b-4d9e-b7a7-1f1f35a1b2c3\n")
        self.put("sys/devices/system/cpu/online", "0-3\n")
        (root / "sys/kernel/debug/kvm").mkdir(parents=True)

    def put(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def machine(
        self, pid: int, *tids: int, group: str = SCOPE, fd: int = 9, ids: tuple[int, ...] = ()
    ) -> None:
        """A virtual machine whose vCPUs were last run by `tids`, 0: by none yet; KVM calls them `ids`."""
        self.folder(pid, fd).mkdir(parents=True, exist_ok=True)
        for number, tid in zip(ids or range(len(tids)), tids, strict=True):
            self.ran(pid, number, tid, fd)
        for tid in {pid, *filter(None, tids)}:
            self.thread(pid, tid, group)
        (self.root / "sys/fs/cgroup" / group).mkdir(parents=True, exist_ok=True)

    def folder(self, pid: int, fd: int = 9) -> Path:
        return self.root / f"sys/kernel/debug/kvm/{pid}-{fd}"

    def ran(self, pid: int, number: int, tid: int, fd: int = 9) -> None:
        self.put(f"sys/kernel/debug/kvm/{pid}-{fd}/vcpu{number}/pid", f"{tid}\n")

    def thread(self, pid: int, tid: int, group: str = SCOPE, policy: int = 0, cpus: str = "0-3") -> None:
        fields = " ".join(str(n) for n in range(4, 22))
        later = " ".join(str(n) for n in range(23, 41))
        self.put(f"proc/{pid}/task/{tid}/stat", f"{tid} (a) b) S {fields} {5000 + tid} {later} {policy} 42\n")
        for folder in (f"proc/{pid}/task/{tid}", f"proc/{tid}"):
            self.put(f"{folder}/cgroup", f"0::/{group}\n")
            self.put(f"{folder}/status", f"Name:\tvcpu\nCpus_allowed_list:\t{cpus}\n")

    def mark(self, text: bytes, group: str = SCOPE) -> None:
        os.setxattr(self.root / "sys/fs/cgroup" / group, "user.gang", text)

    def guests(self, unpinned: kvm_reader.Unpinned = as_it_is) -> list[Domain]:
        there = machines(self.root)
        read = read_guests(there, there, unpinned, self.root)
        return named([reading.guest for reading in read.values()])

    def guest(self) -> Domain:
        (found,) = self.guests()
        return found


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_a_guest_is_what_kvm_and_its_cgroup_say(host: Host) -> None:
    """KVM's numbers are APIC ids: QEMU's third core of two sockets is vCPU 2 and number 4."""
    host.machine(700, 701, 702, 703, ids=(4, 1, 0))
    host.put(f"sys/fs/cgroup/{SCOPE}/cpu.weight", "300\n")
    host.put("sys/fs/cgroup/qemu.slice/cpuset.cpus.effective", "0-2\n")
    guest = host.guest()
    assert (guest.name, guest.id, guest.pid, guest.state, guest.source) == (SCOPE, 700, 700, "running", KVM)
    assert [(vcpu.index, vcpu.tid, vcpu.starttime) for vcpu in guest.vcpus] == [
        (0, 703, 5703),
        (1, 702, 5702),
        (2, 701, 5701),
    ]
    assert (guest.weight, guest.allowed, guest.mark, guest.hidden) == (300, frozenset({0, 1, 2}), None, "")
    assert [helper.name for helper in guest.helpers] == ["emulator"]
    groups = thread_groups(700, guest.uuid, host.root)
    assert groups and {name: group.tids for name, group in groups.items()} == {
        "vcpu/0": (703,),
        "vcpu/1": (702,),
        "vcpu/2": (701,),
        "emulator": (700,),
    }


def test_a_run_has_an_identity_that_nobody_chooses(host: Host) -> None:
    """A run stays the same when gangd restarts; another boot, process, start or machine is another run."""
    host.machine(700, 701)
    first = host.guest().uuid
    assert host.guest().uuid == first
    assert thread_groups(700, "11111111-2222-5333-8444-555555555555", host.root) is None
    assert thread_groups(701, first, host.root) is None
    host.put("proc/sys/kernel/random/boot_id", "another\n")
    second = host.guest().uuid
    fields = (host.root / "proc/700/task/700/stat").read_text()
    host.put("proc/700/task/700/stat", fields.replace("5700", "5799"))
    third = host.guest().uuid
    host.folder(700).rename(host.folder(700, 10))
    assert len({first, second, third, host.guest().uuid}) == 4


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda host: host.ran(700, 1, 0), "not every vCPU of it has run yet"),
        (lambda host: host.machine(700, fd=10), "its process has several virtual machines"),
        (
            lambda host: host.ran(700, 1, 701),
            "one thread runs several of its vCPUs",
        ),
        (
            lambda host: host.ran(700, 1, 999),
            "another process runs some of its vCPUs",
        ),
        (lambda host: host.thread(700, 702, "qemu.slice/b"), "its vCPUs are in different cgroups"),
        (
            lambda host: [host.thread(700, tid, "../user.slice") for tid in (700, 701, 702)],
            "its cgroup is none that gangd sees",
        ),
    ],
)
def test_why_a_guest_can_be_no_gang(host: Host, change: Callable[[Host], Any], reason: str) -> None:
    """The guest is shown with the sentence; gangd touches none of its threads."""
    host.machine(700, 701, 702)
    change(host)
    for guest in host.guests():
        assert (guest.hidden, guest.vcpus, guest.helpers) == (reason, (), ())
        assert thread_groups(700, guest.uuid, host.root) == {}


def test_real_time_vcpus_are_told(host: Host) -> None:
    """KubeVirt's realtime guests have SCHED_FIFO vCPUs, which the planner refuses."""
    host.machine(700, 701, 702)
    host.thread(700, 702, policy=1)
    assert [vcpu.real_time for vcpu in host.guest().vcpus] == [False, True]


def test_libvirts_guests_are_libvirts(host: Host) -> None:
    """By the PID file, which libvirt writes before QEMU starts."""
    host.machine(700, 701)
    host.machine(800, 801, group="machine.slice/a.scope")
    host.put("run/libvirt/qemu/vm.pid", "800\n")
    host.put("run/libvirt/qemu/vm.xml", "700\n")
    assert [guest.pid for guest in host.guests()] == [700]


def test_an_affinity_of_somebody_else_is_a_pin(host: Host) -> None:
    """taskset of Proxmox, Incus, an operator: as virsh vcpupin. gangd's own is none."""
    host.machine(700, 701, 702)
    host.thread(700, 701, cpus="1")
    host.thread(700, 702, cpus="3")

    ours = f"{host.guest().uuid}/700/vcpu/1"
    (guest,) = host.guests(lambda key, now: EVERY if key == ours else now)
    assert [vcpu.affinity for vcpu in guest.vcpus] == [frozenset({1}), frozenset()]
    assert guest.helpers[0].affinity == frozenset()


@pytest.mark.parametrize(
    ("text", "mark", "error"),
    [
        (b"1", Mark(None), None),
        (b' <gang policy="relaxed" weight="200"/>\n', Mark("relaxed", 200), None),
        (b'<gang nonsense="1"/>', None, "invalid gang metadata: unknown attribute 'nonsense'"),
        (b"\xff\xfe", None, "invalid gang metadata: not well-formed XML"),
        (b"<gang/>" + b" " * 3000 + b"<!--", None, "invalid gang metadata: declarations"),
        (b"0", None, "invalid gang metadata: not well-formed XML"),
    ],
)
def test_the_mark_is_an_attribute_of_the_cgroup(
    host: Host, text: bytes, mark: Mark | None, error: str | None
) -> None:
    """A cgroup's attribute is parsed like libvirt's metadata, and may be the 1 of libvirt's cgroups."""
    host.machine(700, 701, 702)
    host.mark(text)
    guest = host.guest()
    assert guest.mark == mark
    assert (guest.mark_error or "").startswith(error or "") and bool(guest.mark_error) == bool(error)


def test_a_user_does_not_mark_guests(host: Host) -> None:
    """The cgroups below a user's own service are his to write to."""
    host.machine(700, 701)
    host.mark(b"1")
    os.chown(host.root / "sys/fs/cgroup" / SCOPE, 1000, 1000)
    assert (host.guest().mark, host.guest().mark_error) == (None, None)


def test_guests_of_one_cgroup_have_no_mark(host: Host) -> None:
    """Incus keeps all of its guests in its own: they are told apart by PID, and selectors find them."""
    host.machine(700, 701)
    host.machine(800, 801)
    assert [guest.name for guest in host.guests()] == [f"{SCOPE}#700", f"{SCOPE}#800"]
    host.mark(b"1")
    for guest in host.guests():
        assert (guest.mark, guest.mark_error, guest.cgroup) == (None, kvm_reader.SHARED, SCOPE)


def test_a_guest_in_the_root_cgroup_has_no_mark(host: Host) -> None:
    """PID 1 of a container may be in the root: an attribute of the root marks no guest."""
    host.machine(700, 701, group="")
    host.mark(b"1", "")
    guest = host.guest()
    assert (guest.name, guest.cgroup, guest.mark, guest.hidden) == ("/", "", None, "")


def test_debugfs_is_needed_where_there_is_none(tmp_path: Path) -> None:
    """A host without the kvm module has no guests, and that is no trouble."""
    (tmp_path / "sys/kernel/debug").mkdir(parents=True)
    with pytest.raises(GangError, match="debugfs is not mounted"):
        machines(tmp_path)
    (tmp_path / "sys/kernel/debug/sched").mkdir()
    assert machines(tmp_path) == []


class Bench:
    """A source on a host, and what it emitted."""

    def __init__(self, host: Host, alone: bool = False) -> None:
        self.host, self.events = host, list[Event]()
        self.source = KvmSource(host.root, 0.4, as_it_is, lambda guest: guest.mark is not None, alone)

    def run(self, test: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def scenario() -> None:
            task = asyncio.create_task(self.source.run(self.events.append))
            try:
                await asyncio.wait_for(self.source.asked(), 5)
                await asyncio.wait_for(test(), 10)
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

        asyncio.run(scenario())

    async def until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            await asyncio.sleep(0.01)

    @property
    def names(self) -> list[str]:
        return [guest.name for guest in self.source.known.values()]


@pytest.fixture
def bench(host: Host, monkeypatch: pytest.MonkeyPatch) -> Bench:
    async def follow(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(kvm_source.uevent, "follow", follow)
    return Bench(host)


def test_the_source_tells_what_is_different(bench: Bench) -> None:
    """The source tells without an event, too: an interval later. It says nothing twice."""
    bench.host.machine(700, 701)

    async def test() -> None:
        bench.host.machine(800, 801, 0, group="b.scope")
        await bench.until(lambda: len(bench.names) == 2)
        bench.host.ran(800, 1, 802)
        bench.host.thread(800, 802, "b.scope")
        await bench.until(lambda: not bench.source.known[list(bench.source.known)[1]].hidden)
        bench.host.folder(700).rename(bench.host.root / "gone")
        await bench.until(lambda: bench.names == ["b.scope"])

    bench.run(test)
    seen = [event.domain.name for event in bench.events if isinstance(event, DomainSeen)]
    assert seen == [SCOPE, "b.scope", "b.scope"]
    assert isinstance(bench.events[-1], DomainGone)


def test_a_guest_that_nobody_chose_is_read_when_its_stamp_is_another(bench: Bench) -> None:
    """A mark, a vCPU more: at the next interval, whosever turn it is."""
    bench.host.machine(700, 701)

    async def test() -> None:
        await asyncio.sleep(0.6)  # it is settled
        assert not bench.source.known[next(iter(bench.source.known))].mark
        bench.host.mark(b"1")
        await bench.until(lambda: any(guest.mark for guest in bench.source.known.values()))
        os.removexattr(bench.host.root / "sys/fs/cgroup" / SCOPE, "user.gang")
        await bench.until(lambda: not any(guest.mark for guest in bench.source.known.values()))
        bench.host.machine(700, 701, 702)
        await bench.until(lambda: [len(guest.vcpus) for guest in bench.source.known.values()] == [2])

    bench.run(test)


def test_alone_it_has_the_cpus_as_well(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """`guests = ["kvm"]`: libvirt is asked nothing, and nothing waits for it."""
    (host.root / "sys/kernel/debug/kvm").rmdir()
    (host.root / "sys/kernel/debug").rmdir()
    bench = Bench(host, alone=True)

    async def test() -> None:
        await bench.until(lambda: any(isinstance(event, Resynced) for event in bench.events))
        assert bench.source.troubles[-1].startswith(
            "cannot see guests without libvirt: debugfs is not mounted"
        )
        bench.host.machine(700, 701)
        await bench.until(lambda: isinstance(bench.events[-1], Resynced) and bool(bench.events[-1].domains))
        assert not any("debugfs" in trouble for trouble in bench.source.troubles)

    bench.run(test)
    assert bench.events[0] == Connected("")


def test_marks_are_written_and_read_back(bench: Bench) -> None:
    """By name, PID or UUID; taken away twice is fine."""
    bench.host.machine(700, 701)

    async def test() -> None:
        guest = await bench.source.find("700")
        assert guest == await bench.source.find(SCOPE) == await bench.source.find(guest.uuid)
        with pytest.raises(NotMarked):
            await bench.source.change_mark(guest.uuid, lambda mark: mark)
        marked = await bench.source.set_mark(guest.uuid, Mark("relaxed", 200), Affect(live=True))
        assert marked.mark == Mark("relaxed", 200)
        changed = await bench.source.change_mark(guest.uuid, lambda mark: Mark(mark.policy, 300))
        assert changed.mark == Mark("relaxed", 300)
        for _ in range(2):
            assert (await bench.source.set_mark(guest.uuid, None)).mark is None
        bench.host.mark(b"<gang>")
        with pytest.raises(InvalidMark):
            await bench.source.change_mark(guest.uuid, lambda mark: mark)
        with pytest.raises(NoSuchDomain):
            await bench.source.find("701")

    bench.run(test)


@pytest.mark.parametrize(
    ("change", "affect", "reason"),
    [
        (lambda host: None, Affect(config=True), "has no configuration"),
        (lambda host: host.machine(800, 801), None, "holds other guests"),
        (lambda host: os.chown(host.root / "sys/fs/cgroup" / SCOPE, 7, 7), None, "belongs to user 7"),
        (lambda host: [host.thread(700, tid, "") for tid in (700, 701)], None, "in no cgroup of its own"),
    ],
)
def test_marks_that_would_not_count_are_refused(
    bench: Bench, change: Callable[[Host], Any], affect: Affect | None, reason: str
) -> None:
    """Nothing is written then."""
    bench.host.machine(700, 701)
    change(bench.host)

    async def test() -> None:
        guest = await bench.source.find("700")
        with pytest.raises(InvalidArgument, match=reason):
            await bench.source.set_mark(guest.uuid, Mark("relaxed"), affect)

    bench.run(test)
    assert "user.gang" not in os.listxattr(bench.host.root / "sys/fs/cgroup" / SCOPE)


def test_a_storm_of_machines_costs_a_share(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Machines that come and go all the time are looked at for SHARE of the time."""
    looks = list[object]()

    def look(kept: object, _by_stamp: bool) -> dict[object, object]:
        looks.append(kept)
        time.sleep(0.01)
        return {}

    monkeypatch.setattr(bench.source, "_looked", look)

    async def test() -> None:
        for _ in range(100):
            bench.source._told.set()
            await asyncio.sleep(0.01)

    bench.run(test)
    assert len(looks) <= 12
