# SPDX-License-Identifier: Apache-2.0
"""The news that a running daemon gets and tells: a changed configuration, CPUs, refusals, and the log."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("libvirt")

from fakes import guest, host
from gangd import loops, service
from gangd.actuate.base import Report
from gangd.config import Config, Control, Scheduler
from gangd.config import Daemon as Settings
from gangd.control.documents import schedule, stats
from gangd.errors import InvalidConfig, NoLibvirt
from gangd.events import uevent
from gangd.model.domain import KVM, Mark, Mode
from gangd.model.event import Disconnected, DomainGone, DomainSeen
from gangd.model.mark_change import MarkChange
from gangd.model.placement import Standing
from gangd.model.plan import Plan
from gangd.model.refused import Refused
from gangd.model.snapshot import Part
from gangd.model.state import State
from gangd.planner import make_plan
from unit.test_daemon import WEB, Bench, logged, marked


def standings(monkeypatch: pytest.MonkeyPatch, moved: int = 0) -> list[Standing]:
    """The standing that each plan is made from, from now on; every plan moves so many vCPUs."""
    found = []

    def plan(state: State, evidence: Any, policies: Any, standing: Standing, *rest: Any) -> Plan:
        found.append(standing)
        return replace(make_plan(state, evidence, policies, standing, *rest), moved=moved)

    monkeypatch.setattr(loops, "make_plan", plan)
    return found


def test_reload_takes_up_what_a_running_daemon_can(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Intervals, slots, policy and moves change at once; the rest is kept, and named in the same line."""
    bench, asked = Bench(tmp_path, WEB), standings(monkeypatch)

    async def test() -> None:
        caplog.set_level("INFO")
        settings = bench.daemon.config.daemon
        found = Config(
            daemon=Settings(state_dir=settings.state_dir, interval=7.0, measure_interval=0.1),
            scheduler=Scheduler(
                turn_us=9000, policy="strict", moves_per_minute=0, help="unmarked", placement="spread"
            ),
            control=Control(bus="session"),
        )
        plans, samples = len(bench.host.plans), bench.host.samples
        bench.daemon.reload(found)
        assert (bench.source.interval, bench.host.turn_us) == (7.0, 9000)
        await bench.until(lambda: len(bench.host.plans) > plans and bench.host.samples >= samples + 2)
        await bench.answers.mark("web", MarkChange())
        assert bench.host.plans[-1].gangs[0].mode == "strict"
        assert (asked[-1].moves, asked[-1].strategy) == (0, "spread")
        (line,) = [r.getMessage() for r in caplog.records if "configuration" in r.getMessage()]
        assert line.endswith("; not before a restart: scheduler.help, control.bus")
        assert all(key in line for key in ("daemon.interval", "scheduler.turn_us", "scheduler.policy"))
        assert "scheduler.placement" in line
        bench.daemon.reload(found)
        assert "changed: nothing; not before" in caplog.text  # what is not taken up is not forgotten

    bench.run(test)


def test_moves_are_counted_for_a_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan may move the vCPUs that those before it left of scheduler.moves_per_minute."""
    asked, bench = standings(monkeypatch, moved=5), Bench(tmp_path, WEB)

    async def test() -> None:
        await bench.answers.refresh()
        assert [standing.moves for standing in asked[:2]] == [16, 11]

    bench.run(test)


def test_a_reload_that_cannot_be_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A policy nobody has: nothing else of that file is taken up either, and the journal has an event."""
    bench, file = Bench(tmp_path, WEB), tmp_path / "gangd.toml"
    file.write_text('scheduler = {policy = "magic", turn_us = 5000}')

    async def test() -> None:
        before = bench.daemon.config
        with pytest.raises(InvalidConfig, match=r"scheduler\.policy: no policy is called 'magic'"):
            bench.daemon.reload(Config(scheduler=Scheduler(policy="magic", turn_us=5000)))
        service._reload(bench.daemon, file)
        (said,) = logged(caplog, "reload-failed")
        assert said.startswith("the configuration stays as it was: scheduler.policy: no policy is called")
        assert bench.daemon.config == before
        assert bench.host.turn_us is None

    bench.run(test)


