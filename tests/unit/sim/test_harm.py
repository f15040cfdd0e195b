# SPDX-License-Identifier: Apache-2.0
"""`make bench-harm`: verdicts, the one list, the exit status, and rows of every kind for real."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gangsim import bars, finding_rows, harm, harm_list, harm_rows, harm_table, host_rows
from gangsim.engine import HELPER, Engine
from gangsim.errors import Ejected, ScenarioError
from gangsim.found import bar, measured
from gangsim.harm_list import Group
from gangsim.harm_rows import Row
from gangsim.scenario import Guest, Host, Scenario, Task

SCENARIO = Scenario("s", Host(2, 1, 2), (Guest("spin", 2),), seconds=1)
VALUE: Any = attrgetter("value")
ALL = (*harm_rows.standard(), *finding_rows.standard(), *host_rows.standard())
ROWS = {one.name: one for one in ALL}
MODULES = {"rows": harm_rows, "findings": finding_rows, "hosts": host_rows}
SIZES = {name: len(module.standard()) for name, module in MODULES.items()}
# one of each kind, and those that cost most to get right
KEPT = (
    "barrier: 1 busy of 8 beside 8 of 8, rounds/s",
    "spin: 4 busy of 4 beside 1 of 4, CPUs of its slowest vCPU",
    "a gang beside 100 hogs of nice 19, CPUs of its slowest vCPU",
    "cpu.max 25 %: group limited, CPUs",
    "cpu.max 25 %: group free, CPUs",
    "a hog beside a guest of 8 vCPUs, CPUs",
    "four bound hogs beside two guests of 8, CPUs",
    "short wakeups, 1,000/s, a marked guest busy, done/s",
    "an old hog beside a fork chain, longest wait ms",
    "sleep: woken beside 8 busy gangs, p99 us",
    "a guest of 96 vCPUs on two caches of 64 CPUs, rounds/s",
    "bound hogs 1 1 1 2, a late daemon on the last CPU, done/s",
    "a daemon bound to one of 8 CPUs beside two gangs of 8, done/s",
    "two busy kernel threads on one CPU, a daemon there, done/s",
    "64 daemons of 12.5 % beside two gangs, gangs' CPUs",
    "three guests of 8 on two caches of 8, least CPUs",
    "a bound hog beside two guests of 2, each CPU a cache, CPUs",
    "16 hogs limited to one cache of two beside a guest, CPUs",
    "4 gangs of 8 limited to one cache of two, rounds/s",
    "3 gangs of 4 limited to 6 CPUs of 8, least CPUs",
    "2 gangs of 4 on 6 CPUs, 2 reserved, rounds/s",
    "4 gangs of 8 on 6 and 8 CPUs, least CPUs",
    "8 hogs of nice 19 with two of -20 in a heavy group, CPUs",
    "weight 100 beside a one-vCPU 10000 in a slice, CPUs",
    "8 chains of 0.3 ms beside two gangs, done/s",
    "16 hogs after 10 s beside guests of 2 and 6 on 8 CPUs, CPUs",
    "8 hogs after 300 s, guests of weight 400 and 100, longest wait ms",
    "a daemon after 20 s on the one CPU of 4 that has two bound hogs, done/s",
    "two gangs of 4 beside 32 daemons of 12.5 %, CPUs",
    "a build of 8 jobs of 3 ms in turn beside two gangs of 8, CPUs",
    "requests of 5 ms, 45 ms apart, beside 8 gangs of 4, done/s",
    "8 hogs of nice 19 with two of -20 in system.slice, CPUs",
    "a guest of 4, weight 100, in the slice of one of 1 of 10000, CPUs",
    "three guests of 8, 6 at barriers, 2 with timer ticks, rounds/s",
    "4 vhost threads, 5,000/s, beside two gangs of 8, the gangs' rounds/s",
    "6 hogs on the middle 6 of 12 CPUs, 2 such sets beside, a gang of 12, CPUs",
    "a daemon on a CPU of hogs of weight 1 beside a gang of weight 1000, 4 CPUs, done/s",
    "a guest of 2 busy among 16 of 8 vCPUs of 10 % on 8 CPUs, CPUs",
    "400 hogs of nice 15, 12 plain ones, a gang on 8 CPUs, light CPUs",
    "4 of 30 us/ms beside 64 hogs in cpu.idle and a gang of 4, p99 us",
    "a vCPU that naps 0.1 ms in 0.5 beside three gangs of 4, CPUs",
    "4 vhost threads, 5,000/s, beside two gangs of 8, done/s",
    "1 I/O thread of 100/900 us in a guest of 4 beside 1 of 3, 4 CPUs, done/s",
    "4 I/O threads of 40/160 us in a guest of 4 beside 1 of 4, 4 CPUs, both's CPUs",
    "4 I/O threads of 10/40 us in a guest of 4 beside 7 of 4, 16 CPUs, p99 us",
)
KEYS = ["group", "name", "default", "gangs", "ratio", "wanted", "bar", "verdict", "seed", "kind"]


def fixed(default: Any, gangs: Any) -> Any:
    """Instead of the engine: what a run's figure is, by scheduler; an exception is raised."""

    def run(scenario: Scenario, scheduler: str, trace: tuple[int, int]) -> Any:
        value = {"default": default, "gang": gangs}[scheduler]
        if isinstance(value, Exception):
            raise value
        return SimpleNamespace(value=value[scenario.seed - 1] if isinstance(value, list) else value)

    return run


