# SPDX-License-Identifier: Apache-2.0
"""The scope actuator over a real bus: what it says to systemd, and what it makes of the answers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gangd.actuate.executor import Executor
from gangd.actuate.journal import Journal
from gangd.actuate.limits import Limits
from gangd.actuate.scope import Scope
from gangd.errors import GangError
from gangd.model.domain import Mode
from gangd.model.plan import GangPlan, Placement, Plan
from gangd.systemd import Systemd
from host.system.dbus_fixtures import ENV, ended, private_bus
from host.system.fake_systemd import UNIT

UUID = "11111111-2222-3333-4444-555555555555"
CPUS, WEIGHT = f"{UUID}/700/AllowedCPUs", f"{UUID}/700/CPUWeight"
OPEN_POLICY = (
    '<busconfig><policy context="default"><allow own="*"/><allow send_destination="*"/></policy></busconfig>'
)


@pytest.fixture
def bus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    policy = tmp_path / "open.conf"
    policy.write_text(OPEN_POLICY)
    with private_bus(tmp_path, policy) as (address, _):
        monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", address)
        yield address


@contextmanager
def fake_systemd(address: str) -> Iterator[subprocess.Popen[str]]:
    """Start a fake systemd as a process; read its stdout for what it was told."""
    script = Path(__file__).with_name("fake_systemd.py")
    started = subprocess.Popen(
        [sys.executable, str(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**ENV, "DBUS_SYSTEM_BUS_ADDRESS": address},
    )
    with ended(started) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        yield process


def scope(systemd: Systemd, unit: str = UNIT) -> Scope:
    return Scope(systemd, lambda _pid, _uuid: {"": f"machine.slice/{unit}"}, Limits(True, True))


def test_properties_are_set_verified_and_undone(bus: str, tmp_path: Path) -> None:
    """AllowedCPUs= holds what it had and what is planned; CPUWeight= goes back to not being set."""
    places = tuple(Placement(vcpu, None, cpu, "test") for vcpu, cpu in enumerate((9, 2)))
    gang = GangPlan(UUID, "vm", 700, Mode.BALANCE, 0, places, "test", asked=300)
    with fake_systemd(bus) as process:
        root = tmp_path / "root"
        (root / "sys/fs/cgroup").mkdir(parents=True)
        (root / "sys/fs/cgroup/cgroup.controllers").write_text("cpu cpuset\n")
        actuator = Scope(Systemd(), lambda _pid, _uuid: {"": UNIT}, Limits(True, True), root)
        executor = Executor([actuator], Journal(tmp_path / "journal"))
        assert (actuator.read(CPUS), actuator.read(WEIGHT)) == ("1-2", "")
        report = executor.reconcile(Plan(gangs=(gang,)))
        assert (report.writes, report.failures, report.missing) == (2, (), ())
        assert (actuator.read(CPUS), actuator.read(WEIGHT)) == ("1-2,9", "300")
        assert executor.undo().undone == 2
        assert (actuator.read(CPUS), actuator.read(WEIGHT)) == ("1-2", "")
        assert process.stdout is not None
        told = [process.stdout.readline() for _ in range(4)]
    assert told == [
        "AllowedCPUs b'\\x06\\x02'\n",
        "CPUWeight 300\n",
        f"CPUWeight {2**64 - 1}\n",
        "AllowedCPUs b'\\x06'\n",
    ]


def test_a_scope_that_ended_is_gone(bus: str) -> None:
    """Reading says so, writing fails."""
    with fake_systemd(bus) as process:
        assert process.stdin is not None and process.stdout is not None
        actuator = scope(Systemd())
        process.stdin.write("end\n")
        process.stdin.flush()
        assert process.stdout.readline() == "done\n"
        assert actuator.read(CPUS) is None
        with pytest.raises(GangError, match="not loaded") as caught:
            actuator.write(CPUS, "1")
        assert caught.value.action == f"failed to set AllowedCPUs= of {UNIT}"
        assert scope(Systemd(), "machine-other.scope").read(WEIGHT) is None


def test_write_reports_the_error_of_systemd(bus: str) -> None:
    """The error has systemd's own words."""
    with fake_systemd(bus), pytest.raises(GangError, match="systemd: Value out of range"):
        scope(Systemd()).write(WEIGHT, "10001")


def test_a_systemd_that_comes_back_is_found(bus: str) -> None:
    """Systemd's absence is one sentence, and nothing that has to be restarted."""
    actuator = scope(Systemd())
    with pytest.raises(GangError, match="systemd: "):
        actuator.read(CPUS)
    with fake_systemd(bus):
        assert actuator.read(CPUS) == "1-2"
    with pytest.raises(GangError, match="systemd: "):
        actuator.read(CPUS)
    with fake_systemd(bus):
        assert actuator.read(CPUS) == "1-2"


def test_without_a_bus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bus that is absent is one sentence, too."""
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", f"unix:path={tmp_path}/none")
    with pytest.raises(GangError) as caught:
        scope(Systemd()).read(CPUS)
    assert caught.value.lines()[0] == f"failed to read AllowedCPUs= of {UNIT}"