def test_the_log_says_what_happens_to_a_guest(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Every record about a guest carries its name and UUID, whoever marked it."""
    caplog.set_level("INFO")
    bench = Bench(tmp_path, WEB)

    async def test() -> None:
        await bench.answers.mark("web", MarkChange("relaxed"))
        bench.host.report = Report(failures=("failed to pin vCPU 0 of 'web' to 1: no",))
        await bench.answers.refresh()
        bench.source.emit(DomainSeen(WEB))
        await bench.until(lambda: bench.gangs == [])
        await bench.answers.unmark("web")
        events = [vars(r)["GANGD_EVENT"] for r in caplog.records if "GANGD_DOMAIN" in vars(r)]
        assert events == ["marked", "gang", "failure", "no-gang", "unmarked"]
        assert {vars(r).get("GANGD_UUID", WEB.uuid) for r in caplog.records} == {WEB.uuid}

    bench.run(test)


def test_a_policy_that_measures_does_not_wait_for_the_interval(tmp_path: Path) -> None:
    """The first reading it sees is its own, an hour before the next one that was due."""
    bench = Bench(tmp_path, WEB)

    async def test() -> None:
        samples = bench.host.samples
        await bench.answers.mark("web", MarkChange("adaptive"))
        await bench.until(lambda: bench.host.samples >= samples + 2)

    bench.run(test)


@pytest.mark.parametrize("fair", [True, False])
def test_contention_makes_a_plain_mark_a_gang_where_the_scheduler_is_fair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fair: bool
) -> None:
    """The fake guest runs apart for a fifth of its time; where gang.ko would schedule, it is off."""
    monkeypatch.setattr("gang_policies.adaptive.FIRST", 0.1)
    monkeypatch.setattr("gang_policies.adaptive.WINDOW", 0.2)
    bench = Bench(tmp_path, WEB)
    bench.host.backend = replace(bench.host.backend, fair=fair)

    def told() -> str:
        return "".join(gang.reason for gang in bench.answers.snapshot().plan.gangs)

    async def test() -> None:
        await bench.answers.mark("web", MarkChange("adaptive"))
        await bench.until(lambda: ("its vCPUs ran apart for 20%" if fair else "may take CPU time") in told())
        await bench.until(lambda: bench.host.plans[-1].gangs[0].mode is (Mode.RELAXED if fair else Mode.OFF))

    bench.run(test)


def test_a_reading_has_its_own_time(tmp_path: Path) -> None:
    """A client that asks a moment later gets the same counters, of the same time."""
    bench = Bench(tmp_path, WEB)

    async def test() -> None:
        first = stats(await bench.answers.measured())
        assert first.monotonic_seconds == pytest.approx(time.monotonic(), abs=5.0)
        await asyncio.sleep(0.05)
        second = stats(await bench.answers.measured())
        assert second.time_seconds == pytest.approx(first.time_seconds, abs=0.01)
        assert second.monotonic_seconds == pytest.approx(first.monotonic_seconds, abs=0.01)

    bench.run(test)


def test_the_backend_is_news_and_its_counters_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No clock announces anything: what a reading finds changed is told at once, and told once."""
    monkeypatch.setattr(loops, "FRESH_SECONDS", 0.0)
    bench = Bench(tmp_path, WEB)

    async def test() -> None:
        told = []
        for part in (
            Part("sched_ext", True, True, "loaded", {"turns": 1}),
            Part("sched_ext", True, True, "loaded", {"turns": 2}),
            Part("sched_ext", True, True, "loaded", {"turns": 2, "ejections": 1}),
            Part("sched_ext", False, True, "ejected", {"ejections": 1}),
        ):
            bench.host.backend = part
            bench.daemon.news.clear()
            await bench.answers.measured()
            told.append(bench.daemon.news.is_set())
        assert told == [True, False, True, True]

    bench.run(test)


def test_an_ejection_is_acted_on_at_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Noticed by the heartbeat, it makes the loop run: nobody waits for the next full read, and the CPUs that
    there are then are read first. libvirt may be away: the guests are then those that it told of last."""
    bench = Bench(tmp_path, marked(WEB))

    async def test() -> None:
        await asyncio.sleep(0.3)
        before = len(bench.host.plans)
        await bench.daemon.alive()
        assert len(bench.host.plans) == before
        bench.host.backend = Part("sched_ext", False, True, "ejected", {"ejections": 1})
        bench.host.thrown_out = ("ejected: stall",)
        bench.source.topology = host(cores=1)
        await bench.daemon.alive()
        assert logged(caplog, "ejected") == ["ejected", "ejected: stall"]
        await bench.until(lambda: len(bench.host.plans) == before + 1)
        assert bench.host.plans[-1].caches[0].cpus == (0, 1)
        bench.source.fail = NoLibvirt("not now")
        bench.source.emit(Disconnected("stopped"))
        await bench.until(lambda: len(bench.host.plans) == before + 2)
        bench.source.topology = host()
        await bench.daemon.alive()
        await bench.until(lambda: len(bench.host.plans) == before + 3)
        assert bench.gangs == ["web"] and bench.host.stale[-1] is None
        assert bench.host.plans[-1].caches[0].cpus == (0, 2, 1, 3)

    bench.run(test)


def test_machines_of_anybody_make_no_work(tmp_path: Path) -> None:
    """A storm of guests that KVM tells of and nobody chose leads to no plan; one that is chosen to one."""
    bench = Bench(tmp_path, marked(WEB))
    idle = [guest(f"user.slice/{number}", number, source=KVM) for number in range(100, 120)]
    chosen = guest("qemu.slice/1.scope", 99, mark=Mark("relaxed"), source=KVM)

    async def test() -> None:
        await bench.until(lambda: bool(bench.host.plans))
        before = len(bench.host.plans)
        for one in idle:
            bench.source.emit(DomainSeen(one))
            bench.source.emit(DomainGone(one.uuid))
        await asyncio.sleep(0.1)
        assert len(bench.host.plans) == before
        for event in (DomainSeen(chosen), DomainSeen(replace(chosen, mark=None))):
            before = len(bench.host.plans)
            bench.source.emit(event)
            await bench.until(lambda: len(bench.host.plans) > before)  # noqa: B023
        assert bench.gangs == ["web"]

    bench.run(test)


def test_cpus_come_and_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By other hands: all that the kernel says at once leads to one full read."""
    told: list[Callable[[], None]] = []

    async def follow(changed: Callable[[], None], *_: object) -> None:
        told.append(changed)

    monkeypatch.setattr(uevent, "follow", follow)
    bench = Bench(tmp_path, marked(WEB))

    async def test() -> None:
        await bench.until(lambda: bool(told and bench.host.plans))
        before, resyncs = len(bench.host.plans), bench.answers.snapshot().own.resyncs
        bench.source.topology = host(cores=1)
        for _ in range(64):
            told[0]()
        await bench.until(lambda: len(bench.host.plans) > before)
        assert bench.host.plans[-1].caches[0].cpus == (0, 1)
        assert bench.answers.snapshot().own.resyncs == resyncs + 1

    bench.run(test)


@pytest.mark.parametrize(("widens", "gangs"), [(False, []), (True, ["web"])])
def test_a_limit_that_is_widened_refuses_nobody(tmp_path: Path, widens: bool, gangs: list[str]) -> None:
    """A guest whose cgroup gangd may widen is planned as if it had no limit."""
    bench = Bench(tmp_path, replace(marked(WEB), allowed=frozenset({40})))
    bench.host.widens = widens

    async def test() -> None:
        assert bench.gangs == gangs

    bench.run(test)


def test_a_refusal_is_shown_for_its_guest(tmp_path: Path) -> None:
    """The caller that marks sees the refusal of the last attempt, until a later attempt succeeds."""
    bench = Bench(tmp_path, WEB)
    refused = Refused(WEB.uuid, "gang", "NotSupported", "no kick", Mode.RELAXED)

    async def test() -> None:
        bench.host.report = Report(failures=("no kick",), refused=(refused,))
        domain = await bench.answers.mark("web", MarkChange("strict"))
        assert schedule(bench.answers.snapshot(), domain) == ("relaxed", "no kick", "NotSupported")
        bench.host.report = Report()
        domain = await bench.answers.mark("web", MarkChange("relaxed"))
        assert schedule(bench.answers.snapshot(), domain)[::2] == ("relaxed", None)

    bench.run(test)