def row(**other: Any) -> Row:
    """Return a row that reads what `fixed` gives."""
    return replace(Row("a row, CPUs", SCENARIO, VALUE, 0.95, seeds=1), **other)


def only(name: str) -> Row:
    (found,) = [one for one in harm_rows.standard() if name in one.name]
    return replace(found, seeds=1)


@pytest.mark.parametrize(
    ("bound", "wanted", "default", "gangs", "verdict"),
    [
        ("least", 0.95, 1.0, 0.95, "kept"),
        ("least", 0.95, 1.0, 0.94, "missed"),
        ("least", 0.95, 1.0, 9.0, "kept"),
        ("least", 0.95, 0.0, 0.0, "kept"),
        ("least", 0.95, 1.0, 0.0, "missed"),
        ("most", 1.5, 2.0, 3.0, "kept"),
        ("most", 1.5, 2.0, 3.1, "missed"),
        ("most", 1.5, 2.0, 0.0, "kept"),
        ("most", 1.5, 0.0, 0.1, "missed"),
        ("within", 0.95, 1.0, 0.95, "kept"),
        ("within", 0.95, 1.0, 1.05, "kept"),
        ("within", 0.95, 1.0, 0.94, "missed"),
        ("within", 0.95, 1.0, 1.06, "missed"),
        ("within", 0.95, 0.0, 0.1, "missed"),
        ("least", 0.95, None, 1.0, "unknown"),
        ("most", 1.5, 1.0, None, "unknown"),
    ],
)
def test_verdicts(bound: Any, wanted: float, default: Any, gangs: Any, verdict: str) -> None:
    """On each side of the bound; of latencies less is better, of shares more is as wrong as less."""
    assert bars.judge(default, gangs, wanted, bound) == verdict


@pytest.mark.parametrize(
    ("gangs", "most", "verdict"), [(2.0, 2.0, "kept"), (2.1, 2.0, "missed"), (2.1, None, "kept")]
)
def test_slack_bounds_what_is_at_least_so_much(gangs: float, most: float | None, verdict: str) -> None:
    """More of a share than that is missing from another."""
    assert bars.judge(1.0, gangs, 0.95, "least", most) == verdict


