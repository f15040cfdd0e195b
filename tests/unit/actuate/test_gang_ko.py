# SPDX-License-Identifier: Apache-2.0
"""The module's backend against a device that only remembers what it was told."""

from __future__ import annotations

import fcntl
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gangd.actuate.backend import LoadFailed
from gangd.actuate.executor import Executor
from gangd.actuate.gang import Gangs
from gangd.actuate.gang_ko import HARMED, Module, backend
from gangd.actuate.gang_setting import CacheSetting, GangSetting, Member
from gangd.actuate.journal import Journal
from gangd.bpf import abi
from gangd.bpf.record import Record
from gangd.errors import GangError, NotSupported
from gangd.model.domain import Mode
from unit.actuate.test_gang import A, B, gang, plan

SETTING = GangSetting(2, (Member(0, 100, 4), Member(1, 101, 6)), Mode.RELAXED, 99, 300)
RECORDS: dict[int, type[Record]] = {
    abi.IOC_VERSION: abi.GangIocVersion,
    abi.IOC_SET_DOMAIN: abi.GangIocDomain,
    abi.IOC_SET_GANG: abi.GangIocGang,
    abi.IOC_STATS: abi.GangIocStats,
    abi.IOC_COUNTERS: abi.GangIocCounters,
}


class FakeDevice:
    """/dev/gang. slots: what each gang's counters are, by number; refuse: errno for orders; drops: a gang
    that is set up is gone first; offline: CPUs of which it makes no domain; domains: CPUs, by index; gangs:
    the domain of each, by number."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.version = abi.ABI_VERSION
        self.slots: dict[int, int] = {}
        self.refuse = 0
        self.drops = False
        self.offline: set[int] = set()
        self.domains: dict[int, list[int]] = {}
        self.gangs: dict[int, int] = {}

    def ioctl(self, _fd: int, request: int, buffer: bytearray, _mutate: bool) -> int:
        args: Any = RECORDS[request].unpack(bytes(buffer))
        if request == abi.IOC_VERSION:
            args.version = self.version
        elif request == abi.IOC_STATS:
            if args.gang not in self.slots:
                raise FileNotFoundError(2, "No such file or directory")
            args.stats.turns = self.slots[args.gang]
            args.stats.skew_max_ns = 5
        elif request == abi.IOC_COUNTERS:
            args.kicks = 7
        elif self.refuse:
            if self.drops:
                self.slots.pop(args.gang)
            raise OSError(self.refuse, "Device or resource busy")
        elif request == abi.IOC_SET_DOMAIN and self.offline & set(args.cpus.cpu[: args.cpus.columns]):
            raise OSError(22, "Invalid argument")
        else:
            self.calls.append(args)
            self.obey(args)
        buffer[:] = args.pack()
        return 0

    def obey(self, args: Any) -> None:
        """Do as control.c does: a domain whose CPUs change is made anew, and loses its gangs."""
        if isinstance(args, abi.GangIocGang):
            self.gangs[args.gang] = args.domain
            if args.mode == abi.GangMode.OFF:
                del self.gangs[args.gang]
            return
        cpus = args.cpus.cpu[: args.cpus.columns]
        if self.domains.get(args.domain, cpus) != cpus:
            for number in [number for number, home in self.gangs.items() if home == args.domain]:
                del self.gangs[number]
                self.slots.pop(number, None)
        self.domains[args.domain] = cpus


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeDevice:
    """A device at tmp_path/dev/gang."""
    found = FakeDevice()
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/gang").touch()
    monkeypatch.setattr(fcntl, "ioctl", found.ioctl)
    return found


def test_orders_are_structs_of_the_header(device: FakeDevice, tmp_path: Path) -> None:
    """A domain is its CPUs by column; a gang is threads on columns, guarded by their process."""
    module = Module(tmp_path)
    module.set_cache(2, CacheSetting((4, 6), 20_000, (4, 4)))
    module.set_gang(5, SETTING, {4: 0, 6: 1})
    module.close()
    domain, gang = device.calls
    assert (domain.version, domain.domain) == (abi.ABI_VERSION, 2)
    assert (domain.cpus.columns, domain.cpus.slot_us, list(domain.cpus.cpu[:2])) == (2, 20_000, [4, 6])
    assert (gang.gang, gang.domain, gang.weight, gang.tgid, gang.seats) == (5, 2, 300, 99, 2)
    assert gang.mode == abi.GangMode.RELAXED
    assert [(seat.tid, seat.column) for seat in gang.seat[:2]] == [(100, 0), (101, 1)]


def test_a_gang_set_up_anew_keeps_its_counters(device: FakeDevice, tmp_path: Path) -> None:
    """The module counts from zero for every set-up; what the daemon sees only grows."""
    module = Module(tmp_path)
    assert module.gang_stats(5).turns == 0
    device.slots[5] = 10
    module.drop_gang(5, SETTING)
    assert device.calls[-1].mode == abi.GangMode.OFF
    device.slots[5] = 3
    assert module.gang_stats(5).turns == 13
    assert module.gang_stats(5).skew_max_ns == 5
    del device.slots[5]
    assert module.gang_stats(5).turns == 10


def test_counters_of_a_gang_whose_change_was_refused(device: FakeDevice, tmp_path: Path) -> None:
    """Counts are there, whether the module has the gang still or dropped it before it refused."""
    module = Module(tmp_path)
    device.slots[5] = 10
    module.set_gang(5, SETTING, {4: 0, 6: 1})
    device.slots[5] = 4
    assert module.gang_stats(5).turns == 14
    device.refuse = 16
    for device.drops in (False, True):
        with pytest.raises(GangError):
            module.set_gang(5, SETTING, {4: 0, 6: 1})
        assert (module.gang_stats(5).turns, 5 in device.slots) == (14, not device.drops)


def test_a_member_outside_of_its_domain_is_refused_alone(device: FakeDevice, tmp_path: Path) -> None:
    """A CPU goes offline, and the module refuses the domain that is wanted then: one guest sits where the
    old domain has no column. It is refused, the other stays a gang, and the next pass tries again."""
    executor = Executor([Gangs(20_000, [backend(tmp_path)])], Journal(tmp_path / "journal"))
    executor.reconcile(plan(gang(A, 4), gang(B, 6)))
    device.offline = {7}
    wanted = plan(gang(A, 4), gang(B, 8), cpus=(4, 7, 8))
    report = executor.reconcile(wanted)
    assert report.failures == (
        "failed to set up cache 0: gang.ko refused the request: Invalid argument",
        "cannot set up the gang of 'b': CPU 8 of vCPU 0 is not in cache 0 as it is set up",
    )
    assert [refused.uuid for refused in report.refused] == [B]
    device.offline = set()
    assert executor.reconcile(wanted).failures == ()
    assert [(seat.tid, seat.column) for seat in device.calls[-1].seat[:1]] == [(100, 2)]


def test_a_gang_stays_when_the_cpus_of_its_domain_change(device: FakeDevice, tmp_path: Path) -> None:
    """The module makes the domain anew without its gangs, so gangd sets them up again; what they counted
    stays. A gang that the module does not take again is none, and the next look at everything finds that."""
    actuator = Gangs(20_000, [backend(tmp_path)])
    executor = Executor([actuator], Journal(tmp_path / "journal"))
    executor.reconcile(plan(gang(A, 4), gang(B, 6)))
    device.slots = {1: 10, 2: 20}
    report = executor.reconcile(plan(gang(A, 4), gang(B, 6), cpus=(4, 6, 7)), stale=frozenset())
    assert (report.writes, report.failures, device.gangs) == (1, (), {1: 0, 2: 0})
    found = {uuid: actuator.stats(uuid) for uuid in (A, B)}
    assert {uuid: stats and stats.turns for uuid, stats in found.items()} == {A: 10, B: 20}
    executor.reconcile(plan(gang(A, 4), gang(B, 6), cpus=(4, 7)), stale=frozenset())
    assert (actuator.mode(A), actuator.mode(B), device.gangs) == (Mode.RELAXED, None, {1: 0})
    executor.reconcile(plan(gang(A, 4), gang(B, 6)))
    assert (actuator.mode(B), device.gangs) == (Mode.RELAXED, {1: 0, 2: 0})


LIMITS = [
    ("0::/machine/vm", "machine/vm/cpu.max", "50000 100000", "/machine/vm has cpu.max 50000 100000"),
    ("0::/machine/vm", "machine/cpu.max", "1000 100000", "/machine has cpu.max 1000 100000"),
    ("0::/machine/vm", "unified/machine/vm/cpu.max", "9 10", "/machine/vm has cpu.max 9 10"),
    ("0::/machine/vm", "machine/vm/cpu.max", "max 100000", None),
    ("0::/", "cpu.max", "1 2", None),
    ("4:cpu,cpuacct:/vm/vcpu0", "cpu,cpuacct/vm/cpu.cfs_quota_us", "25000", "/vm has cpu.cfs_quota_us 25000"),
    ("4:cpu,cpuacct:/vm/vcpu0", "cpu/vm/vcpu0/cpu.cfs_quota_us", "-1", None),
    ("3:cpuset:/vm", "vm/cpu.max", "1 2", None),
]


@pytest.mark.parametrize(("cgroup", "file", "text", "found"), LIMITS)
def test_a_guest_with_a_limit_is_refused(
    device: FakeDevice, tmp_path: Path, cgroup: str, file: str, text: str, found: str | None
) -> None:
    """Bandwidth control does not see real-time tasks, so that a boost would break any limit above a vCPU."""
    for tid in (100, 101):
        task = tmp_path / f"proc/99/task/{tid}"
        task.mkdir(parents=True)
        (task / "cgroup").write_text("5:memory:/else\n" + (cgroup if tid == 101 else "0::/") + "\n")
    limit = tmp_path / "sys/fs/cgroup" / file
    limit.parent.mkdir(parents=True, exist_ok=True)
    limit.write_text(text + "\n")
    module = Module(tmp_path)
    assert module.limit(SETTING) == found
    if found:
        with pytest.raises(NotSupported, match="does not keep cpu"):
            module.set_gang(5, SETTING, {4: 0, 6: 1})
        assert device.calls == []


@pytest.mark.parametrize("option", HARMED)
def test_kernels_that_a_boost_would_harm(tmp_path: Path, option: str) -> None:
    """gang.ko refuses to be loaded there, and gangd says so before it tries."""
    for path, text in (
        ("proc/sys/kernel/osrelease", "6.1\n"),
        ("boot/config-6.1", f"CONFIG_X=y\n{option}=y\n"),
    ):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(text)
    assert option in str(backend(tmp_path).probe())


def test_no_strict() -> None:
    """A strict gang is refused before anything is loaded for it."""
    refuses = backend().refuses
    assert "keeps no CPU idle" in str(refuses(Mode.STRICT)) and refuses(Mode.RELAXED) is None


def test_a_refused_order_is_a_sentence(device: FakeDevice, tmp_path: Path) -> None:
    """The error names the refused order and the kernel's reason."""
    module = Module(tmp_path)
    device.refuse = 16
    with pytest.raises(GangError) as caught:
        module.set_cache(2, CacheSetting((4,), 20_000))
    assert caught.value.lines() == [
        "failed to set up cache 2",
        "gang.ko refused the request: Device or resource busy",
    ]
    assert module.counters()["kicks"] == 7
    assert "version" not in module.counters()
    assert module.ejected() is None


