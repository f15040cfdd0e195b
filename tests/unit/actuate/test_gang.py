# SPDX-License-Identifier: Apache-2.0
"""The actuator `gang` with a backend that only remembers what it was told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gangd.actuate.backend import Backend, LoadFailed
from gangd.actuate.ejection import Ejection
from gangd.actuate.executor import Executor
from gangd.actuate.gang import Gangs
from gangd.actuate.gang_setting import CacheSetting, GangSetting
from gangd.actuate.journal import Journal
from gangd.bpf import abi
from gangd.errors import GangError, NoBackend
from gangd.model.domain import Mode
from gangd.model.plan import Cache, GangPlan, Placement, Plan
from gangd.model.refused import Refused

# Documented: docs/operations.md, Troubleshooting.
MAX_EJECTIONS, WINDOW_SECONDS, RETRY_SECONDS = 5, 600.0, 60.0
A, B = "aaaaaaaa-0000-0000-0000-000000000000", "bbbbbbbb-0000-0000-0000-000000000000"


class FakeScheduler:
    """A loaded scheduler. `stats` by gang number; `reason` is why it was ejected, and `kind`."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.reason: str | None = None
        self.kind = "stall"
        self.closed = False
        self.stats: dict[int, abi.GangStats] = {}
        self.refused: set[str] = set()  # modes
        self.limited: str | None = None
        self.gangs: dict[int, str] = {}  # by number: mode

    def close(self) -> None:
        self.closed = True

    def ejected(self) -> Ejection | None:
        return Ejection(self.kind, self.reason) if self.reason else None

    def set_cache(self, index: int, setting: CacheSetting) -> None:
        self.calls.append(("domain", index, setting.cpus, setting.turn_us))

    def set_gang(self, number: int, setting: GangSetting, columns: dict[int, int]) -> None:
        self.calls.append(("gang", number, setting.members, columns))
        self.gangs.pop(number, None)  # as gang.ko does, before it refuses
        if setting.mode in self.refused:
            raise GangError("no", f"failed to set up gang {number}")
        self.gangs[number] = setting.mode

    def limit(self, setting: GangSetting) -> str | None:
        return self.limited

    def drop_gang(self, number: int, setting: GangSetting) -> None:
        self.calls.append(("drop", number, setting.members))
        self.gangs.pop(number, None)

    def gang_stats(self, number: int) -> abi.GangStats:
        return self.stats.get(number, abi.GangStats())

    def counters(self) -> dict[str, int]:
        return {"turns": 7}

    def histograms(self) -> dict[str, list[int]]:
        return {"start_skew": [1, 2]}


class Bench:
    """An actuator, the schedulers it loaded, a clock, and an executor around it."""

    def __init__(self, folder: Path) -> None:
        self.loaded: list[FakeScheduler] = []
        self.now = 1000.0
        self.missing: str | None = None
        self.unsupported: dict[Mode, str] = {}
        backend = Backend("fake", lambda: self.missing, self._load, refuses=self.unsupported.get)
        self.gangs = Gangs(20_000, [backend], lambda: self.now)
        self.executor = Executor([self.gangs], Journal(folder / "journal"))

    def _load(self) -> Any:
        self.loaded.append(FakeScheduler())
        return self.loaded[-1]

    @property
    def last(self) -> FakeScheduler:
        return self.loaded[-1]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A kernel that lacks nothing."""
    return Bench(tmp_path)


def gang(uuid: str, *cpus: int, mode: Mode = Mode.RELAXED, weight: int = 100) -> GangPlan:
    places = tuple(Placement(vcpu, 100 + vcpu, cpu, "free") for vcpu, cpu in enumerate(cpus))
    return GangPlan(uuid, uuid[0], 99, mode, 0, places, "marked", weight)


def plan(*gangs: GangPlan, cpus: tuple[int, ...] = (4, 6)) -> Plan:
    return Plan((Cache(0, cpus, "one cache"),) if gangs else (), gangs)


def test_a_probe_that_cannot_look(bench: Bench) -> None:
    """A probe's failure is a reason like any other, and no end of gangd."""

    def blind() -> str | None:
        raise PermissionError(13, "Permission denied", "/lib/modules")

    gangs = Gangs(20_000, [Backend("fake", blind, bench._load, roams=True)])
    assert "cannot look whether it is usable" in str(gangs.probe()) and not gangs.roams