@pytest.mark.parametrize(
    ("parts", "default", "gangs", "ratio", "verdict"),
    [
        ({"fair": 2.0}, 1.0, 0.95, 0.95, "kept"),  # default's figure is the lesser
        ({"fair": 2.0}, 4.0, 1.9, 0.95, "kept"),  # the ideal is
        ({"fair": 2.0}, 4.0, 1.8, 0.9, "missed"),
        ({"fair": 2.0}, None, 1.8, None, "unknown"),
        ({"fair": 2.0, "slack": 1.15}, 1.0, 2.3, 2.3, "kept"),  # of the greater
        ({"fair": 2.0, "slack": 1.15}, 1.0, 2.4, 2.4, "missed"),
        ({"fair": 2.0, "slack": 1.15}, 4.0, 4.6, 2.3, "kept"),
        ({"ideal": 2.0, "slack": 1.5}, 1.0, 3.1, 1.55, "missed"),
        ({"ideal": 2.0}, 1.0, 1.1, 0.55, "as default"),  # default misses it, too, and gangs are no worse
        ({"ideal": 2.0}, 1.0, 0.9, 0.45, "missed"),
        ({"ideal": 2.0}, 1.9, 1.85, 0.925, "missed"),  # default keeps it
        ({"ideal": 2.0, "bound": "most", "wanted": 1.2}, 4.0, 4.4, 2.2, "as default"),
        ({"bound": "most", "wanted": 1.2, "floor": 20.0}, 2.0, 24.0, 1.2, "kept"),
        ({"bound": "most", "wanted": 1.2, "floor": 20.0}, 2.0, 25.0, 1.25, "missed"),
        ({"bound": "most", "wanted": 1.2, "floor": 20.0}, 40.0, 48.0, 1.2, "kept"),
    ],
)
def test_rows_have_yardsticks(parts: Any, default: Any, gangs: float, ratio: Any, verdict: str) -> None:
    """The lesser of default's figure and the ideal, a floor, and a bound from above."""
    found = measured(row(**parts), fixed(default, gangs))
    assert (found.ratio, found.verdict) == (ratio and pytest.approx(ratio), verdict)


@pytest.mark.parametrize(
    ("parts", "shown"),
    [
        ({"ideal": 2.0}, ">= 0.95 of 2"),
        ({"fair": 2.0, "slack": 1.15}, ">= 0.95 of 2 or default, <= 1.15"),
        ({"bound": "most", "floor": 20.0}, "<= 0.95, below 20 alike"),
    ],
)
def test_the_table_shows_a_row_s_yardstick(parts: Any, shown: str) -> None:
    """A row's yardstick is its ideal, its floor and its slack."""
    assert bar(row(**parts)) == shown


def test_the_ratio_is_that_of_the_medians() -> None:
    """Each scheduler's own, over the same seeds."""
    found = measured(row(seeds=3), fixed([1.0, 8.0, 2.0], [1.0, 1.0, 7.0]))
    assert (found.default, found.gangs, found.ratio, found.verdict) == (2.0, 1.0, 0.5, "missed")


def test_an_unknown_figure_is_none() -> None:
    """A seed without a figure makes the verdict unknown; a default of 0 has no ratio."""
    found = measured(row(seeds=2), fixed(1.0, [1.0, None]))
    assert (found.default, found.gangs, found.ratio, found.verdict) == (1.0, None, None, "unknown")
    assert measured(row(), fixed(0.0, 1.0)).ratio is None


def test_ejected_and_cannot_are_misses_with_a_sentence() -> None:
    """The figure of the other scheduler is kept."""
    ejected = measured(row(), fixed(1.0, Ejected("it stalled")))
    assert (ejected.default, ejected.gangs, ejected.verdict) == (1.0, None, "ejected: it stalled")
    cannot = measured(row(), fixed(ScenarioError("too wide"), 1.0))
    assert (cannot.default, cannot.gangs, cannot.verdict) == (None, None, "cannot: too wide")
    assert not ejected.harmless and not cannot.harmless


def group(*rows: Row) -> Group:
    """Return rows as a group of the list."""
    return Group("rows", "of a test", [(one.name, partial(harm_list.of_row, one, 1)) for one in rows])


