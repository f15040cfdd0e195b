# SPDX-License-Identifier: Apache-2.0
"""The pin actuator against a libvirt that is made of lists."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

libvirt = pytest.importorskip("libvirt")

from gangd.actuate.base import Describes, Wanted  # noqa: E402
from gangd.actuate.libvirt_pin import LibvirtPin  # noqa: E402
from gangd.errors import GangError, InvalidArgument, NoLibvirt, NotRunning  # noqa: E402
from gangd.model.domain import Mode  # noqa: E402
from gangd.model.plan import GangPlan, Placement, Plan  # noqa: E402

from .kernel import Kernel  # noqa: E402

UUID = "11111111-2222-3333-4444-555555555555"
KEY = f"{UUID}/vcpu/1"


def flags(*cpus: int) -> tuple[bool, ...]:
    return tuple(cpu in cpus for cpu in range(4))


class FakeDomain:
    """Two vCPUs, 0 and 1, on a host of four CPUs."""

    def __init__(self) -> None:
        self.online = [0, 1]
        self.pins = [flags(0, 1, 2, 3), flags(0, 1, 2, 3)]
        self.real = list(self.pins)
        self.active = True
        self.calls: list[Any] = []

    def name(self) -> str:
        return "vm"

    def isActive(self) -> bool:  # noqa: N802
        return self.active

    def vcpus(self) -> Any:
        return [(index, 1, 0, 0) for index in self.online], self.real

    def vcpuPinInfo(self, affect: int) -> Any:  # noqa: N802
        assert affect == libvirt.VIR_DOMAIN_AFFECT_LIVE
        return self.pins

    def pinVcpuFlags(self, *call: Any) -> None:  # noqa: N802
        self.calls.append(call)


class FakeConnection:
    def __init__(self, driver: str = "QEMU") -> None:
        self.driver, self.domain = driver, FakeDomain()
        self.online = [True] * 4

    def getType(self) -> str:  # noqa: N802
        return self.driver

    def getCPUMap(self) -> Any:  # noqa: N802
        return (4, self.online, sum(self.online))

    def lookupByUUIDString(self, _uuid: str) -> FakeDomain:  # noqa: N802
        return self.domain


@pytest.fixture
def conn() -> FakeConnection:
    return FakeConnection()


@pytest.fixture
def pin(conn: FakeConnection) -> LibvirtPin:
    return LibvirtPin(lambda: conn)


def test_reads_libvirts_pin(pin: LibvirtPin, conn: FakeConnection) -> None:
    assert pin.read(KEY) == "0-3"
    conn.domain.pins[1] = conn.domain.real[1] = flags(2)
    assert pin.read(KEY) == "2"


def test_a_pass_asks_once_for_all_vcpus_of_a_guest_and_after_each_write(
    pin: LibvirtPin, conn: FakeConnection
) -> None:
    pin.begin({})
    assert pin.read(KEY) == "0-3"
    conn.domain.pins[1] = conn.domain.real[1] = flags(2)
    assert pin.read(KEY) == "0-3"
    pin.write(KEY, "2")
    assert pin.read(KEY) == "2"
    conn.domain.pins[1] = conn.domain.real[1] = flags(1)
    pin.end()
    assert pin.read(KEY) == "1"


def test_a_narrower_cpuset_reads_as_the_pin(pin: LibvirtPin, conn: FakeConnection) -> None:
    conn.domain.real[1] = flags(0, 1)
    assert pin.read(KEY) == "0-3"


def test_a_thread_moved_out_of_its_pin_reads_where_it_is(pin: LibvirtPin, conn: FakeConnection) -> None:
    conn.domain.pins[1], conn.domain.real[1] = flags(2), flags(3)
    assert pin.read(KEY) == "3"


def test_a_pin_to_an_offline_cpu_reads_as_the_pin(pin: LibvirtPin, conn: FakeConnection) -> None:
    """The kernel moves the thread, and moves it back; taken for a change, the pin would never be undone."""
    conn.domain.pins[1], conn.domain.real[1] = flags(2), flags(3)
    conn.online = [True, True, False, True]
    assert pin.read(KEY) == "2"


def test_a_hole_in_the_vcpus(pin: LibvirtPin, conn: FakeConnection) -> None:
    conn.domain.online = [0, 3]
    conn.domain.real = [flags(0), flags(3)]
    assert pin.read(KEY) is None
    assert pin.read(f"{UUID}/vcpu/3") == "3"


def test_writes_live_only(pin: LibvirtPin, conn: FakeConnection) -> None:
    pin.write(KEY, "1,3")
    assert conn.domain.calls == [(1, flags(1, 3), libvirt.VIR_DOMAIN_AFFECT_LIVE)]


def test_a_stopped_domain_is_not_pinned(pin: LibvirtPin, conn: FakeConnection) -> None:
    conn.domain.active = False
    with pytest.raises(NotRunning) as caught:
        pin.write(KEY, "1")
    assert caught.value.lines() == ["failed to pin vCPU 1 of 'vm' to 1", "domain is not running"]


@pytest.mark.parametrize("value", ["x", "half 1", "1-"])
def test_what_is_no_cpulist_is_refused(pin: LibvirtPin, conn: FakeConnection, value: str) -> None:
    with pytest.raises(InvalidArgument):
        pin.write(KEY, value)
    assert not conn.domain.calls


def test_a_key_that_names_no_vcpu(pin: LibvirtPin) -> None:
    with pytest.raises(InvalidArgument):
        pin.read(UUID)


def test_wanted_is_every_placement(pin: LibvirtPin) -> None:
    gang = GangPlan(UUID, "vm", 1, Mode.RELAXED, 0, (Placement(1, 7, 3, "idle core"),), "marked")
    free = LibvirtPin(FakeConnection, roams=lambda gang: gang.needs_scheduler)
    assert free.wanted(Plan(gangs=(gang,))) == {}  # its scheduler chooses
    wanted = pin.wanted(Plan(gangs=(gang,)))
    assert wanted == {KEY: Wanted("3")}
    assert wanted[KEY].reason == "idle core"


def test_probe() -> None:
    assert LibvirtPin(FakeConnection).probe() is None
    assert "TEST driver cannot pin" in (LibvirtPin(lambda: FakeConnection("TEST")).probe() or "")

    def absent() -> Any:
        raise NoLibvirt("not there")

    assert LibvirtPin(absent).probe() == "not there"


def test_words(pin: LibvirtPin) -> None:
    assert isinstance(pin, Describes)
    assert pin.changed(KEY, "3") == "vCPU 1 of 'vm' was pinned by hand to 3"
    assert pin.describe(KEY) == "the pin of vCPU 1 of 'vm'"


def test_against_the_test_driver() -> None:
    conn = libvirt.open("test:///default")
    real = LibvirtPin(lambda: conn)
    key = f"{conn.lookupByName('test').UUIDString()}/vcpu/0"
    assert real.read(KEY) is None
    with pytest.raises(GangError) as caught:
        real.write(key, "1")  # this driver cannot pin a running domain
    assert caught.value.lines()[0] == "failed to pin vCPU 0 of 'test' to 1"
    conn.close()


def test_a_vcpu_that_was_never_pinned_inherits_again_after_the_undo(
    conn: FakeConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """libvirt cannot empty a vCPU's cpuset; "all (inherited)" stands for that state both ways."""
    group = tmp_path / "vcpu1"
    group.mkdir()
    file = group / "cpuset.cpus"
    file.write_text("\n")
    (group / "cgroup.threads").write_text("77\n")
    (tmp_path / "cgroup.threads").write_text("")
    Kernel().boot(monkeypatch)
    pin = LibvirtPin(
        lambda: conn, lambda name, uuid, group: file if (name, group) == ("vm", "vcpu1") else None
    )
    assert pin.read(KEY) == "all (inherited)"
    assert pin.read(f"{UUID}/vcpu/0") == "0-3"
    file.write_text("1\n")
    assert pin.read(KEY) == "0-3"
    pin.write(KEY, "all (inherited)")
    assert conn.domain.calls == [(1, flags(0, 1, 2, 3), libvirt.VIR_DOMAIN_AFFECT_LIVE)]
    assert file.read_text() == "\n"
    assert (group / "cgroup.threads").read_text() == "77"
    file.write_text("1\n")
    pin.write(KEY, "0-3")
    assert file.read_text() == "1\n"


def test_a_pin_that_the_guests_cgroup_forbids_is_not_begun(conn: FakeConnection, tmp_path: Path) -> None:
    """libvirt would leave it half done; one that is allowed in part is the kernel's to narrow."""
    (tmp_path / "vcpu1").mkdir()
    file = tmp_path / "vcpu1/cpuset.cpus"
    file.write_text("0-1\n")
    (tmp_path / "cpuset.cpus.effective").write_text("0-1\n")
    pin = LibvirtPin(lambda: conn, lambda *_: file)
    with pytest.raises(GangError) as caught:
        pin.write(KEY, "2")
    assert caught.value.lines() == [
        "failed to pin vCPU 1 of 'vm' to 2",
        "the cgroup of its guest may use only CPUs 0-1 of those online (AllowedCPUs=)",
    ]
    assert not conn.domain.calls
    pin.write(KEY, "1-2")
    assert len(conn.domain.calls) == 1
