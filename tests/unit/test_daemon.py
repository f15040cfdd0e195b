# SPDX-License-Identifier: Apache-2.0
"""The daemon's wiring, with a libvirt and a host that only remember."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Set
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from msgspec.structs import replace as replace_config

pytest.importorskip("libvirt")


from fakes import counters, guest, host
from gangd.actuate.base import Change, Report
from gangd.config import Config, Select
from gangd.config import Daemon as Settings
from gangd.daemon import Daemon
from gangd.errors import GangError, InvalidArgument, NoLibvirt, NoSuchDomain, NotMarked
from gangd.model.affect import Affect
from gangd.model.domain import Domain, Mark
from gangd.model.event import Connected, CpusSeen, Disconnected, DomainGone, DomainSeen, Event, Resynced
from gangd.model.mark_change import MarkChange
from gangd.model.plan import Plan
from gangd.model.smt import Smt
from gangd.model.snapshot import DomainStats, Part

WEB, DB = guest("web", 1), guest("db", 2)


class FakeSource:
    """A libvirt whose domains a test sets; `emit` is what the daemon listens with."""

    def __init__(self, *domains: Domain) -> None:
        self.domains = {d.uuid: d for d in domains}
        self.affected: list[Affect | None] = []
        self.interval = 0.0
        self.emit: Callable[[Event], None] = lambda _event: None
        self.topology = host()
        self.fail: GangError | None = None
        self.troubles: tuple[str, ...] = ()

    async def run(self, emit: Callable[[Event], None]) -> None:
        self.emit = emit
        emit(Connected("qemu:///system"))
        await self.resync()
        await asyncio.Event().wait()

    def set_interval(self, seconds: float) -> None:
        self.interval = seconds

    async def resync(self) -> None:
        if self.fail:
            raise self.fail
        self.emit(Resynced(tuple(self.domains.values()), self.topology))

    async def look(self) -> None:
        try:
            await self.resync()
        except GangError:
            self.emit(CpusSeen(self.topology))

    async def find(self, ref: str) -> Domain:
        for domain in self.domains.values():
            if ref in (domain.name, domain.uuid):
                return domain
        raise NoSuchDomain(f"no domain '{ref}'")

    async def set_mark(self, uuid: str, mark: Mark | None, affect: Affect | None = None) -> Domain:
        self.affected.append(affect)
        if affect != Affect(config=True):
            self.domains[uuid] = replace(self.domains[uuid], mark=mark)
        self.emit(DomainSeen(self.domains[uuid]))
        return self.domains[uuid]

    async def change_mark(
        self, uuid: str, change: Callable[[Mark], Mark], affect: Affect | None = None
    ) -> Domain:
        mark = self.domains[uuid].mark
        if mark is None:
            raise NotMarked("domain is not marked")
        return await self.set_mark(uuid, change(mark), affect)


class FakeHost:
    """Remembers every plan it was given."""

    def __init__(self) -> None:
        self.plans: list[Plan] = []
        self.stale: list[Set[str] | None] = []
        self.watched: list[list[str]] = []
        self.report = Report()
        self.verifier_log = ""
        self.backend = Part("sched_ext", True, True, "loaded", {"ejections": 0})
        self.samples = 0
        self.thrown_out: tuple[str, ...] = ()
        self.ended: list[str] = []
        self.turn_us: int | None = None
        self.widens = False

    def unpinned(self, key: str, now: frozenset[int]) -> frozenset[int]:
        return now

    def set_turn(self, turn_us: int) -> None:
        self.turn_us = turn_us

    async def call(self, work: Callable[[], Any]) -> Any:
        return work()

    async def reconcile(self, plan: Plan, domains: dict[str, Domain], stale: Set[str] | None) -> Report:
        self.stale.append(stale)
        self.plans.append(plan)
        self.watched.append(sorted(d.name for d in domains.values()))
        return self.report

    async def changes(self, plan: Plan) -> list[Change]:
        return [Change("gang", f"{gang.uuid}/gang", None, gang.mode, gang.reason) for gang in plan.gangs]

    async def sample(self, domains: Iterable[Domain]) -> tuple[float, Mapping[str, DomainStats], Part, Part]:
        self.samples += 1
        stats = {d.uuid: counters(d, 100.0 * self.samples) for d in domains if d.running}
        return asyncio.get_running_loop().time(), stats, self.backend, Part("bpf", True, True, "counting")

    async def parts(self) -> tuple[Part, Part]:
        return self.backend, Part("bpf", True, True, "counting")

    async def ejected(self) -> tuple[str, ...]:
        return self.thrown_out

    async def set_smt(self, wanted: str) -> None:
        if wanted == "off":
            raise GangError("this kernel cannot switch SMT while it runs")
        self.ended.append(f"smt {wanted}")

    async def smt(self) -> Smt:
        return Smt("on", True)

    async def undo(self, uuid: str | None = None) -> Report:
        self.ended.append(f"undo {uuid}" if uuid else "undo")
        return Report(undone=3, failures=("vCPU 0 of 'web' was pinned by hand to 1: left alone",))

    async def close(self) -> None:
        self.ended.append("close")


class Bench:
    """A daemon that follows its fakes until the test is over."""

    def __init__(
        self,
        folder: Path,
        *domains: Domain,
        interval: float = 3600.0,
        select: tuple[Select, ...] = (),
        source: type[FakeSource] = FakeSource,
        backend: type[FakeHost] = FakeHost,
    ) -> None:
        settings = Settings(state_dir=str(folder), interval=interval, measure_interval=3600.0)
        self.source, self.host = source(*domains), backend()
        fakes = {"source": lambda *_: self.source, "Host": lambda *_: self.host}
        with patch.multiple("gangd.daemon", **fakes):
            self.daemon = Daemon(Config(daemon=settings, select=select), folder)
        self.answers = self.daemon.answers

    @property
    def gangs(self) -> list[str]:
        """Names of the gangs of the last plan."""
        return [gang.name for gang in self.host.plans[-1].gangs] if self.host.plans else []

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while not true():
                await asyncio.sleep(0.005)

    def run(self, test: Callable[[], Awaitable[None]]) -> None:
        """Follow, run `test` once a first plan was made, and stop."""

        async def whole() -> None:
            following = asyncio.create_task(self.daemon.follow())
            await self.until(lambda: bool(self.host.plans) and self.host.samples > 0)
            await test()
            following.cancel()
            with pytest.raises(asyncio.CancelledError):
                await following

        asyncio.run(whole())


def marked(domain: Domain) -> Domain:
    return replace(domain, mark=Mark())


def logged(caplog: pytest.LogCaptureFixture, event: str) -> list[str]:
    """The messages of the records that the journal gets with this GANGD_EVENT."""
    return [r.getMessage() for r in caplog.records if vars(r).get("GANGD_EVENT") == event]


def test_events_become_plans(tmp_path: Path) -> None:
    """A guest that is marked, one that appears, one that vanishes: each is a new plan."""
    bench = Bench(tmp_path, WEB)

    async def test() -> None:
        assert bench.gangs == []
        bench.source.emit(DomainSeen(marked(WEB)))
        await bench.until(lambda: bench.gangs == ["web"])
        bench.source.emit(DomainSeen(marked(DB)))
        await bench.until(lambda: bench.gangs == ["web", "db"])
        assert bench.host.watched[-1] == ["db", "web"]
        bench.source.emit(DomainGone(WEB.uuid))
        await bench.until(lambda: bench.gangs == ["db"])

    bench.run(test)


def test_a_storm_of_events_is_few_plans(tmp_path: Path) -> None:
    """Events that come together are acted on together."""
    bench = Bench(tmp_path, WEB)

    async def test() -> None:
        before = len(bench.host.plans)
        for number in range(200):
            bench.source.emit(DomainSeen(replace(marked(WEB), memory_kib=number)))
        await bench.until(lambda: bench.gangs == ["web"])
        await asyncio.sleep(0.1)
        assert len(bench.host.plans) - before <= 2

    bench.run(test)


def test_events_that_change_nothing_do_nothing(tmp_path: Path) -> None:
    """libvirt says a lot; the host is touched only when something is different."""
    bench = Bench(tmp_path, WEB)

    async def test() -> None:
        await asyncio.sleep(0.1)
        before = len(bench.host.plans)
        bench.source.emit(DomainSeen(WEB))
        await asyncio.sleep(0.1)
        assert len(bench.host.plans) == before

    bench.run(test)


def test_a_lost_event_costs_an_interval(tmp_path: Path) -> None:
    """The host is still compared with the plan without any news, again and again."""
    bench = Bench(tmp_path, marked(WEB), interval=0.1)

    async def test() -> None:
        before = len(bench.host.plans)
        await bench.until(lambda: len(bench.host.plans) >= before + 3)

    bench.run(test)


def test_without_libvirt_the_last_state_holds(tmp_path: Path) -> None:
    """The daemon keeps the host as that wants it, with the CPUs that there are, and tells callers why."""
    bench = Bench(tmp_path, marked(WEB), interval=0.1)

    async def test() -> None:
        await bench.until(lambda: bench.gangs == ["web"])
        bench.source.emit(Disconnected("libvirt closed the connection"))
        bench.source.fail = NoLibvirt("libvirt closed the connection")
        before = len(bench.host.plans)
        await bench.until(lambda: len(bench.host.plans) > before + 2)
        assert bench.gangs == ["web"] and bench.host.stale[-1] is None
        assert bench.answers.resolve("web").name == "web"
        with pytest.raises(NoLibvirt, match="closed the connection"):
            bench.answers.resolve("nope")
        bench.source.emit(Connected("qemu:///system"))
        await bench.until(lambda: len(bench.host.plans) > before)

    bench.run(test)


def test_nothing_is_touched_before_libvirt_was_read(tmp_path: Path) -> None:
    """Settings of an earlier gangd would be undone, for want of guests."""
    bench = Bench(tmp_path, marked(WEB), interval=0.1)

    async def whole() -> None:
        bench.source.fail = NoLibvirt("not now")
        following = asyncio.create_task(bench.daemon._following.run(bench.daemon._reconciling))
        reconciling = asyncio.create_task(bench.daemon._reconciling.run())
        bench.daemon._following.read_again()
        await asyncio.sleep(0.3)
        assert not bench.host.plans
        reconciling.cancel()
        await asyncio.gather(following, reconciling, return_exceptions=True)

    asyncio.run(whole())


def test_mark_acts_before_it_answers(tmp_path: Path) -> None:
    """When mark returns, the host was reconciled and measured; the same for unmark."""
    bench = Bench(tmp_path, WEB)

    async def test() -> None:
        answer = await bench.answers.mark("web", MarkChange(None, 300))
        assert answer.mark == Mark("adaptive", 300)
        assert bench.gangs == ["web"]
        assert bench.host.plans[-1].gangs[0].weight == 300
        assert (await bench.answers.unmark("web")).mark is None
        assert bench.gangs == []

    bench.run(test)


def test_mark_refuses_before_it_stores(tmp_path: Path) -> None:
    """A policy nobody has, a domain nobody has: nothing is written."""
    bench = Bench(tmp_path, WEB)

    async def test() -> None:
        with pytest.raises(InvalidArgument, match="no policy is called 'magic'"):
            await bench.answers.mark("web", MarkChange("magic"))
        with pytest.raises(NoSuchDomain):
            await bench.answers.mark("nope", MarkChange())
        assert bench.source.domains[WEB.uuid].mark is None

    bench.run(test)


def test_a_selector_marks_without_metadata(tmp_path: Path) -> None:
    """A guest that the configuration selects is planned; another one is in force with the next plan."""
    bench = Bench(tmp_path, WEB, DB)

    async def test() -> None:
        assert bench.gangs == []
        bench.daemon.reload(replace_config(bench.daemon.config, select=(Select(name="d*"),)))
        await bench.answers.refresh()
        assert bench.gangs == ["db"]
        assert (await bench.answers.mark("db", MarkChange("off"))).mark == Mark("off")
        assert bench.gangs == []
        await bench.answers.unmark("db")
        assert bench.gangs == ["db"]
        bench.daemon.reload(replace_config(bench.daemon.config, select=()))
        await bench.answers.refresh()
        assert bench.gangs == []

    bench.run(test)


def test_a_mark_keeps_the_guests_tag(tmp_path: Path) -> None:
    """A tag says what the guest is; the mark says what is done with it."""
    bench = Bench(tmp_path, replace(WEB, mark=Mark(None, tag="batch")))

    async def test() -> None:
        assert (await bench.answers.mark("web", MarkChange("latency"))).mark == Mark("latency", None, "batch")
        assert bench.gangs == ["web"]

    bench.run(test)


def test_preview_changes_nothing(tmp_path: Path) -> None:
    """A preview plans as if the domain were marked, and neither stores nor applies it."""
    bench = Bench(tmp_path, WEB)

    async def test() -> None:
        await asyncio.sleep(0.1)
        before = len(bench.host.plans)
        plan, changes = await bench.answers.preview("web")
        assert [gang.name for gang in plan.gangs] == ["web"]
        assert [change["key"] for change in changes] == [f"{WEB.uuid}/gang"]
        assert (await bench.answers.preview(None))[0].gangs == ()
        assert bench.answers.snapshot().state.domains[WEB.uuid].mark is None
        assert len(bench.host.plans) == before

    bench.run(test)


def test_resolve_in_virshs_order(tmp_path: Path) -> None:
    """Id first, then UUID, then name: a domain called "1" does not hide domain 1."""
    bench = Bench(tmp_path, WEB, guest("1", 7))

    async def test() -> None:
        assert bench.answers.resolve("1").name == "web"
        assert bench.answers.resolve("7").name == "1"
        assert bench.answers.resolve(WEB.uuid) == WEB
        for wrong in ("nope", "", "99999999999999999999", "\u0661"):
            with pytest.raises(NoSuchDomain):
                bench.answers.resolve(wrong)

    bench.run(test)


def test_readers_share_a_measurement(tmp_path: Path) -> None:
    """Twenty who ask at once cost one reading of the kernel."""
    bench = Bench(tmp_path, WEB)

    async def test() -> None:
        await asyncio.sleep(0.25)
        before = bench.host.samples
        await asyncio.gather(*[bench.answers.measured() for _ in range(20)])
        assert bench.host.samples == before + 1

    bench.run(test)