@pytest.mark.parametrize(
    ("gangs", "code"),
    [([1.0], 0), ([1.0, 1.0], 0), ([1.0, 0.5], 1), ([Ejected("out: late")], 1), ([None], 1)],
)
def test_one_miss_is_enough_to_fail(tmp_path: Path, gangs: list[Any], code: int, capsys: Any) -> None:
    """Exit code, table on stdout, progress on stderr, JSON in a folder that was not there."""
    out = tmp_path / "bench/harm.json"
    given = iter(gangs)

    def run(scenario: Scenario, scheduler: str, trace: tuple[int, int]) -> Any:
        value = next(given) if scheduler == "gang" else 1.0
        return fixed(value, value)(scenario, scheduler, trace)

    assert harm.report([group(*[row()] * len(gangs)), group()], run, out) == code
    written = json.loads(out.read_text())["rows"]
    assert [list(one) for one in written] == [KEYS] * len(gangs)
    assert (written[-1]["verdict"] == "kept") is not bool(code)
    said = capsys.readouterr()
    counts = f"{code} of {len(gangs)} rows missed, 0 as default"
    assert said.out.splitlines()[-2:] == [f"rows: {counts}", f"in all: {counts}"]
    assert len(said.err.splitlines()) == len(gangs)


def test_a_row_that_default_misses_as_well_decides_nothing(capsys: Any) -> None:
    """The summary counts such a row by itself."""
    assert harm.report([group(row(ideal=2.0))], fixed(1.0, 1.0)) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "in all: 0 of 1 rows missed, 1 as default"


def test_the_table_is_aligned_and_says_which_bound() -> None:
    """Groups have headings; a sentence is below the table, where it moves no column."""
    first = [measured(one, fixed(2.0, 2.0)) for one in (row(), row(name="b", wanted=1.5, bound="most"))]
    second = [measured(row(bound="within"), fixed(1.0, Ejected("a long sentence")))]
    said = harm_table.lines([(group(), first), (Group("more", "of a test", []), second)])
    assert len({len(line) for line in said[:7]}) == 1
    assert said[2].split() == ["rows:", "of", "a", "test"] and said[5].startswith("more: of a test")
    assert [said[at].split()[-2] for at in (3, 4, 6)] == ["0.95", "1.50", "0.95..1.05"]
    assert ">= 0.95" in said[3] and "<= 1.50" in said[4] and said[6].endswith(" ejected")
    assert said[8:10] == ["a row, CPUs: ejected: a long sentence", "rows: 0 of 2 rows missed, 0 as default"]
    assert said[10].startswith("more: 1 of 1") and said[11].startswith("in all: 1 of 3")


def test_rows_have_names_of_their_own() -> None:
    """Rows differ in name; latencies, waits and shares that are a limit alone are bounded from above."""
    assert len(ROWS) == len(ALL) > 200
    latencies = (" p50 us", " p99 us", " longest wait ms")
    for one in (*harm_rows.standard(), *host_rows.standard()):
        assert (one.bound == "most") == one.name.endswith(latencies) or one.name.startswith("300 guests")


def test_rows_with_a_scenario_in_common_follow_each_other() -> None:
    """Their runs are kept only for a while, and a scenario's name is its own."""
    scenarios = [one.scenario for one in host_rows.standard()]
    blocks = [one for at, one in enumerate(scenarios) if not at or scenarios[at - 1] != one]
    assert len({one.name for one in scenarios}) == len(blocks) == len(set(blocks))


