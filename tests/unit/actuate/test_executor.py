# SPDX-License-Identifier: Apache-2.0
"""Apply, verify, undo, and death after every single step."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangd.actuate.base import Actuator, Wanted
from gangd.actuate.executor import NO_LONGER_WANTED, Executor
from gangd.actuate.journal import Entry, Journal
from gangd.errors import GangError, NoSuchDomain
from gangd.model.domain import Mode
from gangd.model.plan import GangPlan, Placement, Plan
from lives import Died, MortalJournal, Steps

UUID = "11111111-2222-3333-4444-555555555555"
OTHER = "99999999-2222-3333-4444-555555555555"


@dataclass
class Fake(Actuator):
    """Settings in a dict. refuse: a value that is refused after half of it was applied."""

    name: str
    host: dict[str, str]
    life: Steps = field(default_factory=Steps)
    refuse: str | None = None
    mangle: str | None = None
    missing: str | None = None
    log: list[str] = field(default_factory=list)

    def probe(self) -> str | None:
        return self.missing

    def wanted(self, plan: Plan) -> dict[str, Wanted]:
        return {
            f"{gang.uuid}/{self.name}/{place.vcpu}": Wanted(str(place.cpu), place.reason)
            for gang in plan.gangs
            for place in gang.placements
        }

    def read(self, key: str) -> str | None:
        if self.missing:
            raise GangError(self.missing)
        return self.host.get(key)

    def write(self, key: str, value: str) -> None:
        self.life.step()
        if key not in self.host:
            raise NoSuchDomain("Domain not found")
        self.log.append(f"{key.rpartition('/')[2]}={value}")
        self.host[key] = f"half {value}"
        self.life.step()
        if value == self.refuse:
            raise GangError("Invalid argument", f"failed to set {key}")
        self.host[key] = "mangled" if value == self.mangle else value
        self.life.step()


def plan(*cpus: int, uuid: str = UUID) -> Plan:
    places = tuple(Placement(vcpu, None, cpu, f"why {cpu}") for vcpu, cpu in enumerate(cpus))
    return Plan(gangs=(GangPlan(uuid, "vm", 7, Mode.RELAXED, 0, places, "marked"),))


def fresh(name: str = "pin", uuid: str = UUID, vcpus: int = 2, value: str = "0-3") -> dict[str, str]:
    return {f"{uuid}/{name}/{vcpu}": value for vcpu in range(vcpus)}


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal")


def test_apply_verify_undo(journal: Journal) -> None:
    pin = Fake("pin", fresh())
    executor = Executor([pin], journal)
    report = executor.reconcile(plan(1, 2))
    assert (report.writes, report.undone, report.failures) == (2, 0, ())
    assert list(pin.host.values()) == ["1", "2"]
    assert executor.reconcile(plan(1, 2)).writes == 0
    report = executor.undo()
    assert (report.writes, report.undone) == (0, 2)
    assert pin.host == fresh()
    assert not journal.entries


def test_executor_journals_no_setting_that_is_as_wanted(journal: Journal) -> None:
    pin = Fake("pin", fresh(value="1"))
    assert Executor([pin], journal).reconcile(plan(1, 1)).writes == 0
    assert not journal.entries
    assert not pin.log


def test_a_new_plan_moves_and_the_first_prior_wins(journal: Journal) -> None:
    pin = Fake("pin", fresh())
    executor = Executor([pin], journal)
    executor.reconcile(plan(1, 2))
    executor.reconcile(plan(2, 1))
    assert list(pin.host.values()) == ["2", "1"]
    executor.reconcile(Plan())
    assert pin.host == fresh()


def test_executor_restores_a_setting_that_left_the_plan(journal: Journal) -> None:
    pin = Fake("pin", fresh(vcpus=2))
    executor = Executor([pin], journal)
    executor.reconcile(plan(1, 2))
    report = executor.reconcile(plan(1))
    assert (report.writes, report.undone) == (0, 1)
    assert list(pin.host.values()) == ["1", "0-3"]


def test_actuators_apply_in_order_and_undo_in_reverse(journal: Journal) -> None:
    log: list[str] = []
    scope, pin = (
        Fake("scope", fresh("scope", value="s"), log=log),
        Fake("pin", fresh("pin", value="p"), log=log),
    )
    executor = Executor([scope, pin], journal)
    executor.reconcile(plan(1, 1))
    executor.undo()
    assert log == ["0=1", "1=1", "0=1", "1=1", "1=p", "0=p", "1=s", "0=s"]


class Wide(Fake):
    """A value is the digits that a plan needs at least."""

    def widened(self, key: str, now: str, value: str) -> str:
        return "".join(sorted({*now, *value}))


def test_a_lower_bound_widens_a_setting_and_undo_restores_the_first_value(journal: Journal) -> None:
    """The executor writes nothing where the value is wide enough, and restores the first prior value."""
    pin = Wide("pin", fresh(vcpus=1, value="14"))
    executor = Executor([pin], journal)
    assert executor.changes(plan(4)) == []
    assert executor.reconcile(plan(4)).writes == 0
    assert [change.wanted for change in executor.changes(plan(2))] == ["124"]
    for cpu, value in ((2, "124"), (1, "124"), (3, "1234")):
        executor.reconcile(plan(cpu))
        assert list(pin.host.values()) == [value]
    executor.reconcile(Plan())
    assert list(pin.host.values()) == ["14"]
    assert pin.log == ["0=124", "0=1234", "0=14"]


def test_undo_of_one_domain_leaves_the_others(journal: Journal) -> None:
    pin = Fake("pin", fresh() | fresh(uuid=OTHER))
    executor = Executor([pin], journal)
    both = Plan(gangs=plan(1, 2).gangs + plan(1, 2, uuid=OTHER).gangs)
    executor.reconcile(both)
    assert executor.undo(UUID).undone == 2
    assert list(pin.host.values()) == ["0-3", "0-3", "1", "2"]


@pytest.mark.parametrize("how", ["refuse", "mangle"])
def test_a_failure_puts_the_prior_back_and_stops_no_other(journal: Journal, how: str) -> None:
    pin = Fake("pin", fresh())
    setattr(pin, how, "1")
    report = Executor([pin], journal).reconcile(plan(1, 2))
    assert list(pin.host.values()) == ["0-3", "2"]
    assert report.writes == 1
    (failure,) = report.failures
    assert "Invalid argument" in failure or "reads back mangled after 1 was written" in failure
    assert list(journal.entries) == [("pin", f"{UUID}/pin/1")]


def test_a_prior_that_cannot_be_put_back_is_reported_and_kept(journal: Journal) -> None:
    pin = Fake("pin", fresh(vcpus=1), mangle="1", refuse="0-3")
    executor = Executor([pin], journal)
    assert len(executor.reconcile(plan(1)).failures) == 2
    pin.refuse = None
    assert executor.undo().undone == 1
    assert pin.host == fresh(vcpus=1)


def test_a_hand_change_of_a_wanted_setting_is_left_alone(journal: Journal) -> None:
    pin = Fake("pin", fresh())
    executor = Executor([pin], journal)
    executor.reconcile(plan(1, 2))
    pin.host[f"{UUID}/pin/1"] = "3"
    assert executor.changes(plan(1, 2)) == []
    for _ in range(2):
        report = executor.reconcile(plan(1, 2))
        assert report.failures == (f"pin {UUID}/pin/1 was changed by hand to 3: left alone",)
    report = executor.undo()
    assert report.failures == (f"pin {UUID}/pin/1 was changed by hand to 3: left alone",)
    assert list(pin.host.values()) == ["0-3", "3"]
    assert not journal.entries


@pytest.mark.parametrize("error", [GangError("Invalid argument"), PermissionError(1, "Not permitted")])
@pytest.mark.parametrize("half", [False, True])
def test_a_hand_change_after_a_refused_undo(journal: Journal, error: Exception, half: bool) -> None:
    """A hand change is left alone, unless the refused write may have been done by half."""
    pin = Fake("pin", fresh(vcpus=1))
    executor = Executor([pin], journal)
    executor.reconcile(plan(1))
    write = pin.write

    def refuse(key: str, value: str) -> None:
        assert Journal(journal.path).entries["pin", key].pending == value, "a death here can be undone"
        pin.host[key] = "half" if half else pin.host[key]
        raise error

    pin.write = refuse  # type: ignore[method-assign]
    assert executor.undo().failed == 1
    pin.write = write  # type: ignore[method-assign]
    pin.host[f"{UUID}/pin/0"] = "3"
    report = Executor([pin], Journal(journal.path)).undo()
    assert (report.undone, list(pin.host.values())) == ((1, ["0-3"]) if half else (0, ["3"]))
    assert not Journal(journal.path).entries


def test_a_hand_change_back_to_the_prior_value_is_applied_again(journal: Journal) -> None:
    pin = Fake("pin", fresh())
    executor = Executor([pin], journal)
    executor.reconcile(plan(1, 2))
    pin.host[f"{UUID}/pin/1"] = "0-3"
    assert executor.reconcile(plan(1, 2)).writes == 1


def test_a_vanished_guest_is_forgotten_without_a_word(journal: Journal) -> None:
    pin = Fake("pin", fresh())
    executor = Executor([pin], journal)
    executor.reconcile(plan(1, 2))
    pin.host.clear()
    assert executor.reconcile(plan(1, 2)).failures == ()
    assert not journal.entries


def test_a_guest_that_vanishes_during_a_write_is_no_failure(journal: Journal) -> None:
    pin = Fake("pin", fresh())
    read, reads = pin.read, iter(["0-3"])
    pin.read = lambda key: next(reads, None) if key.endswith("0") else read(key)  # type: ignore[method-assign]
    del pin.host[f"{UUID}/pin/0"]
    assert Executor([pin], journal).reconcile(plan(1, 2)).failures == ()
    assert len(journal.entries) == 1


def test_an_actuator_that_is_missing_is_one_sentence_and_keeps_its_entries(journal: Journal) -> None:
    pin, scope = Fake("pin", fresh()), Fake("scope", fresh("scope"))
    executor = Executor([pin, scope], journal)
    executor.reconcile(plan(1, 2))
    pin.missing = "libvirt is not connected"
    report = executor.reconcile(plan(2, 1))
    assert (report.missing, report.failures) == (("pin: libvirt is not connected",), ())
    assert report.writes == 2
    assert executor.undo().failures == ("libvirt is not connected",)
    assert executor.probe() == {"pin": "libvirt is not connected", "scope": None}
    assert [name for name, _ in journal.entries] == ["pin", "pin"]


def test_entries_of_an_unknown_actuator_are_kept_and_named(journal: Journal) -> None:
    journal.put("scope", f"{UUID}/x", Entry("1", written="2"))
    for report in (Executor([], journal).undo(), Executor([], journal).reconcile(Plan())):
        assert report.failures == ("cannot undo changes made by 'scope': it is not in use now",)
    assert len(journal.entries) == 1


def test_changes_are_what_reconcile_would_do(journal: Journal) -> None:
    pin = Fake("pin", fresh())
    executor = Executor([pin], journal)
    executor.reconcile(plan(1, 2))
    pin.log.clear()
    changes = executor.changes(plan(3))
    assert [(c.key[-1], c.now, c.wanted, c.reason) for c in changes] == [
        ("1", "2", "0-3", NO_LONGER_WANTED),
        ("0", "1", "3", "why 3"),
    ]
    assert not pin.log
    executor.reconcile(plan(3))
    assert executor.changes(plan(3)) == []


def scenario_apply(executor: Executor, _pin: Fake) -> None:
    executor.reconcile(plan(1, 2))


def scenario_move(executor: Executor, _pin: Fake) -> None:
    executor.reconcile(plan(1, 2))
    executor.reconcile(plan(2, 1))
    executor.reconcile(plan(3))


def scenario_fail(executor: Executor, pin: Fake) -> None:
    pin.refuse, pin.mangle = "1", "2"
    executor.reconcile(plan(1, 2))
    executor.reconcile(plan(3, 1))


def scenario_undo(executor: Executor, _pin: Fake) -> None:
    executor.reconcile(plan(1, 2))
    executor.undo(UUID)
    executor.reconcile(plan(2, 2))
    executor.undo()


def die_after(step: int, path: Path, scenario: Callable[[Executor, Fake], None]) -> bool:
    """Live a life that ends after `step` steps, then a successor's undo; True if it did end."""
    life = Steps(step)
    pin, scope = Fake("pin", fresh(), life), Fake("scope", fresh("scope"), life)
    MortalJournal.steps = life
    died = False
    try:
        scenario(Executor([scope, pin], MortalJournal(path)), pin)
    except Died:
        died = True
    pin.life = scope.life = Steps()
    pin.refuse = pin.mangle = None
    successor: list[Actuator] = [scope, pin]
    report = Executor(successor, Journal(path)).undo()
    assert report.failures == ()
    assert (pin.host, scope.host) == (fresh(), fresh("scope")), f"died after step {step}"
    assert not Journal(path).entries
    return died


