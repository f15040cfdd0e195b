# SPDX-License-Identifier: Apache-2.0
"""The requests of an operator to the daemon: undo, set, marks for one state alone, SMT."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as replace_config

pytest.importorskip("libvirt")

from fakes import guest, host, reading, snapshot
from gangd import answers, loops
from gangd.actuate.base import Report
from gangd.config import Exporter, Select
from gangd.errors import GangError, InvalidArgument, NoLibvirt, NoSuchDomain, NotMarked, TimedOut
from gangd.model.affect import Affect
from gangd.model.domain import Domain, Mark
from gangd.model.event import Disconnected, DomainGone, DomainSeen
from gangd.model.mark_change import MarkChange
from gangd.model.readings import Reading, Readings
from gangd.model.snapshot import Snapshot
from gangd.model.state import State
from gangd.trace.kept import keep
from unit.test_daemon import DB, WEB, Bench, logged, marked


def test_set_changes_what_it_is_given(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The rest of the mark stays; a domain without one, and a policy nobody has, are refused."""
    caplog.set_level("INFO")
    bench = Bench(tmp_path, WEB, DB)

    async def test() -> None:
        await bench.answers.mark("web", MarkChange("balance", 300))
        assert (await bench.answers.change("web", MarkChange(None, 50))).mark == Mark("balance", 50)
        assert bench.host.plans[-1].gangs[0].weight == 50
        changed = await bench.answers.change("web", MarkChange("relaxed", None, Affect(live=True)))
        assert changed.mark == Mark("relaxed", 50)
        assert "domain 'web': mark changed to policy relaxed, weight 50" in caplog.messages
        assert bench.source.affected == [None, None, Affect(live=True)]
        with pytest.raises(NotMarked):
            await bench.answers.change("db", MarkChange(None, 50))
        with pytest.raises(InvalidArgument, match="magic"):
            await bench.answers.change("web", MarkChange("magic"))
        assert len(bench.source.affected) == 3

    bench.run(test)


def test_a_mark_for_the_next_start_changes_nothing_now(tmp_path: Path) -> None:
    """Nor does it end an undo."""
    bench = Bench(tmp_path, marked(WEB))

    async def test() -> None:
        await bench.until(lambda: bench.gangs == ["web"])
        await bench.answers.undo("web")
        await bench.answers.mark("web", MarkChange(None, None, Affect(config=True)))
        assert bench.gangs == []
        await bench.answers.mark("web", MarkChange(None, None, Affect()))
        assert bench.gangs == ["web"]
        await bench.answers.unmark("web", Affect(config=True))
        assert bench.gangs == ["web"]

    bench.run(test)


def test_a_guest_that_was_undone_is_left_alone(tmp_path: Path) -> None:
    """The mark stays and does nothing, whatever happens, until the guest is resumed; other guests go on."""
    bench = Bench(tmp_path, marked(WEB), marked(DB), interval=0.1)

    async def test() -> None:
        await bench.until(lambda: bench.gangs == ["web", "db"])
        done = await bench.answers.undo("web")
        assert (done.domains, done.settings, len(done.failures)) == ((marked(WEB),), 3, 1)
        assert bench.host.ended == [f"undo {WEB.uuid}"]
        assert bench.gangs == ["db"]
        bench.source.emit(DomainSeen(replace(marked(WEB), memory_kib=1)))
        before = len(bench.host.plans)
        await bench.until(lambda: len(bench.host.plans) > before + 2)
        assert bench.gangs == ["db"]
        assert bench.answers.snapshot().undone == {WEB.uuid}
        plan, _ = await bench.answers.preview("web")
        assert [gang.name for gang in plan.gangs] == ["web", "db"]
        assert [d.name for d in await bench.answers.resume("web")] == ["web"]
        assert bench.gangs == ["web", "db"]

    bench.run(test)