def test_no_row_is_no_success(capsys: Any) -> None:
    """A name that is misspelt."""
    assert harm.main(["--only", "no such row"]) == 2
    assert "no row has 'no such row'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "groups"),
    [
        ((), SIZES | {"random": 20, "masked": 20}),
        (("--only", "findings"), {"findings": SIZES["findings"]}),
        (("--only", "a hog beside a guest of 4 vCPUs"), {"rows": 1}),
        (("--random", "3", "--masked", "0", "--only", "random"), {"random": 3}),
        (("--random-seed", "7"), {"random": 1}),
        (("--masked-seed", "7"), {"masked": 1}),
    ],
)
def test_one_list_has_all_rows_and_options_select(
    monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], groups: dict[str, int]
) -> None:
    """By group, by word and by the seed of one host."""
    asked: dict[str, int] = {}

    def report(chosen: list[Group], *_: object) -> int:
        asked.update({one.name: len(one.entries) for one in chosen if one.entries})
        return 0

    monkeypatch.setattr(harm, "Engine", lambda *_: SimpleNamespace(run=print))
    monkeypatch.setattr(harm, "report", report)
    assert harm.main(options) == 0
    assert asked == groups


def test_default_has_a_figure_in_every_row_that_can_be(engine: Engine) -> None:
    """None that is 0, beside which anything would be kept. Two seconds are enough, but for small weights."""
    for one in harm_rows.standard():
        seconds = min(one.scenario.seconds, 60 if "weight" in one.name else 2)
        run = engine.run(replace(one.scenario, seconds=seconds), "default", one.trace)
        figure = one.figure(run)
        assert figure is not None and figure > 0, one.name


def test_hosts_of_ordinary_life_can_be_simulated(engine: Engine) -> None:
    """Each for half a second, under both schedulers; all have a figure."""
    for one in host_rows.standard():
        scenario = replace(one.scenario, seconds=0.5)
        for scheduler in ("default", "gang"):
            assert one.figure(engine.run(scenario, scheduler)) is not None, one.name


def test_rows_for_real(engine: Engine) -> None:
    """A gang beside as many hogs as CPUs keeps its half of the host; three hogs share two CPUs."""
    found = measured(only("4 hogs of nice 19"), engine.run)
    assert found.default == pytest.approx(0.5, rel=0.01) and found.verdict == "kept"
    hogs = measured(only("three hogs"), engine.run)
    assert hogs.default and hogs.gangs and 0.4 < hogs.default < 0.7


@pytest.mark.parametrize("name", KEPT)
def test_no_guest_or_task_is_harmed(engine: Engine, name: str) -> None:
    """The row keeps its bar against the default scheduler, or against the ideal."""
    found = measured(replace(ROWS[name], seeds=1), engine.run)
    assert found.verdict == "kept", found


UNMARKED = (
    "barrier: two unmarked guests beside two marked, rounds/s",
    "barrier: two unmarked guests beside a marked one asleep, rounds/s",
    "ipi: two unmarked guests beside a marked one asleep and a hog, rounds/s",
    "ipi: the hog beside them, CPUs",
)


@pytest.fixture(scope="module")
def helped(folder: Path) -> Engine:
    """The simulator, its scheduler told to help unmarked guests."""
    return Engine(folder, HELPER, None, "-DSHIM_HELP")


@pytest.mark.parametrize("name", UNMARKED)
def test_unmarked_guests_that_yield_are_helped(helped: Engine, name: str) -> None:
    """They have what the default scheduler gives them, and nobody beside them pays for it."""
    found = measured(replace(ROWS[name], seeds=1), helped.run)
    assert found.verdict == "kept", found


def test_a_core_counts_once(engine: Engine) -> None:
    """Two threads of it are one; half the time is half a core."""
    task = Task("cycle", work_us=1000, sleep_us=1000)
    scenario = Scenario("cores", Host(4, 2, 4), (), 2, tasks=(replace(task, cpus=(2,)),))
    read, window = harm_rows.cores(2), harm_rows.SHOWN
    assert read(engine.run(scenario, "default", window)) == pytest.approx(0.5, rel=0.02)
    hogs = (Task(cpus=(0,)), Task(cpus=(1,)))
    both = engine.run(replace(scenario, tasks=hogs), "default", window)
    assert read(both) == pytest.approx(1, rel=0.01)
