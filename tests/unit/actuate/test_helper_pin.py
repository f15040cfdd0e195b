# SPDX-License-Identifier: Apache-2.0
"""The pins of emulator and I/O threads, against a libvirt that is made of lists and the test driver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

libvirt = pytest.importorskip("libvirt")

from gangd.actuate.base import Describes, Wanted  # noqa: E402
from gangd.actuate.helper_pin import HelperPin  # noqa: E402
from gangd.errors import GangError, InvalidArgument, NotRunning  # noqa: E402
from gangd.model.domain import Mode  # noqa: E402
from gangd.model.plan import GangPlan, HelperPlace, Plan  # noqa: E402

from .kernel import Kernel  # noqa: E402

UUID = "11111111-2222-3333-4444-555555555555"
EMULATOR, IOTHREAD = f"{UUID}/emulator", f"{UUID}/iothread/7"


def flags(*cpus: int) -> tuple[bool, ...]:
    return tuple(cpu in cpus for cpu in range(4))


class FakeDomain:
    """An emulator and one I/O thread, number 7, on a host of four CPUs."""

    def __init__(self) -> None:
        self.active = True
        self.emulator, self.iothreads = flags(0, 1, 2, 3), [(7, flags(0, 1, 2, 3))]

    def name(self) -> str:
        return "vm"

    def UUIDString(self) -> str:  # noqa: N802
        return UUID

    def isActive(self) -> bool:  # noqa: N802
        return self.active

    def emulatorPinInfo(self, _flags: int) -> tuple[bool, ...]:  # noqa: N802
        return self.emulator

    def ioThreadInfo(self, _flags: int) -> list[Any]:  # noqa: N802
        return self.iothreads

    def pinEmulator(self, cpus: tuple[bool, ...], affect: int) -> None:  # noqa: N802
        assert affect == libvirt.VIR_DOMAIN_AFFECT_LIVE
        self.emulator = cpus

    def pinIOThread(self, number: int, cpus: tuple[bool, ...], _affect: int) -> None:  # noqa: N802
        self.iothreads = [(number, cpus)]


class FakeConnection:
    def __init__(self) -> None:
        self.domain, self.online = FakeDomain(), [True] * 4

    def getCPUMap(self) -> Any:  # noqa: N802
        return (4, self.online, sum(self.online))

    def lookupByUUIDString(self, uuid: str) -> FakeDomain:  # noqa: N802
        if uuid != UUID:
            libvirt.virResetLastError()
            raise libvirt.libvirtError("Domain not found")
        return self.domain


@pytest.fixture
def conn() -> FakeConnection:
    return FakeConnection()


@pytest.fixture
def pin(conn: FakeConnection) -> HelperPin:
    return HelperPin(lambda: conn)


def test_reads_and_writes_both_kinds(pin: HelperPin, conn: FakeConnection) -> None:
    """The live pins, as CPU lists."""
    assert (pin.read(EMULATOR), pin.read(IOTHREAD)) == ("0-3", "0-3")
    pin.write(EMULATOR, "2-3")
    pin.write(IOTHREAD, "1,3")
    assert (pin.read(EMULATOR), pin.read(IOTHREAD)) == ("2-3", "1,3")
    assert pin.probe() is None


def test_who_is_gone_reads_as_none(pin: HelperPin, conn: FakeConnection) -> None:
    """An I/O thread that was taken away, a domain that stopped."""
    conn.domain.iothreads = []
    assert pin.read(IOTHREAD) is None
    conn.domain.active = False
    assert pin.read(EMULATOR) is None
    with pytest.raises(NotRunning):
        pin.write(EMULATOR, "1")


def test_bad_values_and_keys_are_refused(pin: HelperPin) -> None:
    """With the object in the sentence."""
    with pytest.raises(InvalidArgument, match="'x' is not a list of CPUs"):
        pin.write(EMULATOR, "x")
    for key in (UUID, f"{UUID}/vcpu/1", f"{UUID}/iothread/", f"{UUID}/emulator/1"):
        with pytest.raises(InvalidArgument):
            pin.read(key)


def test_what_libvirt_refuses_is_told(pin: HelperPin, conn: FakeConnection) -> None:
    """In its words."""

    def refuse(*_args: object) -> None:
        libvirt.virResetLastError()  # a real one of this thread would be told instead
        raise libvirt.libvirtError("no cpuset controller")

    conn.domain.pinEmulator = refuse  # type: ignore[method-assign]
    with pytest.raises(GangError, match="no cpuset controller"):
        pin.write(EMULATOR, "1")


def test_threads_that_were_never_pinned_inherit_again(
    conn: FakeConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with vCPUs: the group's empty cpuset is a value of its own."""
    group = tmp_path / "emulator"
    group.mkdir()
    file = group / "cpuset.cpus"
    file.write_text("\n")
    (group / "cgroup.threads").write_text("77\n")
    (tmp_path / "cgroup.threads").write_text("")
    Kernel().boot(monkeypatch)
    pin = HelperPin(lambda: conn, lambda _name, _uuid, threads: file if threads == "emulator" else None)
    assert (pin.read(EMULATOR), pin.read(IOTHREAD)) == ("all (inherited)", "0-3")
    file.write_text("2-3\n")
    pin.write(EMULATOR, "all (inherited)")
    assert file.read_text() == "\n"
    (tmp_path / "cpuset.cpus.effective").write_text("2-3\n")
    with pytest.raises(GangError, match="may use only CPUs 2-3 of those online"):
        pin.write(EMULATOR, "0-1")


def test_cpus_that_come_back_are_the_threads_own_again(
    conn: FakeConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pinned first while SMT is off, undone when it is on, or before: nobody is confined for ever."""
    file = tmp_path / "emulator/cpuset.cpus"
    file.parent.mkdir()
    file.write_text("\n")
    (file.parent / "cgroup.threads").write_text("77\n")
    (tmp_path / "cgroup.threads").write_text("")
    (tmp_path / "cpuset.cpus.effective").write_text("0-1\n")
    Kernel().boot(monkeypatch)
    pin = HelperPin(lambda: conn, lambda *_: file)
    conn.online, conn.domain.emulator = [True, True, False, False], flags(0, 1)
    prior = pin.read(EMULATOR)
    assert prior == "all (inherited)"
    conn.domain.emulator = flags(0)
    assert pin.read(EMULATOR) == "0 (inherited)"
    pin.write(EMULATOR, prior)
    assert conn.domain.emulator == flags(0, 1, 2, 3)
    assert pin.read(EMULATOR) == prior


def test_settings_of_a_plan(pin: HelperPin) -> None:
    """One for each helper; in words they name the guest."""
    places = (HelperPlace("emulator", frozenset({2, 3}), "why"),)
    plan = Plan(gangs=(GangPlan(UUID, "vm", 1, Mode.RELAXED, 0, (), "", helpers=places),))
    assert pin.wanted(plan) == {EMULATOR: Wanted("2-3", "why")}
    assert isinstance(pin, Describes)
    assert pin.describe(EMULATOR) == "the pin of the emulator threads of 'vm'"
    assert pin.changed(IOTHREAD, "1") == "I/O thread 7 of 'vm' was pinned by hand to 1"
    assert pin.changed(EMULATOR, "1") == "the emulator threads of 'vm' were pinned by hand to 1"
    assert pin.show("2-3") == "CPU 2-3"