@pytest.mark.parametrize("scenario", [scenario_apply, scenario_move, scenario_fail, scenario_undo])
def test_death_after_any_step_can_be_undone(
    tmp_path: Path, scenario: Callable[[Executor, Fake], None]
) -> None:
    step = 0
    while die_after(step, tmp_path / str(step), scenario):
        step += 1
    assert step >= 20


@pytest.mark.parametrize("scenario", [scenario_move, scenario_undo])
def test_death_during_the_undo_too(tmp_path: Path, scenario: Callable[[Executor, Fake], None]) -> None:
    for step in range(0, 40, 3):
        for second in range(12):
            path = tmp_path / f"{step}-{second}"
            pin = Fake("pin", fresh(), Steps(step))
            with contextlib.suppress(Died):
                MortalJournal.steps = pin.life
                scenario(Executor([pin], MortalJournal(path)), pin)
            with contextlib.suppress(Died):
                MortalJournal.steps = pin.life = Steps(second)
                Executor([pin], MortalJournal(path)).undo()
            pin.life = Steps()
            Executor([pin], Journal(path)).undo()
            assert pin.host == fresh(), (step, second)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 3), max_size=3), max_size=6), st.integers(0, 120))
def test_any_history_can_be_undone(
    tmp_path_factory: pytest.TempPathFactory, plans: list[list[int]], step: int
) -> None:
    def scenario(executor: Executor, _pin: Fake) -> None:
        for cpus in plans:
            executor.reconcile(plan(*cpus))

    die_after(step, tmp_path_factory.mktemp("life") / "journal", scenario)