def test_another_version_is_refused(device: FakeDevice, tmp_path: Path) -> None:
    """A module of another gangd is not talked to."""
    device.version = abi.ABI_VERSION + 1
    with pytest.raises(LoadFailed, match="speaks version"):
        Module(tmp_path)


def test_a_unit_that_sees_no_modules(tmp_path: Path) -> None:
    """ProtectKernelModules= hides /usr/lib/modules from gangd: stat(2) is refused."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/modules").touch()
    assert backend(tmp_path).probe() == "there is no /dev/gang: gang.ko is not loaded"


@pytest.mark.parametrize(("there", "installed", "usable"), [(1, 0, True), (0, 1, True), (0, 0, False)])
def test_probe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: int, installed: int, usable: bool
) -> None:
    """Usable where the device is, or where modprobe would find the module; nothing is loaded to find out."""
    asked: list[list[str]] = []

    def run(words: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        assert "/usr/sbin" in options["env"]["PATH"].split(":"), "whoever is not root would find no modprobe"
        asked.append(words)
        return subprocess.CompletedProcess(words, 0 if installed else 1)

    monkeypatch.setattr(subprocess, "run", run)
    (tmp_path / "dev").mkdir()
    if there:
        (tmp_path / "dev/gang").touch()
    reason = backend(tmp_path).probe()
    assert (reason is None) == usable
    assert usable or "no gang.ko is installed" in str(reason)
    assert all("-n" in words for words in asked)