def test_a_gang_that_a_limit_came_to_is_dropped(bench: Bench) -> None:
    bench.executor.reconcile(plan(gang(A, 4, 6)))
    bench.last.limited, bench.last.refused = "cpu.max", {"relaxed"}
    assert len(bench.executor.reconcile(plan(gang(A, 4, 6))).refused) == 1
    assert (bench.gangs.mode(A), bench.last.gangs) == (None, {})


def test_loads_with_the_first_gang_and_unloads_with_the_last(bench: Bench) -> None:
    """A host without marks runs nothing of ours."""
    assert bench.executor.reconcile(plan()).writes == 0
    assert not bench.loaded and not bench.gangs.active
    assert bench.executor.reconcile(plan(gang(A, 4, 6))).missing == ()
    assert bench.gangs.active
    bench.executor.reconcile(plan())
    assert bench.last.closed and not bench.gangs.active
    assert bench.gangs.counters() == {}


def test_off_is_no_gang_and_loads_nothing(bench: Bench) -> None:
    """The scheduler goes with the last gang."""
    off = gang(A, 4, 6, mode=Mode.OFF)
    assert bench.executor.reconcile(plan(off)).writes == 0
    bench.executor.reconcile(plan(gang(A, 4, 6)))
    bench.executor.reconcile(plan(off))
    assert bench.last.closed


def test_orders_reach_the_scheduler(bench: Bench) -> None:
    """The domain comes before its gangs; columns are places in the domain's list of CPUs."""
    bench.executor.reconcile(plan(gang(A, 4, 6), gang(B, 6, 4)))
    columns = {4: 0, 6: 1}
    assert bench.last.calls == [
        ("domain", 0, (4, 6), 20_000),
        ("gang", 1, ((0, 100, 4), (1, 101, 6)), columns),
        ("gang", 2, ((0, 100, 6), (1, 101, 4)), columns),
    ]


def test_a_vcpu_without_a_thread_is_no_member(bench: Bench) -> None:
    """A vCPU plugged a moment ago is no member; a guest without a process is no gang, the others are."""
    whole, lone = gang(A, 4, 6), gang(B, 4, 6)
    plugged = replace(whole, placements=(whole.placements[0], replace(whole.placements[1], tid=None)))
    report = bench.executor.reconcile(plan(plugged, replace(lone, pid=None)))
    assert report.failures == () and bench.last.calls[1:] == [("gang", 1, ((0, 100, 4),), {4: 0, 6: 1})]
    bench.executor.reconcile(plan(whole, lone))
    assert bench.last.gangs == {1: "relaxed", 2: "relaxed"}


def test_a_second_pass_writes_nothing(bench: Bench) -> None:
    """A second pass leaves correct settings alone."""
    bench.executor.reconcile(plan(gang(A, 4, 6)))
    told = len(bench.last.calls)
    assert bench.executor.reconcile(plan(gang(A, 4, 6))).writes == 0
    assert len(bench.last.calls) == told


def test_a_change_keeps_the_number(bench: Bench) -> None:
    """A gang that is set again stays the same gang, and is never none meanwhile."""
    bench.executor.reconcile(plan(gang(A, 4, 6)))
    bench.executor.reconcile(plan(gang(A, 4, 6, weight=300)))
    assert [call[:2] for call in bench.last.calls[1:]] == [("gang", 1), ("gang", 1)]


def test_a_refused_change_leaves_the_gang_as_it_was(bench: Bench) -> None:
    """The gang keeps mode, number and counters; the change is refused by name, and tried again. Where the
    gang cannot be put back either there is no gang and nothing left of one."""
    bench.executor.reconcile(plan(gang(A, 4, 6)))
    bench.last.refused = {"strict"}
    change = plan(gang(A, 4, 6, mode=Mode.STRICT))
    for _ in range(2):
        report = bench.executor.reconcile(change)
        assert report.failures == ("cannot set up the gang of 'a': no",)
        assert report.refused == (Refused(A, "gang", "Failed", report.failures[0]),)
        assert (bench.gangs.mode(A), bench.last.gangs) == (Mode.RELAXED, {1: "relaxed"})
        entry = bench.executor.journal.entries["gang", f"{A}/gang"]
        assert (entry.prior, entry.written, entry.pending) == ("", bench.gangs.read(f"{A}/gang"), None)
    bench.last.refused = {"strict", "relaxed"}
    assert len(bench.executor.reconcile(change).refused) == 1
    assert (bench.gangs.mode(A), bench.gangs.stats(A), bench.last.gangs) == (None, None, {})
    assert ("gang", f"{A}/gang") not in bench.executor.journal.entries
    bench.last.refused = set()
    assert bench.executor.reconcile(change).refused == ()
    assert bench.last.gangs == {1: "strict"}


