# SPDX-License-Identifier: Apache-2.0
"""The scope actuator against a systemd that is a dict; over a bus: tests/host/system/test_scope.py."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangd.actuate.base import Wanted
from gangd.actuate.executor import Executor
from gangd.actuate.journal import Journal
from gangd.actuate.limits import Limits
from gangd.actuate.scope import CONTROLLERS, Scope
from gangd.errors import GangError, InvalidArgument, NotRunning, TimedOut
from gangd.model.cpulist import format_cpulist
from gangd.model.domain import Mode
from gangd.model.plan import GangPlan, Placement, Plan

UUID = "11111111-2222-3333-4444-555555555555"
UNIT = "machine-qemu\\x2d1\\x2dvm.scope"
CPUS, WEIGHT = f"{UUID}/700/AllowedCPUs", f"{UUID}/700/CPUWeight"
UNSET = 2**64 - 1


class FakeSystemd:
    """Properties by unit and name."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, str], Any] = {(UNIT, "AllowedCPUs"): b"", (UNIT, "CPUWeight"): UNSET}
        self.set_as: list[str] = []

    def scope(self, unit: str, name: str) -> Any:
        return self.known.get((unit, name))

    def set(self, unit: str, name: str, signature: str, value: object) -> None:
        self.known[unit, name] = value
        self.set_as.append(signature)


@pytest.fixture
def systemd() -> FakeSystemd:
    return FakeSystemd()


def actuator(systemd: FakeSystemd, path: str | None = f"machine.slice/{UNIT}", **fields: Any) -> Scope:
    groups = None if path is None else {"": path} if path else {}
    return Scope(systemd, lambda pid, uuid: groups if (pid, uuid) == (700, UUID) else None, **fields)


def test_reads_and_writes(systemd: FakeSystemd) -> None:
    """Both, with the types that systemd takes; "" is not set."""
    scope = actuator(systemd)
    assert (scope.read(CPUS), scope.read(WEIGHT)) == ("", "")
    scope.write(CPUS, "1-2,9")
    scope.write(WEIGHT, "300")
    assert list(systemd.known.values()) == [b"\x06\x02", 300]
    assert (scope.read(CPUS), scope.read(WEIGHT)) == ("1-2,9", "300")
    scope.write(WEIGHT, "idle")
    assert (systemd.known[UNIT, "CPUWeight"], scope.read(WEIGHT)) == (0, "idle")
    scope.write(CPUS, "")
    scope.write(WEIGHT, "")
    assert list(systemd.known.values()) == [b"", UNSET]
    assert systemd.set_as == ["ay", "t", "t", "ay", "t"]


@given(st.sets(st.integers(0, 2047)))
def test_any_cpus_survive_the_bus(cpus: set[int]) -> None:
    scope = actuator(FakeSystemd())
    scope.write(CPUS, format_cpulist(cpus))
    assert scope.read(CPUS) == format_cpulist(cpus)


def test_a_systemd_that_does_not_answer_is_asked_once_a_chunk(systemd: FakeSystemd, tmp_path: Path) -> None:
    """Each of its silences holds the host thread for 10 s, and the watchdog has one minute."""
    asked = []

    def silent(unit: str, name: str) -> Any:
        asked.append(unit)
        raise TimedOut("systemd: no answer", f"failed to read {name}= of {unit}")

    systemd.scope = silent  # type: ignore[method-assign]
    (tmp_path / CONTROLLERS.parent).mkdir(parents=True)
    (tmp_path / CONTROLLERS).write_text("cpu cpuset")
    scope = Scope(systemd, lambda *_: {"": f"machine.slice/{UNIT}"}, Limits(weight=True), tmp_path)
    executor = Executor([scope], Journal(tmp_path / "journal"))
    gang = GangPlan(UUID, "vm", 700, Mode.RELAXED, 0, (Placement(0, 1, 0, "x"),), "r", 300, asked=300)
    report = executor.reconcile(Plan((), (gang, replace(gang, uuid=UUID.replace("1", "2")))))
    assert (len(asked), report.failed) == (1, 2)
    with pytest.raises(TimedOut):  # the next pass asks again
        scope.read(WEIGHT)
    assert len(asked) == 2


