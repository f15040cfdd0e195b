# SPDX-License-Identifier: Apache-2.0
"""The host thread's own rules, without a kernel."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from msgspec.structs import replace as replace_config

from fakes import guest
from gangd import bpf, host_thread
from gangd.actuate import sched_ext
from gangd.actuate.backend import Backend, LoadFailed
from gangd.actuate.base import Report
from gangd.actuate.executor import Pass
from gangd.actuate.journal import Entry, Journal, was_handed_over
from gangd.actuate.limits import V1_CPUSET, Limits
from gangd.actuate.sched_ext import Predecessor
from gangd.config import Actuate, Config, Daemon, Scheduler
from gangd.errors import GangError, InvalidArgument
from gangd.host_thread import Host
from gangd.model.domain import Mode
from gangd.model.plan import Cache, GangPlan, Placement, Plan
from gangd.model.refused import Refused
from gangd.model.smt import Smt
from unit.actuate.smt_tree import CPUS, tree

UUID = "11111111-2222-3333-4444-555555555555"


def config(folder: Path) -> Config:
    return Config(daemon=Daemon(state_dir=str(folder)), scheduler=Scheduler(backend="none"))


def test_two_gangds_do_not_share_a_journal(tmp_path: Path) -> None:
    """The second is told so in one sentence; when the first is gone it may start."""

    async def scenario() -> None:
        first = Host(config(tmp_path), tmp_path)
        with pytest.raises(GangError, match="another gangd is running"):
            Host(config(tmp_path), tmp_path)
        await first.close()
        await Host(config(tmp_path), tmp_path).close()

    asyncio.run(scenario())


def test_smt_is_switched_and_put_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a tree of files; what is shown says what an undo would write. The scheduler is unloaded before."""
    unloaded: list[str] = []
    gangs = Mock(close=lambda: unloaded.append((tmp_path / CPUS / "smt/control").read_text().strip()))

    async def scenario() -> None:
        host = Host(config(tmp_path / "state"), tree(tmp_path))
        monkeypatch.setattr(host, "_gangs", gangs)
        assert await host.smt() == Smt("on", True, ((0, 2), (1, 3)))
        await host.set_smt("on")
        assert not host.journal.entries and unloaded == []
        await host.set_smt("off")
        assert unloaded == ["on"]
        shown = await host.smt()
        assert (shown.control, shown.prior) == ("off", "on")
        assert (await host.undo()).undone == 1
        assert (await host.smt()).control == "on"
        with pytest.raises(InvalidArgument):
            await host.set_smt("forceoff")
        await host.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (Scheduler(), ["sched_ext", "module"]),
        (Scheduler(backend="sched_ext"), ["sched_ext"]),
        (Scheduler(backend="module"), ["module"]),
        (Scheduler(backend="none"), []),
    ],
)
def test_backends_are_those_of_the_configuration(tmp_path: Path, wanted: Scheduler, names: list[str]) -> None:
    assert [backend.name for backend in host_thread._backends(wanted, tmp_path, Predecessor())] == names


@pytest.mark.parametrize(("wanted", "helps"), [(Scheduler(), False), (Scheduler(help="unmarked"), True)])
def test_help_reaches_the_scheduler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: Scheduler, helps: bool
) -> None:
    monkeypatch.setattr(sched_ext, "Scheduler", loaded := Mock())
    host_thread._backends(wanted, tree(tmp_path), Predecessor())[0].load()
    assert loaded.call_args.args[1] is helps


@pytest.mark.parametrize(
    ("actuate", "v1", "room", "weight"),
    [
        (Actuate(), False, False, True),
        (Actuate(cpu_weight=False), False, False, False),
        (Actuate(allowed_cpus="widen"), False, True, True),
        (Actuate(allowed_cpus="widen"), True, False, True),
    ],
)
def test_limits_are_those_of_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, actuate: Actuate, v1: bool, room: bool, weight: bool
) -> None:
    """No guest gets room with a cpuset of cgroup v1: its threads' groups have sets of their own."""
    if v1:
        (tmp_path / V1_CPUSET).parent.mkdir(parents=True)
        (tmp_path / V1_CPUSET).touch()
    given: list[Limits] = []
    monkeypatch.setattr(host_thread, "_group_limits", lambda limits, _: given.append(limits) or Mock())
    host = Host(replace_config(config(tmp_path), actuate=actuate), tmp_path)
    asyncio.run(host.close())
    assert [(one.room, one.weight) for one in given] == [(room, weight)] and host.widens is room