def test_a_refused_newcomer_leaves_nothing(bench: Bench) -> None:
    """Neither a number nor members; the others are gangs."""
    bench.executor.reconcile(plan(gang(B, 4, 6)))
    bench.last.refused = {"strict"}
    report = bench.executor.reconcile(plan(gang(B, 4, 6), gang(A, 4, 6, mode=Mode.STRICT)))
    assert [refused.uuid for refused in report.refused] == [A]
    assert bench.last.calls[-1][:2] == ("drop", 2) and bench.last.gangs == {1: "relaxed"}
    assert bench.gangs.stats(A) is None


def test_a_mode_that_a_backend_cannot_do_loads_nothing(bench: Bench) -> None:
    """A scheduler of the whole host for a guest that it refuses; a gang that is there stays in its domain."""
    bench.unsupported[Mode.STRICT] = "not here"
    strict = plan(gang(A, 4, 6, mode=Mode.STRICT))
    report = bench.executor.reconcile(strict)
    assert report.refused == (Refused(A, "gang", "NotSupported", "cannot set up the gang of 'a': not here"),)
    assert not bench.loaded and not bench.executor.journal.entries
    bench.executor.reconcile(plan(gang(A, 4, 6)))
    assert bench.executor.reconcile(strict).refused == report.refused
    assert bench.last.gangs == {1: "relaxed"} and bench.gangs.read("domain/0")
    assert bench.executor.reconcile(plan()).undone == 2 and not bench.gangs.active


def test_a_missing_backend_is_every_guests_refusal(bench: Bench) -> None:
    """Once for each of them, whatever else it could not do: a kernel without BTF cannot be asked."""
    bench.missing = "this kernel cannot"
    bench.unsupported[Mode.STRICT] = "not here"
    report = bench.executor.reconcile(plan(gang(A, 4, 6), gang(B, 4, 6, mode=Mode.STRICT)))
    assert "domain/0" in bench.gangs.wanted(plan(gang(B, 4, 6, mode=Mode.STRICT)))
    assert report.refused == tuple(Refused(uuid, "gang", "NoBackend", bench.missing) for uuid in (A, B))


def test_numbers_are_used_again(bench: Bench) -> None:
    """A gang that left makes its number free; the others keep theirs."""
    bench.executor.reconcile(plan(gang(A, 4, 6), gang(B, 4, 6)))
    bench.executor.reconcile(plan(gang(B, 4, 6)))
    bench.executor.reconcile(plan(gang(B, 4, 6), gang(A, 4, 6)))
    assert [call[:2] for call in bench.last.calls[3:]] == [("drop", 1), ("gang", 1)]


def test_counters_start_at_zero_for_every_gang(bench: Bench) -> None:
    """A number's former holder is not charged to the next; no gang, no counters."""
    old = abi.GangStats(turns=100, whole=90, ended_early=5, run_ns=10**9, apart_ns=1, skew_ns=10**6)
    bench.executor.reconcile(plan(gang(B, 4, 6)))
    bench.last.stats[2] = old
    bench.executor.reconcile(plan(gang(B, 4, 6), gang(A, 4, 6)))
    new = abi.GangStats(turns=110, whole=99, ended_early=6, run_ns=3 * 10**9, skew_ns=3 * 10**6)
    bench.last.stats[2] = new
    stats = bench.gangs.stats(A)
    assert stats is not None
    assert (stats.turns, stats.whole, stats.ended_early, stats.run_seconds) == (10, 9, 1, 2.0)
    assert stats.skew_seconds == pytest.approx(0.002)
    assert bench.gangs.stats("nobody") is None


def test_an_ejected_scheduler_comes_back(bench: Bench) -> None:
    """Every setting reads unset, the next pass loads it afresh, and the reason is kept."""
    bench.executor.reconcile(plan(gang(A, 4, 6)))
    bench.last.reason = "SysRq-S"
    report = bench.executor.reconcile(plan(gang(A, 4, 6)))
    assert report.failures == ()
    assert len(bench.loaded) == 2 and bench.loaded[0].closed and bench.gangs.active
    assert bench.gangs.last_ejection and bench.gangs.last_ejection.sentence == "SysRq-S"
    assert bench.gangs.ejections == {"stall": 1}
    assert [call[0] for call in bench.last.calls] == ["domain", "gang"]