def test_a_guest_that_is_gone(systemd: FakeSystemd) -> None:
    """A guest whose process or scope is gone has nothing to read, and writing fails."""
    for gone in (actuator(systemd, None), actuator(systemd, "machine.slice/machine-other.scope")):
        assert gone.read(CPUS) is None
    with pytest.raises(NotRunning) as caught:
        actuator(systemd, None).write(CPUS, "1")
    assert caught.value.lines() == [
        f"failed to set AllowedCPUs= of the scope of {UUID}",
        "the guest is not running",
    ]


@pytest.mark.parametrize(
    ("path", "cause"),
    [
        ("", "libvirt created no cgroup for it"),
        (
            "machine/qemu-1-vm.libvirt-qemu",
            "its cgroup /machine/qemu-1-vm.libvirt-qemu is not a machine scope",
        ),
        ("system.slice/libvirtd.service", "its cgroup /system.slice/libvirtd.service is not a machine scope"),
    ],
)
def test_a_guest_without_a_scope_is_not_touched(systemd: FakeSystemd, path: str, cause: str) -> None:
    """Scope changes no other unit in place of the missing one."""
    scope = actuator(systemd, path)
    for work in (lambda: scope.read(CPUS), lambda: scope.write(CPUS, "1")):
        with pytest.raises(GangError) as caught:
            work()
        assert caught.value.cause == cause
    assert not systemd.set_as


@pytest.mark.parametrize(
    ("key", "value"), [(CPUS, "x"), (WEIGHT, "heavy"), (f"{UUID}/700/Slice", "1"), (UUID, "1")]
)
def test_bad_values_and_keys(systemd: FakeSystemd, key: str, value: str) -> None:
    with pytest.raises(InvalidArgument):
        actuator(systemd).write(key, value)
    assert not systemd.set_as


def test_settings_of_a_plan(systemd: FakeSystemd) -> None:
    """Room for the pins, and the weight of the mark; CPUs are wanted at least, a weight exactly."""
    places = (Placement(0, 70, 4, ""), Placement(1, 71, 5, ""))
    plan = Plan(gangs=(GangPlan(UUID, "vm", 700, Mode.RELAXED, 0, places, "", asked=300),))
    scope = actuator(systemd, limits=Limits(True, True))
    assert scope.wanted(plan) == {CPUS: Wanted("4-5"), WEIGHT: Wanted("300")}
    assert actuator(systemd).wanted(plan) == {}
    assert (scope.widened(CPUS, "0-1", "4-5"), scope.widened(CPUS, "", "4-5")) == ("0-1,4-5", "")
    assert scope.widened(WEIGHT, "100", "300") == "300"


@pytest.mark.parametrize(
    ("controllers", "missing"),
    [
        ("cpuset cpu io memory", None),
        ("cpu memory", "cgroup v2 has no cpuset controller here"),
        ("", "cgroup v2 has no cpu and no cpuset controller here"),
        (None, "gangd sets CPUs and weight of scopes with cgroup v2 only, and this host has v1"),
    ],
)
def test_probe(systemd: FakeSystemd, tmp_path: Path, controllers: str | None, missing: str | None) -> None:
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    if controllers is not None:
        (tmp_path / "sys/fs/cgroup/cgroup.controllers").write_text(controllers)
    assert actuator(systemd, root=tmp_path).probe() == missing


def test_words(systemd: FakeSystemd) -> None:
    scope = actuator(systemd)
    assert scope.describe(CPUS) == f"AllowedCPUs= of the scope of {UUID}"
    assert scope.changed(WEIGHT, "") == f"CPUWeight= of the scope of {UUID} was changed by hand to not set"
    assert scope.show("0-1") == "0-1"