@pytest.mark.parametrize("booted", [True, False])
def test_the_owner_of_the_cgroups_is_asked(tmp_path: Path, booted: bool) -> None:
    """Entries are forgotten with their guest where systemd runs; where it does not, they are kept."""
    if booted:
        (tmp_path / "run/systemd/system").mkdir(parents=True)
    journal = Journal(tmp_path / "journal")
    for name in ("scope", "cgroup"):
        journal.put(name, f"{UUID}/700/{name}", Entry("0-1", "0-3"))
    journal.flush()
    theirs, other = ("scope", "cgroup") if booted else ("cgroup", "scope")

    async def scenario() -> None:
        host = Host(config(tmp_path), tmp_path)
        report = await host.undo(UUID)
        assert report.failures == (f"cannot undo changes made by '{other}': it is not in use now",)
        assert (theirs, f"{UUID}/700/{theirs}") not in host.journal.entries
        await host.close()

    asyncio.run(scenario())


def test_nothing_wanted_asks_nothing_of_libvirt(tmp_path: Path) -> None:
    """An empty plan on an untouched host needs no connection and changes nothing."""

    async def scenario() -> None:
        host = Host(config(tmp_path), tmp_path)
        report = await host.reconcile(Plan(), {}, None)
        assert (report.writes, report.undone, report.failures, report.missing) == (0, 0, (), ())
        _, stats, backend, probes = await host.sample([])
        assert stats == {}
        assert not backend.usable and "switched off" in backend.reason
        assert not probes.active
        await host.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("missing", [None, "not on this kernel"])
def test_gangs_that_roam_are_neither_pinned_nor_weighed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str | None
) -> None:
    """gangd neither pins nor weighs gangs of a scheduler that chooses CPUs, and pins all others."""
    roaming = Backend("fake", lambda: missing, Mock(), roams=True)
    monkeypatch.setattr(host_thread, "_backends", lambda *_: [roaming])
    gang = GangPlan(UUID, "vm", 700, Mode.RELAXED, 0, (), "marked", asked=300)

    async def scenario() -> None:
        host = Host(config(tmp_path), tmp_path)
        assert host._roams(gang) is (missing is None)
        assert not host._roams(replace(gang, mode=Mode.BALANCE))
        assert not host._weighs()
        backend, _ = await host.parts()
        assert backend.roams is (missing is None)
        await host.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("mode", "in_force", "actuators", "shown"),
    [
        (Mode.STRICT, Mode.RELAXED, ("gang",), ("gang", Mode.RELAXED)),
        (Mode.STRICT, None, ("scope", "gang"), ("gang", None)),
        (Mode.RELAXED, Mode.RELAXED, ("scope",), ("scope", Mode.RELAXED)),
        (Mode.BALANCE, None, ("scope", "affinity"), ("affinity", None)),
        (Mode.BALANCE, None, ("scope",), ("scope", Mode.BALANCE)),
    ],
)
def test_how_a_guest_is_scheduled_of_which_something_was_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: Mode,
    in_force: Mode | None,
    actuators: tuple[str, ...],
    shown: tuple[str, Mode | None],
) -> None:
    """A guest has one refusal, of what decides; a gang is what the scheduler has, balance is affinities."""
    gang = GangPlan(UUID, "vm", 700, mode, 0, (), "marked")
    report = Report(refused=tuple(Refused(UUID, name, "Failed", f"no {name}") for name in actuators))

    def reconciling(*_: object) -> Pass:
        yield
        return report

    async def scenario() -> None:
        host = Host(config(tmp_path), tmp_path)
        monkeypatch.setattr(host, "_gangs", Mock(mode=lambda _: in_force, ejections=Counter()))
        monkeypatch.setattr(host._executor, "reconciling", reconciling)
        found = await host.reconcile(Plan(gangs=(gang,)), {}, None)
        (refused,) = found.refused
        assert (refused.actuator, refused.mode) == shown
        await host.close()

    asyncio.run(scenario())


class Broken:
    """Actuator `gang` whose kernel refuses every read while `broken`."""

    name, broken = "gang", True
    active, roams, last_ejection, backend = True, False, None, Mock(roams=False, in_use=lambda: "in use")

    def __init__(self) -> None:
        self.backend.name, self.ejections = "fake", Counter[str]()

    def probe(self) -> None: ...

    def close(self) -> None: ...

    def look(self, *_: object) -> None:
        if self.broken:
            raise OSError(5, "Input/output error")

    def counters(self) -> dict[str, int]:
        self.look()
        return {"turns": 7}

    def histograms(self) -> dict[str, list[int]]:
        return {}

    stats = look