def test_looking_is_enough_to_notice_an_ejection(bench: Bench) -> None:
    """A look notices an ejection too, between two passes."""
    bench.executor.reconcile(plan(gang(A, 4, 6)))
    bench.last.reason = "stall"
    bench.gangs.look()
    assert not bench.gangs.active
    assert bench.gangs.last_ejection and bench.gangs.last_ejection.sentence == "stall"


def test_gives_up_loudly_and_tries_again_later(bench: Bench) -> None:
    """Ejected too often, it stays out and says why; after the window it may come back."""
    bench.executor.reconcile(plan(gang(A, 4, 6)))
    for _ in range(MAX_EJECTIONS):
        bench.last.reason = "runnable task stall"
        report = bench.executor.reconcile(plan(gang(A, 4, 6)))
    assert not bench.gangs.active
    sentence = f"the kernel ejected the scheduler {MAX_EJECTIONS} times, last: runnable task stall"
    assert sentence in report.failures
    assert bench.executor.reconcile(plan(gang(A, 4, 6))).missing == (f"gang: {sentence}",)
    assert len(bench.loaded) == MAX_EJECTIONS
    bench.now += WINDOW_SECONDS - 1
    assert bench.executor.reconcile(plan(gang(A, 4, 6))).missing == (f"gang: {sentence}",)
    bench.now += 1
    assert bench.executor.reconcile(plan(gang(A, 4, 6))).missing == ()
    assert bench.gangs.active


def test_cpus_that_come_and_go_are_no_fault_of_its(bench: Bench) -> None:
    """The scheduler comes back however often CPUs do."""
    for _ in range(2 * MAX_EJECTIONS):
        bench.executor.reconcile(plan(gang(A, 4, 6)))
        bench.last.kind, bench.last.reason = "kernel", "cpu 3 going offline"
    assert bench.executor.reconcile(plan(gang(A, 4, 6))).missing == ()
    assert bench.gangs.active


def test_a_kernel_that_cannot_is_said_once(bench: Bench) -> None:
    """The probe's sentence is the failure, and nothing is loaded."""
    bench.missing = "this kernel cannot"
    report = bench.executor.reconcile(plan(gang(A, 4, 6)))
    assert (report.missing, report.failures) == (("gang: this kernel cannot",), ())
    assert not bench.loaded
    with pytest.raises(NoBackend, match="cannot"):
        bench.gangs.write("domain/0", '{"cores":[],"cpus":[0],"slot_us":1000}')


def test_a_refused_load_keeps_the_log(tmp_path: Path) -> None:
    """People get one sentence, --verbose the verifier's text."""

    def refuse() -> Any:
        raise LoadFailed("the kernel refused the scheduler: Permission denied", "R1 invalid mem access")

    gangs = Gangs(20_000, [Backend("fake", lambda: None, refuse)])
    report = Executor([gangs], Journal(tmp_path / "journal")).reconcile(plan(gang(A, 4, 6)))
    assert report.writes == 0
    assert all("verifier" not in line and "R1" not in line for line in report.failures)
    assert any("Permission denied" in line for line in report.failures)
    assert gangs.log == "R1 invalid mem access"


def test_a_refused_scheduler_is_not_verified_again_at_once(tmp_path: Path) -> None:
    """The verifier takes seconds: one try for all settings of a pass and for the passes of a minute."""
    tries, now = [], [0.0]

    def refuse() -> Any:
        tries.append(now[0])
        raise LoadFailed("the kernel refused the scheduler: Permission denied", "")

    gangs = Gangs(20_000, [Backend("fake", lambda: None, refuse)], lambda: now[0])
    executor = Executor([gangs], Journal(tmp_path / "journal"))
    first = executor.reconcile(plan(gang(A, 4, 6)))
    assert any("Permission denied" in line for line in first.failures)
    now[0] = RETRY_SECONDS - 1
    assert executor.reconcile(plan(gang(A, 4, 6))).missing == (
        "gang: the kernel refused the scheduler: Permission denied",
    )
    now[0] = RETRY_SECONDS
    assert gangs.probe() is None and "Permission denied" in (gangs.refusal or "")
    executor.reconcile(plan(gang(A, 4, 6)))
    assert tries == [0.0, RETRY_SECONDS]


