# SPDX-License-Identifier: Apache-2.0
"""Plans that clients ask for and that gangd does not carry out: shared, one at a time, and right."""

from __future__ import annotations

import asyncio
from collections.abc import Set
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("libvirt")

from fakes import guest
from gangd import loops
from gangd.actuate.base import Change, Report
from gangd.model.domain import Domain, Mark, Mode
from gangd.model.event import DomainSeen
from gangd.model.mark_change import MarkChange
from gangd.model.plan import Plan, Refusal
from gangd.model.state import State
from unit.test_daemon import DB, WEB, Bench, FakeHost, marked


class SlowHost(FakeHost):
    """Notes the previews and reconciles in their order; no preview ends before it may."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[str] = []
        self.go_on = asyncio.Event()

    async def changes(self, plan: Plan) -> list[Change]:
        self.done.append("preview")
        await self.go_on.wait()
        return await super().changes(plan)

    async def reconcile(self, plan: Plan, domains: dict[str, Domain], stale: Set[str] | None) -> Report:
        self.done.append("reconcile")
        return await super().reconcile(plan, domains, stale)


@pytest.mark.parametrize("refs", [(None,), (None, WEB.uuid, DB.uuid)])
def test_a_flood_of_previews_delays_a_reconcile_by_one(tmp_path: Path, refs: tuple[str | None, ...]) -> None:
    """Callers with the same reference share a preview; of all, one at a time has the host."""
    bench = Bench(tmp_path, WEB, DB, backend=SlowHost)

    async def test() -> None:
        done, go_on = bench.host.done, bench.host.go_on  # type: ignore[attr-defined]
        flood = [asyncio.create_task(bench.answers.preview(ref)) for ref in refs * 40]
        await bench.until(lambda: "preview" in done)
        marking = asyncio.create_task(bench.answers.mark("web", MarkChange()))
        await bench.until(bench.daemon._reconciling.changed.is_set)
        go_on.set()
        await asyncio.gather(marking, *flood)
        first = done.index("preview")
        assert done[first : first + 2] == ["preview", "reconcile"]
        assert done.count("preview") == len(refs)

    bench.run(test)


def test_a_preview_that_has_begun_is_not_shared(tmp_path: Path) -> None:
    """A preview that has begun may not know what a caller did before. A caller that goes stops no preview."""
    bench = Bench(tmp_path, WEB, backend=SlowHost)

    async def test() -> None:
        done, go_on = bench.host.done, bench.host.go_on  # type: ignore[attr-defined]
        first = asyncio.create_task(bench.answers.preview(None))
        await bench.until(lambda: "preview" in done)
        bench.source.emit(DomainSeen(marked(WEB)))
        goes, stays = (asyncio.create_task(bench.answers.preview(None)) for _ in range(2))
        await asyncio.sleep(0)
        goes.cancel()
        go_on.set()
        assert [(await one)[0].gangs == () for one in (first, stays)] == [True, False]

    bench.run(test)


def test_advice_is_the_plan_if_each_were_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake guests run apart for a fifth of their time: a mark would make gangs of them, and none is made.
    A guest that was undone is left alone."""
    monkeypatch.setattr("gang_policies.adaptive.FIRST", 0.1)
    monkeypatch.setattr("gang_policies.adaptive.AGAIN", 0.1)
    monkeypatch.setattr("gang_policies.adaptive.WINDOW", 0.1)
    one = guest("one", 9, 1)
    bench = Bench(tmp_path, WEB, replace(DB, mark=Mark("adaptive")), one, guest("left", 8, mark=Mark("off")))
    bench.host.backend = replace(bench.host.backend, fair=True)

    async def test() -> None:
        await bench.until(lambda: bool(bench.host.plans[-1].gangs) and bench.host.samples > 3)
        await bench.until(lambda: bench.host.plans[-1].gangs[0].mode is Mode.RELAXED)
        plans = len(bench.host.plans)
        advice = await bench.answers.advise(None)
        names = {d.uuid: d.name for d in bench.answers.snapshot().state.domains.values()}
        said = {names[uuid]: getattr(found, "mode", found.reason) for uuid, found in advice.planned.items()}
        assert said == {
            "web": Mode.RELAXED,
            "db": Mode.RELAXED,
            "left": Mode.RELAXED,
            "one": "a guest with one vCPU has no siblings to run with",
        }
        assert (advice.unread, advice.evidence[WEB.uuid].apart_ratio) == (set(), pytest.approx(0.2))
        assert (len(bench.host.plans), bench.gangs) == (plans, ["db"])
        await bench.answers.undo("db")
        assert DB.uuid not in (await bench.answers.advise(None)).planned

    bench.run(test)


def test_a_flood_of_advice_makes_one_plan_a_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody may ask: callers with the same question share its plan, and one guest is planned alone."""
    bench = Bench(tmp_path, WEB, DB)
    real, asked = loops.Reconciling.planned, []

    def counting(self: loops.Reconciling, state: State, undone: Set[str]) -> Plan:
        asked.append({domain.name for domain in state.domains.values() if domain.mark})
        return real(self, state, undone)

    async def test() -> None:
        monkeypatch.setattr(loops.Reconciling, "planned", counting)
        found = await asyncio.gather(*(bench.answers.advise(ref) for ref in (None, "web") * 40))
        assert asked == [{"web", "db"}, {"web"}]
        assert {frozenset(one.planned) for one in found} == {
            frozenset((WEB.uuid, DB.uuid)),
            frozenset((WEB.uuid,)),
        }

    bench.run(test)


def test_advice_without_readings_says_so(tmp_path: Path) -> None:
    """A single reading is no evidence yet."""
    bench = Bench(tmp_path, WEB)

    async def test() -> None:
        assert (await bench.answers.advise(None)).unread == {WEB.uuid}

    bench.run(test)


@pytest.mark.parametrize("room", [1, 0])
def test_a_guest_without_a_place_beside_all_others_is_planned_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    """A mark of its own is the question. A host without any room refuses it all the same."""
    bench = Bench(tmp_path, WEB, DB)
    real = loops.Reconciling.planned

    def crowded(self: loops.Reconciling, state: State, undone: Set[str]) -> Plan:
        plan = real(self, state, undone)
        late = plan.gangs[room:]
        return replace(
            plan,
            gangs=plan.gangs[:room],
            refused=tuple(Refusal(gang.uuid, gang.name, "no place") for gang in late),
        )

    async def test() -> None:
        monkeypatch.setattr(loops.Reconciling, "planned", crowded)
        planned = (await bench.answers.advise(None)).planned
        assert planned.keys() == {WEB.uuid, DB.uuid}
        assert [isinstance(found, Refusal) for found in planned.values()] == [not room, not room]

    bench.run(test)
