# SPDX-License-Identifier: Apache-2.0
"""The cgroup actuator against a libcgroup that is a dict; with the library: host/system/test_cgroup.py."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from gangd import systemd
from gangd.actuate import libcgroup
from gangd.actuate.base import Wanted
from gangd.actuate.cgroup import Cgroup
from gangd.actuate.limits import Limits
from gangd.errors import GangError, NotRunning
from gangd.model.domain import Mode
from gangd.model.plan import GangPlan, Placement, Plan

UUID = "11111111-2222-3333-4444-555555555555"
KEY = f"{UUID}/700"
GROUP = "machine/qemu-1-vm.libvirt-qemu"
V1 = {"cpu": GROUP, "cpuacct": GROUP, "cpuset": GROUP}


class FakeLibrary:
    """Values by controller, group and name."""

    def __init__(self, cpu: int | None = 1, cpuset: int | None = 1) -> None:
        self.versions = {"cpu": cpu, "cpuset": cpuset}
        self.known: dict[tuple[str, str, str], str] = {}

    def version(self, controller: str) -> int | None:
        return self.versions.get(controller)

    def get(self, controller: str, group: str, name: str) -> str:
        try:
            return self.known[controller, group, name]
        except KeyError:
            raise GangError("No such file or directory", f"failed to read {name} of cgroup {group}")

    def set(self, controller: str, group: str, name: str, value: str) -> None:
        self.known[controller, group, name] = value


def actuator(library: FakeLibrary, groups: Mapping[str, str] | None, limits: Limits | None = None) -> Cgroup:
    return Cgroup(lambda _pid, _uuid: groups, limits, lambda: library)


def plan(asked: int | None = 250) -> Plan:
    places = (Placement(0, 70, 4, ""), Placement(1, 71, 5, ""))
    return Plan(gangs=(GangPlan(UUID, "vm", 700, Mode.RELAXED, 0, places, "", asked=asked),))


@pytest.mark.parametrize(("cpu", "weight", "value"), [(1, "cpu.shares", "2560"), (2, "cpu.weight", "250")])
def test_settings_of_a_plan(cpu: int, weight: str, value: str) -> None:
    """The weight is what the cpu controller here calls it; CPUs are wanted at least."""
    cgroup = actuator(FakeLibrary(cpu), V1, Limits(True, True))
    assert cgroup.wanted(plan()) == {f"{KEY}/cpuset.cpus": Wanted("4-5"), f"{KEY}/{weight}": Wanted(value)}
    assert actuator(FakeLibrary(), V1).wanted(plan()) == {}
    assert cgroup.widened(f"{KEY}/cpuset.cpus", "0", "4-5") == "0,4-5"
    assert cgroup.widened(f"{KEY}/{weight}", "1", value) == value


@pytest.mark.parametrize(
    ("cpu", "groups"),
    [(1, V1), (1, {"cpu": GROUP, "": "other"}), (2, {"": GROUP}), (2, {"": GROUP, "cpuset": "other"})],
)
def test_the_group_is_the_controllers(cpu: int, groups: Mapping[str, str]) -> None:
    """The group is the CPU controller's, with v1, v2, and some of each."""
    library = FakeLibrary(cpu)
    name = "cpu.shares" if cpu == 1 else "cpu.weight"
    cgroup = actuator(library, groups)
    cgroup.write(f"{KEY}/{name}", "77")
    assert library.known == {("cpu", GROUP, name): "77"}
    assert cgroup.read(f"{KEY}/{name}") == "77"


def test_a_guest_that_is_gone() -> None:
    cgroup = actuator(FakeLibrary(), None)
    assert cgroup.read(f"{KEY}/cpu.shares") is None
    with pytest.raises(NotRunning):
        cgroup.write(f"{KEY}/cpu.shares", "1")


def test_a_guest_that_ends_while_it_is_read() -> None:
    """libcgroup fails, and the process is not there any more."""
    answers = iter([V1, None])
    cgroup = Cgroup(lambda _pid, _uuid: next(answers), None, FakeLibrary)
    assert cgroup.read(f"{KEY}/cpu.shares") is None


def test_read_reports_a_file_that_is_missing() -> None:
    with pytest.raises(GangError, match="No such file"):
        actuator(FakeLibrary(), V1).read(f"{KEY}/cpu.shares")


def test_a_guest_without_a_group() -> None:
    """cgroup_controllers = [] in qemu.conf."""
    with pytest.raises(GangError) as caught:
        actuator(FakeLibrary(), {}).read(f"{KEY}/cpuset.cpus")
    assert caught.value.lines() == [
        f"failed to read cpuset.cpus of the cgroup of {UUID}",
        "libvirt created no cpuset cgroup for it",
    ]


def test_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    assert actuator(FakeLibrary(), V1).probe() is None
    assert actuator(FakeLibrary(None), V1).probe() == "the host has no cpu cgroup controller"
    monkeypatch.setattr(libcgroup, "SONAMES", ("libcgroup.so.none",))
    absent = Cgroup(lambda _pid, _uuid: V1, Limits(weight=True))
    assert absent.probe() == libcgroup.MISSING
    assert list(absent.wanted(plan())) == [f"{KEY}/cpu.weight"], "so that the probe is asked"


def test_words() -> None:
    cgroup = actuator(FakeLibrary(), V1)
    assert cgroup.describe(f"{KEY}/cpu.shares") == f"cpu.shares of the cgroup of {UUID}"
    assert cgroup.changed(f"{KEY}/cpu.shares", "9").endswith("was changed by hand to 9")
    assert cgroup.show("") == "not set"


def test_systemd_is_known_by_its_directory(tmp_path: Path) -> None:
    """sd_booted(3)."""
    assert not systemd.booted(tmp_path)
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    assert systemd.booted(tmp_path)