def test_a_kernel_that_refuses_reads_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Counters are unknown until it answers; what is wrong stands in the status, and twice in the log."""
    caplog.set_level("INFO", "gangd")
    web = guest("web", 1)

    async def scenario() -> None:
        host = Host(config(tmp_path), tmp_path)
        monkeypatch.setattr(host, "_gangs", gangs := Broken())
        monkeypatch.setattr(host._probes, "_sync", gangs.look)
        monkeypatch.setattr(host._probes, "_read", lambda: gangs.look() or {})
        for broken in (True, True, False):
            gangs.broken = broken
            await host.reconcile(Plan(), {web.uuid: web}, None)
            assert await host.ejected() == ()
            _, stats, backend, probes = await host.sample([web])
            assert stats[web.uuid].gang is None
            assert ("cannot read the counters of the scheduler: " in backend.reason) is broken
            assert ("cannot watch the threads of guests: " in probes.reason) is broken
            assert backend.active and backend.detail.get("turns") == (None if broken else 7)
            assert not probes.active and probes.usable is not broken
        await host.close()

    asyncio.run(scenario())
    said = [one.levelname for one in caplog.records]
    assert (said.count("WARNING"), said.count("INFO")) == (5, 5)


@pytest.mark.parametrize(
    ("marked", "accepted", "backend", "ended"),
    [
        (False, True, "sched_ext", True),
        (True, True, "sched_ext", True),
        (True, False, "sched_ext", False),
        (True, False, "none", True),
    ],
)
def test_the_scheduler_of_the_gangd_before_stands_in_for_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, marked: bool, accepted: bool, backend: str, ended: bool
) -> None:
    """The old scheduler ends when ours is loaded and when none is wanted, and stays where the kernel refuses
    ours: what is shown says so. The end of gangd ends it, too."""
    detached: list[int] = []
    monkeypatch.setattr(bpf, "detach_link", detached.append)
    descriptor = os.open(tmp_path, os.O_RDONLY)
    gang = GangPlan(UUID, "vm", 99, Mode.RELAXED, 0, (Placement(0, 100, 4, "free"),), "marked", 100)
    wanted = Plan((Cache(0, (4,), "one cache"),), (gang,)) if marked else Plan()

    def load() -> Mock:
        if not accepted:
            raise LoadFailed("the kernel refused the scheduler: no", "")
        return Mock(ejected=lambda: None, limit=lambda _: None, counters=dict, histograms=dict)

    if backend != "none":
        monkeypatch.setattr(host_thread, "_backends", lambda *_: [Backend("sched_ext", lambda: None, load)])

    async def scenario() -> None:
        host = Host(config(tmp_path), tmp_path, [descriptor])
        await host.reconcile(wanted, {}, None)
        assert bool(detached) is ended
        shown, _ = await host.parts()
        assert ("of the gangd before" in shown.reason) is not ended
        if backend != "none" and not accepted:
            assert shown.reason.startswith("the kernel refused the scheduler: no") and shown.usable
        await host.close()
        assert detached == [descriptor]

    asyncio.run(scenario())


@pytest.mark.parametrize("loaded", [True, False])
def test_a_host_is_handed_over_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loaded: bool
) -> None:
    """Pins stay journaled for the next gangd, and the undo after the stop leaves them alone; what the
    scheduler was told ends with the process, or is told anew. Descriptors keep it loaded."""
    journal = Journal(tmp_path / "journal")
    journal.put("affinity", f"{UUID}/99/vcpu/0", Entry("0-1", "0"))
    journal.put("gang", f"{UUID}/gang", Entry("", "relaxed"))
    journal.flush()

    async def scenario() -> tuple[int, ...]:
        host = Host(config(tmp_path), tmp_path)
        gangs = Mock(descriptors=(7, 8) if loaded else ())
        gangs.name = "gang"
        monkeypatch.setattr(host, "_gangs", gangs)
        return await host.hand_over(Plan())

    assert asyncio.run(scenario()) == ((7, 8) if loaded else ())
    assert list(Journal(tmp_path / "journal").entries) == [("affinity", f"{UUID}/99/vcpu/0")]
    assert was_handed_over(tmp_path) and not was_handed_over(tmp_path)