def test_a_guest_without_a_definition_stays_undone_when_it_is_started_again(tmp_path: Path) -> None:
    """libvirt forgets it in between, and its mark comes with the new definition."""
    bench = Bench(tmp_path, marked(WEB), marked(DB))

    async def test() -> None:
        await bench.until(lambda: bench.gangs == ["web", "db"])
        await bench.answers.undo("web")
        for event in (DomainGone(WEB.uuid), DomainSeen(replace(marked(WEB), id=7)), DomainSeen(marked(DB))):
            bench.source.emit(event)
        await bench.until(lambda: WEB.uuid in bench.answers.snapshot().state.domains)
        assert (bench.gangs, bench.answers.snapshot().undone) == (["db"], {WEB.uuid})
        await bench.answers.resume("web")
        await bench.until(lambda: sorted(bench.gangs) == ["db", "web"])

    bench.run(test)


def test_undo_of_everything(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """All that is marked is left alone; what is marked later is wanted. CPUs that came back are there."""
    caplog.set_level("INFO")
    bench = Bench(tmp_path, marked(WEB), DB)

    async def test() -> None:
        await bench.until(lambda: bench.gangs == ["web"])
        bench.source.topology = host(cores=4)
        assert [d.name for d in (await bench.answers.undo(None)).domains] == ["web"]
        assert bench.answers.snapshot().state.topology == host(cores=4)
        assert logged(caplog, "undone") == ["domain 'web' is left alone now"]
        assert (bench.host.ended, bench.gangs) == (["undo"], [])
        await bench.answers.mark("db", MarkChange())
        assert bench.gangs == ["db"]
        assert [d.name for d in await bench.answers.resume(None)] == ["web"]
        assert logged(caplog, "resumed") == ["domain 'web' is resumed"]
        assert bench.gangs == ["web", "db"]
        assert await bench.answers.resume(None) == ()

    bench.run(test)


def test_a_selected_guest_is_undone_too(tmp_path: Path) -> None:
    """Also when its mark is taken away meanwhile; a new one ends it. `off` leaves nothing to undo."""
    bench = Bench(tmp_path, WEB, marked(DB), guest("idle", 3, mark=Mark("off")), select=(Select(name="*"),))

    async def test() -> None:
        await bench.until(lambda: bench.gangs == ["web", "db"])
        assert [d.name for d in (await bench.answers.undo(None)).domains] == ["web", "db"]
        assert bench.gangs == []
        await bench.answers.unmark("db")
        assert bench.answers.snapshot().undone == {WEB.uuid, DB.uuid}
        bench.source.emit(DomainSeen(marked(WEB)))
        await bench.until(lambda: bench.gangs == ["web"])
        await bench.answers.mark("db", MarkChange("off"))
        assert (bench.gangs, bench.answers.snapshot().undone) == (["web"], frozenset())
        assert [d.name for d in (await bench.answers.undo("idle")).domains] == ["idle"]
        assert bench.answers.snapshot().undone == frozenset()

    bench.run(test)


def test_set_knows_profiles_and_keeps_the_tag(tmp_path: Path) -> None:
    bench = Bench(tmp_path, replace(WEB, mark=Mark(None, None, "batch")))

    async def test() -> None:
        await bench.until(lambda: bench.gangs == ["web"])
        changed = await bench.answers.change("web", MarkChange("latency"))
        assert changed.mark == Mark("latency", None, "batch")
        assert bench.host.plans[-1].gangs[0].weight == 400
        assert (await bench.answers.mark("web", MarkChange("off"))).mark == Mark("off", None, "batch")
        assert bench.gangs == []

    bench.run(test)


@pytest.mark.parametrize("by_hand", [False, True])
def test_a_new_mark_ends_an_undo(tmp_path: Path, by_hand: bool) -> None:
    """By gangctl, or taken away and made again by anybody."""
    bench = Bench(tmp_path, marked(WEB))

    async def test() -> None:
        await bench.until(lambda: bench.gangs == ["web"])
        await bench.answers.undo("web")
        assert bench.gangs == []
        if by_hand:
            bench.source.emit(DomainSeen(WEB))
            bench.source.emit(DomainSeen(marked(WEB)))
        else:
            await bench.answers.mark("web", MarkChange())
        await bench.until(lambda: bench.gangs == ["web"])

    bench.run(test)


def test_undo_without_libvirt(tmp_path: Path) -> None:
    """gangd puts back what it can, and does not want the rest from then on."""
    bench = Bench(tmp_path, marked(WEB))

    async def test() -> None:
        await bench.until(lambda: bench.gangs == ["web"])
        bench.source.emit(Disconnected("stopped"))
        await bench.answers.undo("web")
        assert (bench.host.ended, bench.gangs) == ([f"undo {WEB.uuid}"], [])
        with pytest.raises(NoLibvirt):
            await bench.answers.undo("nope")
        await bench.answers.resume("web")
        assert bench.gangs == ["web"]

    bench.run(test)


def test_no_domain_is_missing_before_they_were_listed(tmp_path: Path) -> None:
    """libvirt may hang over its first list: gangd then does not say that there is no such domain."""
    bench = Bench(tmp_path, WEB)

    async def test() -> None:
        following = bench.daemon._following
        following.state, following.resyncs = State(connected=True), 0
        with pytest.raises(TimedOut, match="has not listed its domains yet"):
            bench.answers.resolve("web")
        await bench.source.resync()
        assert bench.answers.resolve("web") == WEB
        with pytest.raises(NoSuchDomain):
            bench.answers.resolve("nope")

    bench.run(test)


def test_switching_smt_places_guests_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The host is read again and reconciled before the answer; also when it failed half way, and without
    libvirt."""
    caplog.set_level("INFO")
    bench = Bench(tmp_path, marked(WEB))

    async def test() -> None:
        await bench.until(lambda: bench.gangs == ["web"])
        before = len(bench.host.plans)
        assert (await bench.answers.smt(None)).control == "on"
        assert len(bench.host.plans) == before
        assert (await bench.answers.smt("on")).control == "on"
        assert (bench.host.ended, len(bench.host.plans)) == (["smt on"], before + 1)
        assert logged(caplog, "smt") == ["SMT: on"]
        with pytest.raises(GangError, match="cannot switch"):
            await bench.answers.smt("off")
        await bench.until(lambda: len(bench.host.plans) == before + 2)

        async def unreachable() -> None:
            raise NoLibvirt("stopped")

        bench.source.resync = unreachable  # type: ignore[method-assign]
        bench.source.emit(Disconnected("stopped"))
        await bench.until(lambda: len(bench.host.plans) == before + 3)
        assert (await bench.answers.smt("on")).control == "on"
        assert (bench.gangs, len(bench.host.plans)) == (["web"], before + 4)

    bench.run(test)


def test_the_page_has_as_many_series_of_vcpus_as_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loops, "FRESH_SECONDS", 0.0)
    bench = Bench(tmp_path, WEB)

    async def test() -> None:
        for series in (2000, 0):
            bench.daemon.reload(replace_config(bench.daemon.config, exporter=Exporter(vcpu_series=series)))
            assert ('vcpu="1"' in (await bench.answers.metrics(False))[1]) is (series > 0)

    bench.run(test)


def test_the_page_for_people_has_counters_read_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page has the picture that gangctl kept, too."""
    monkeypatch.setattr(loops, "FRESH_SECONDS", 0.0)
    monkeypatch.setattr(answers, "RUNTIME", tmp_path)
    bench = Bench(tmp_path, WEB)

    async def test() -> None:
        read: list[Snapshot] = []
        measured = bench.answers.measured

        async def noted() -> Snapshot:
            read.append(await measured())
            return read[-1]

        monkeypatch.setattr(bench.answers, "measured", noted)
        assert '<th scope="row">web</th>' in await bench.answers.overview() and len(read) == 1
        keep(tmp_path, "<svg/>", 1_800_000_000.0)
        assert "Recorded 2027-01-15" in await bench.answers.overview()

    bench.run(test)


def test_a_preview_waits_for_the_reconcile(tmp_path: Path) -> None:
    """Amid a reconcile, pins are neither as they were read nor as they will be."""
    bench = Bench(tmp_path, WEB)
    begun, go = asyncio.Event(), asyncio.Event()

    async def slowly(*_: object, **__: object) -> Report:
        begun.set()
        await go.wait()
        return Report()

    async def test() -> None:
        bench.host.reconcile = slowly  # type: ignore[method-assign]
        bench.source.emit(DomainSeen(marked(WEB)))
        await begun.wait()
        preview = asyncio.create_task(bench.answers.preview(None))
        await asyncio.sleep(0.05)
        assert not preview.done()
        go.set()
        plan, _ = await preview
        assert [gang.name for gang in plan.gangs] == ["web"]

    bench.run(test)


class Ordered(Bench):
    """A daemon of whose host and libvirt a test knows what was asked of them in which order."""

    def __init__(self, folder: Path, *domains: Domain, select: tuple[Select, ...] = ()) -> None:
        super().__init__(folder, *domains, select=select)
        self.asked: list[str] = []
        sample, set_mark = self.host.sample, self.source.set_mark

        async def read(guests: Iterable[Domain]) -> Any:
            self.asked.append("read")
            return await sample(guests)

        async def store(uuid: str, mark: Mark | None, affect: Affect | None = None) -> Domain:
            self.asked.append("mark")
            return await set_mark(uuid, mark, affect)

        self.host.sample, self.source.set_mark = read, store  # type: ignore[method-assign]

    def reading(self, name: str = "web") -> Reading | None:
        return self.answers.reading(self.answers.resolve(name))


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have gangd read whenever it is asked to."""
    monkeypatch.setattr(loops, "FRESH_SECONDS", 0.0)


@pytest.mark.usefixtures("fresh")
def test_readings_are_taken_before_a_mark_and_once_it_is_in_force(tmp_path: Path) -> None:
    """The time in which gangd acts, and may load the scheduler, is of neither. A mark that changes no policy
    leaves the reading as it is."""
    bench = Ordered(tmp_path, WEB)

    async def test() -> None:
        await bench.until(lambda: "read" in bench.asked)
        assert bench.reading() is None
        bench.asked.clear()
        await bench.answers.mark("web", MarkChange("relaxed"))
        assert bench.asked[:2] == ["read", "mark"]
        kept = bench.reading()
        assert kept is not None and (kept.before, kept.policy, kept.pid) == (None, "relaxed", WEB.pid)
        assert kept.began.run_seconds == 75.0 * bench.host.samples  # as counted by the fake host
        assert kept.stats.run_seconds < kept.began.run_seconds  # type: ignore[operator]
        assert bench.asked.index("mark") < len(bench.asked) - 1 and bench.asked[-1] == "read"
        assert kept.life_seconds is not None and kept.life_seconds > 0.0
        await bench.answers.mark("web", MarkChange("relaxed", 300))
        await bench.answers.change("web", MarkChange(None, 50))
        await bench.answers.change("web", MarkChange("strict", None, Affect(config=True)))
        assert bench.reading() is kept
        bench.asked.clear()
        await bench.answers.change("web", MarkChange("balance"))
        assert bench.asked[:2] == ["read", "mark"]
        changed = bench.reading()
        assert changed is not None and (changed.before, changed.policy) == ("relaxed", "balance")
        assert changed.stats.run_seconds > kept.stats.run_seconds  # type: ignore[operator]

    bench.run(test)


async def _unmarked(bench: Bench) -> None:
    await bench.answers.unmark("web")


async def _undone(bench: Bench) -> None:
    await bench.answers.undo(None)


async def _started_anew(bench: Bench) -> None:
    bench.source.emit(DomainSeen(replace(marked(WEB), id=9, pid=9000)))


async def _changed_by_somebody(bench: Bench) -> None:
    bench.source.emit(DomainSeen(replace(WEB, mark=Mark("balance"))))


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("end", [_unmarked, _undone, _started_anew, _changed_by_somebody])
def test_a_reading_is_forgotten(tmp_path: Path, end: Callable[[Bench], Awaitable[None]]) -> None:
    """The time since the mark ends with the mark, with the guest's process, and with another policy."""
    bench = Ordered(tmp_path, WEB)

    async def test() -> None:
        await bench.answers.mark("web", MarkChange("relaxed"))
        assert bench.reading() is not None
        await end(bench)
        assert bench.reading() is None

    bench.run(test)


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize(
    ("domain", "select", "change"),
    [
        (WEB, (), MarkChange("relaxed", None, Affect(config=True))),
        (guest("web"), (), MarkChange("relaxed")),
        (WEB, (Select(name="*", policy="relaxed"),), MarkChange("relaxed")),
        (marked(WEB), (), MarkChange("relaxed", 7)),
    ],
    ids=["next start", "off", "selected", "marked already"],
)
def test_no_reading_is_taken(
    tmp_path: Path, domain: Domain, select: tuple[Select, ...], change: MarkChange
) -> None:
    """The mark is not in force, or changes no policy."""
    bench = Ordered(tmp_path, domain, select=select)

    async def test() -> None:
        await bench.answers.mark("web", change)
        assert "mark" in bench.asked and bench.reading() is None

    bench.run(test)


@pytest.mark.usefixtures("fresh")
def test_a_mark_that_cannot_be_stored_leaves_no_reading(tmp_path: Path) -> None:
    """The one from before the mark that is in force stays."""
    bench = Ordered(tmp_path, WEB)

    async def test() -> None:
        await bench.answers.mark("web", MarkChange("relaxed"))
        kept = bench.reading()

        async def fails(uuid: str, mark: Mark | None, affect: Affect | None = None) -> Domain:
            raise NoLibvirt("libvirt closed the connection")

        bench.source.set_mark = fails  # type: ignore[method-assign]
        with pytest.raises(NoLibvirt):
            await bench.answers.mark("web", MarkChange("balance"))
        assert kept is not None and bench.reading() is kept

    bench.run(test)


def test_a_guest_that_ran_before_gangd_is_watched_since_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first counters of a guest serve the ratio of its exits; one that starts later begins with none."""
    monkeypatch.setattr("gangd.answers.AGAIN_SECONDS", 0.01)
    bench = Bench(tmp_path, WEB)

    async def test() -> None:
        await bench.until(lambda: bench.host.samples > 1)
        first = bench.host.samples
        for name, new in (("web", WEB), ("db", DB)):
            bench.source.domains[new.uuid] = new
            bench.source.emit(DomainSeen(new))
            await asyncio.sleep(loops.FRESH_SECONDS)
            await bench.answers.mark(name, MarkChange("relaxed"))
        kept = [bench.answers.reading(bench.answers.resolve(name)) for name in ("web", "db")]
        seen = [one.watched.cpu_seconds for one in kept if one]
        assert seen == [100.0 * first, 0.0]  # two vCPUs, each on a CPU for half of 100 s a sample

    bench.run(test)


def test_readings_are_those_of_guests_that_exist() -> None:
    """A guest that is gone takes its reading along as soon as another one is kept."""
    readings, web, db = Readings(), snapshot(WEB), snapshot(DB)
    readings.begin({}, {})
    readings.keep(WEB.uuid, reading(web, WEB), {WEB.uuid: WEB})
    assert readings.of(WEB) is not None
    readings.keep(DB.uuid, reading(db, DB), {DB.uuid: DB})
    assert (readings.of(WEB), readings.of(DB)) == (None, reading(db, DB))