def test_a_refusal_is_told_until_a_scheduler_is_loaded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also between two tries, when nothing seems to be missing."""

    def refuse(_self: Bench) -> Any:
        raise LoadFailed("the kernel refused the scheduler: no", "")

    with monkeypatch.context() as patch:
        patch.setattr(Bench, "_load", refuse)
        broken = Bench(Path(bench.executor.journal.path.parent))
        broken.executor.reconcile(plan(gang(A, 4, 6)))
    broken.now += RETRY_SECONDS
    assert broken.gangs.refusal == "the kernel refused the scheduler: no"
    assert bench.gangs.refusal is None


def test_gang_numbers_run_out_in_a_sentence(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gang too many is refused; the others are not hurt, and can be changed."""
    monkeypatch.setattr(abi, "MAX_GANGS", 2)
    report = bench.executor.reconcile(plan(gang(A, 4, 6), gang(B, 4, 6)))
    assert [line for line in report.failures if "all 1 gang numbers are taken" in line]
    assert bench.gangs.stats(A) is not None and bench.gangs.stats(B) is None
    report = bench.executor.reconcile(plan(gang(A, 4, 6, mode=Mode.STRICT), gang(B, 4, 6)))
    assert [refused.uuid for refused in report.refused] == [B] and bench.last.gangs == {1: "strict"}


def test_words(bench: Bench) -> None:
    """Plans and failures name the settings in these words."""
    wanted = bench.gangs.wanted(plan(gang(A, 4, 6)))
    shown = [bench.gangs.show(want.value) for want in wanted.values()]
    assert shown == ["CPUs 4,6, 20 ms at a time", "relaxed, 2 vCPUs, weight 100"]
    assert bench.gangs.show("") == "none"
    assert bench.gangs.describe("domain/3") == "cache 3"
    assert bench.gangs.describe(f"{A}/gang") == "the gang of 'a'"
    assert B in bench.gangs.describe(f"{B}/gang")


def test_read_returns_the_text_that_was_written(bench: Bench) -> None:
    """Key order and spaces of the text do not matter to the comparison."""
    bench.gangs.write("domain/0", json.dumps({"slot_us": 1000, "cpus": [0]}))
    assert bench.gangs.read("domain/0") == '{"cores":[],"cpus":[0],"slot_us":1000}'
    assert bench.gangs.read(f"{A}/gang") == ""


def test_the_first_backend_that_is_usable_is_taken() -> None:
    """The next one where the first lacks something; both reasons where none will do."""
    missing: dict[str, str | None] = {"one": "no one here", "two": None}
    gangs = Gangs(20_000, [Backend(name, lambda n=name: missing[n], FakeScheduler) for name in missing])  # type: ignore[misc]
    assert gangs.probe() is None and gangs.backend.name == "two"
    missing["one"] = None
    assert gangs.probe() is None and gangs.backend.name == "one"
    missing.update(one="no one here", two="nor two")
    assert gangs.probe() == "one: no one here; two: nor two"


def test_a_backend_that_was_refused_makes_way_for_the_next(tmp_path: Path) -> None:
    """A scheduler that the verifier refuses is passed over at the next pass."""

    def refuse() -> Any:
        raise LoadFailed("refused", "")

    gangs = Gangs(
        20_000,
        [Backend("one", lambda: None, refuse), Backend("two", lambda: None, FakeScheduler)],
        lambda: 0.0,
    )
    executor = Executor([gangs], Journal(tmp_path / "journal"))
    executor.reconcile(plan(gang(A, 4, 6)))
    assert executor.reconcile(plan(gang(A, 4, 6))).missing == ()
    assert gangs.active and gangs.backend.name == "two"


def test_gangs_roam_while_a_scheduler_chooses_cpus(tmp_path: Path) -> None:
    """Gangs roam if their scheduler is in use, or could be; without one they are pinned."""
    missing: list[str] = []
    backends = [Backend("one", lambda: " ".join(missing) or None, FakeScheduler, roams=True)]
    gangs = Gangs(20_000, [*backends, Backend("two", lambda: None, FakeScheduler)])
    assert gangs.roams
    missing.append("no one here")
    assert not gangs.roams
    executor = Executor([gangs], Journal(tmp_path / "journal"))
    executor.reconcile(plan(gang(A, 4, 6)))
    assert gangs.backend.name == "two" and not gangs.roams
