# SPDX-License-Identifier: Apache-2.0
"""The demonstration's tables, its verdicts and its exit status."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from bench.demo import report, table
from bench.demo.phases import PHASES, Lost, Phase, Run
from lab.observe.figures import Figures
from lab.observe.hostaccount import Difference, compare
from lab.observe.service import Call, Cost
from lab.observe.timeline import Stretch

GUESTS = [f"gangd-demo-{i}" for i in range(4)]
STATUS = {
    "kernel": "6.18",
    "version": "0.1",
    "backend": {"name": "sched_ext", "active": True, "reason": None},
    "probes": {"name": "probes", "active": True, "reason": None},
    "own": {"pid": 77},
    "failures": [],
}
COST = Cost(20.0, 0.004, 66 << 20)
EXTRA = {"settings": {"repeats": 3, "seconds": 2.0, "virtual": True, "help_lab": []}}
PLACES = {name: [[0], [1]] for name in GUESTS}
ANYWHERE = {name: [[0, 1], [0, 1]] for name in GUESTS}


def phase(
    load: str, throughput: float, corun: float, cpus: dict[str, list[list[int]]] | None = None
) -> Phase:
    one = Figures(throughput / 4, 250.0, 12.5, corun, 1.5, 1234.0)
    both = Figures(throughput, 1000.0, 50.0, corun, 6.0, 4936.0)
    found = Phase(measured=True, cpus=cpus or {}, timeline=[Stretch(0, 0, 30_000, 1, 0)])
    found.repeats = [{**dict.fromkeys(GUESTS, one), load: both} for _ in range(3)]
    return found


def run(
    load: str = "barrier",
    ple: bool = False,
    gang: float = 500_000,
    corun: float = 0.97,
    pinned: float = 150_000,
) -> Run:
    phases = {
        "default": phase(load, 100_000, 0.11, ANYWHERE),
        "pinned": phase(load, pinned, 0.2, PLACES),
        "gang": phase(load, gang, corun, ANYWHERE),
        "after": phase(load, 100_000, 0.12),
    }
    calls = [Call(("mark", "gangd-demo-0", "--policy", "balance"), 9.0, 1.0, "")]
    calls += [Call(("set", f"g{n}", "--policy", "adaptive"), 1.0 + n, 1.0, "") for n in (0, 1)]
    return Run(
        {load: 4}, ple, dict.fromkeys(GUESTS, load), {}, phases, calls, [STATUS, STATUS], None, 24, [], 60
    )


def made(*runs: Run, failure: str | None = None, trouble: str | None = None, cost: Cost | None = COST,
         ejections: float | None = 0.0) -> dict[str, Any]:  # fmt: skip
    return report.document(list(runs), cost, ejections, failure, trouble, EXTRA)


def check(result: dict[str, Any], words: str) -> dict[str, Any]:
    found: dict[str, Any] = next(c for c in result["summary"] if words in c["name"])
    return found


def test_all_good() -> None:
    result = made(run(ple=True), run())
    assert result["exit_status"] == 0
    assert {c["verdict"] for c in result["summary"]} == {"ok"}
    assert json.loads(json.dumps(result)) == result
    assert (result["kernel"], result["backend"]) == ("6.18", "sched_ext")
    assert result["runs"][0]["loads"] == dict.fromkeys(GUESTS, "barrier")
    assert report.exit_status(result, strict=True) == 0


def test_a_missed_figure_is_said_and_fails_only_when_strict() -> None:
    result = made(run(gang=170_000, corun=0.88))
    assert result["exit_status"] == 0
    assert report.exit_status(result, strict=True) == 1
    assert check(result, "gang / default")["reached"] == "1.70x"
    assert check(result, "gang / pinned")["verdict"] == "ok"
    text = "\n".join(report.lines(result))
    assert text.count("missed") == 2
    assert "FAILED" not in text


def test_the_gain_of_the_pins_is_shown_beside_the_gangs() -> None:
    result = made(run(ple=True, gang=150_000, pinned=200_000))
    assert check(result, "gang / default")["verdict"] == "ok"
    assert check(result, "gang / pinned") == {
        "view": "barrier/on", "name": "throughput gang / pinned",
        "wanted": ">= 1x", "reached": "0.75x", "verdict": "missed", "required": False,
    }  # fmt: skip


def not_restored() -> Run:
    found = run()
    found.differences = [Difference("gangd-demo-0: pin of vCPU 0", "0,1", "0")]
    return found


def lost(phase: str, load: str = "barrier") -> Run:
    found = run(load)
    found.lost = Lost(phase, "gangd-demo-2 runs but counts no more")
    for name in PHASES[PHASES.index(phase) :]:
        found.phases.pop(name)
    if phase != "after":
        found.differences = None
    return found


FAILS: list[Callable[[], Run]] = [
    not_restored,
    lambda: run(corun=0.79),
    lambda: run(gang=90_000),
    lambda: run("linux", gang=90_000),
    lambda: lost("gang"),
    lambda: lost("after"),
]


@pytest.mark.parametrize("bad", FAILS)
def test_a_bad_run_fails_the_demo(bad: Callable[[], Run]) -> None:
    result = made(run(ple=True), bad())
    assert result["exit_status"] == 1
    assert "FAILED" in "\n".join(report.lines(result))


def disturbed() -> Run:
    found = run()
    found.phases["gang"].measured = False
    return found


def half_measured() -> Run:
    found = run()
    del found.phases["after"]
    found.differences = None
    return found


@pytest.mark.parametrize(
    "vague", [disturbed, half_measured, lambda: lost("default"), lambda: Run({"linux": 2}, True)]
)
def test_a_run_without_the_required_figures_has_no_verdict(vague: Callable[[], Run]) -> None:
    """A required figure was not measured, and nothing else failed."""
    result = made(run(ple=True), vague())
    assert result["exit_status"] == 69
    text = "\n".join(report.lines(result))
    assert "not measured" in text
    assert "FAILED" not in text
    assert made(not_restored(), vague())["exit_status"] == 1


def test_a_phase_not_measured_to_the_end_has_no_figures() -> None:
    result = made(disturbed())
    assert check(result, "gang / default")["verdict"] == "not measured"
    assert table.total(table.views(result["runs"])[0], "gang") is None


def test_every_run_that_was_planned_has_its_rows() -> None:
    rows = [c["name"] for c in made(run(ple=True), run("linux", True))["summary"]]
    empty = [c["name"] for c in made(run(ple=True), Run({"linux": 2}, True))["summary"]]
    assert rows == empty


def test_loads_side_by_side() -> None:
    """Each of two loads in a run has figures and verdicts of its own."""
    mixed, other = run(gang=500_000), run("linux", gang=150_000)
    mixed.planned = {"barrier": 2, "linux": 2}
    mixed.loads = dict(zip(GUESTS, ("barrier", "barrier", "linux", "linux"), strict=True))
    for name, found in mixed.phases.items():
        found.repeats = [
            {**repeat, "linux": more["linux"]}
            for repeat, more in zip(found.repeats, other.phases[name].repeats, strict=True)
        ]
    result = made(mixed)
    ratios = [c["reached"] for c in result["summary"] if c["name"] == "throughput gang / default"]
    assert ratios == ["5.00x", "1.50x"]
    assert [c["reached"] for c in result["summary"] if "where they may" in c["name"]] == ["4 of 4", "4 of 4"]
    assert result["exit_status"] == 0


def test_a_lock_of_the_guests_own_has_no_floor() -> None:
    result = made(run("spinlock", gang=60_000))
    assert result["exit_status"] == 0
    assert check(result, "gang / default")["verdict"] == "missed"


def test_difference_is_named() -> None:
    assert "not restored: gangd-demo-0: pin of vCPU 0: 0,1 -> 0" in list(report.lines(made(not_restored())))


def test_early_ends() -> None:
    assert made(run(), failure="gangctl mark: refused")["exit_status"] == 1
    assert (
        check(made(run(), failure="gangctl mark: refused"), "at work")["reached"] == "gangctl mark: refused"
    )
    assert made(run(), trouble="kvm_amd cannot be reloaded")["exit_status"] == 69
    assert made()["exit_status"] == 69
    assert "ended early: no KVM" in list(report.lines(made(run(), trouble="no KVM")))


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ({"own": {"pid": 78}}, "2 process"),
        ({"failures": ["pin: refused"]}, "pin: refused"),
        ({"backend": {"active": False, "reason": "ejected"}}, "ejected"),
    ],
)
def test_gangd_is_not_well(status: dict[str, Any], words: str) -> None:
    bad = run()
    bad.statuses = [STATUS | status, STATUS]
    result = made(bad)
    assert result["exit_status"] == 1
    assert words in check(result, "at work")["reached"]
    assert made(run(), ejections=1.0)["exit_status"] == 1
    assert made(run(), ejections=None)["exit_status"] == 69


def test_unmarked_guests_need_no_backend() -> None:
    good = run()
    good.statuses = [STATUS, STATUS | {"backend": {"active": False, "reason": None}}]
    assert made(good)["exit_status"] == 0


def test_figures_of_the_daemon() -> None:
    assert check(made(run(), cost=Cost(20.0, 0.0143, 66 << 20)), "one CPU")["verdict"] == "missed"
    assert check(made(run(), cost=Cost(20.0, 0.004, 90 << 20)), "memory")["verdict"] == "missed"
    assert check(made(run(), cost=None), "memory")["verdict"] == "not measured"


def test_a_gang_that_is_pinned() -> None:
    found = run()
    found.phases["gang"].cpus = {**ANYWHERE, "gangd-demo-0": [[1], [0]]}
    assert check(made(found), "where they may")["reached"] == "6 of 8"
    assert check(made(found), "where they may")["verdict"] == "missed"


def test_the_report_names_the_help_that_the_lab_gives_itself() -> None:
    result = made(run())
    assert "helps itself with no weight and no pin." in " ".join(report.block(result))
    took = "mark --policy balance 9.0; set --policy adaptive (loads the scheduler) 2.0."
    assert took in " ".join(report.block(result))
    result["settings"]["help_lab"] = ["systemctl set-property system.slice CPUWeight=1000"]
    assert "CPUWeight=1000" in " ".join(report.block(result))


def test_tables_fit() -> None:
    without = run()
    for measured in without.phases.values():
        measured.repeats = [
            dict.fromkeys(r, Figures(1e6, None, None, 1.0, None, None)) for r in measured.repeats
        ]
    for one in (run(ple=True), without, Run({"barrier": 4}, False, dict.fromkeys(GUESTS, "barrier"))):
        lines = list(table.of_run(report.run_document(one)).text())
        assert max(map(len, lines)) <= 135
        assert len({line.count("|") for line in lines if "|" in line}) == 1
    assert "-" in table.of_run(report.run_document(without)).rows[0]
    text = list(
        report.block(made(run(ple=True), without, lost("gang", load="spinlock"), Run({"linux": 2}, True)))
    )
    assert max(map(len, text)) <= 110
    views = table.views(made(run(ple=True), without, Run({"linux": 2}, True))["runs"])
    rows = list(table.overview(views).text())
    assert max(map(len, rows)) <= 110
    assert len({line.count("|") for line in rows if "|" in line}) == 1
    assert "3.33x" in rows[3]


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0, "0"), (0.054, "0.05"), (9.996, "10.0"), (99.96, "100"), (999.6, "1.00k"),
     (96_622, "96.6k"), (999_600, "1.00M"), (1.2e9, "1200M"), (601_992, "602k")],
)  # fmt: skip
def test_number(value: float | None, text: str) -> None:
    assert table.number(value) == text
    assert len(text) <= 5


def test_compare_accounts() -> None:
    assert compare({"a": "1", "b": "2"}, {"b": "2", "a": "1"}) == []
    assert compare({"a": "1", "b": "2"}, {"b": "3", "c": "4"}) == [
        Difference("a", "1", None),
        Difference("b", "2", "3"),
        Difference("c", None, "4"),
    ]
