# SPDX-License-Identifier: Apache-2.0
"""The demonstration's table, its verdicts and its exit status."""

from __future__ import annotations

import json
from typing import Any

import pytest
from demo import report, table
from demo.figures import TOTAL, Figures
from demo.hostaccount import Difference, compare
from demo.linux import LinuxRun
from demo.service import Call, Cost
from demo.session import Phase, Run

GUESTS = {f"gangd-demo-{i}": f"uuid-{i}" for i in range(4)}
STATUS = {"kernel": "6.18", "version": "0.1", "backend": {"name": "sched_ext"}}
LINUX = LinuxRun("uuid", 100, 0.99, True)
COST = Cost(20.0, 0.004, 66 << 20)


def phase(throughput: float, corun: float, repeats: int = 3) -> Phase:
    one = Figures(throughput / 4, 250.0, 12.5, corun, 1.5, 1234.0)
    both = Figures(throughput, 1000.0, 50.0, corun, 6.0, 4936.0)
    found = Phase(measured=True)
    found.repeats = [{**dict.fromkeys(GUESTS, one), TOTAL: both} for _ in range(repeats)]
    return found


def run(load: str = "barrier", ple: bool = False, gang: float = 500_000, corun: float = 0.97) -> Run:
    phases = {"default": phase(100_000, 0.11), "gang": phase(gang, corun), "after": phase(100_000, 0.12)}
    marks = [Call(("mark", "gangd-demo-0"), 9.0, 1.0, "")]
    return Run(load, ple, dict(GUESTS), phases, marks, marks, 24, [], 60)


def made(*runs: Run, failure: str | None = None, linux: LinuxRun | None = LINUX) -> dict[str, Any]:
    return report.document(STATUS, list(runs), linux, COST, failure, {})


def check(result: dict[str, Any], words: str) -> dict[str, Any]:
    found: dict[str, Any] = next(c for c in result["summary"] if words in c["what"])
    return found


def test_all_good() -> None:
    result = made(run(), run(ple=True))
    assert result["exit_status"] == 0
    assert all(c["met"] for c in result["summary"])
    assert json.loads(json.dumps(result)) == result
    assert (result["kernel"], result["backend"]) == ("6.18", "sched_ext")
    assert result["runs"][0]["guests"] == GUESTS
    assert result["runs"][0]["phases"]["gang"]["disturbed"] is False


def test_a_missed_figure_is_said_and_is_no_failure() -> None:
    result = made(run(gang=150_000, corun=0.88))
    assert result["exit_status"] == 0
    assert check(result, "gang / default")["reached"] == "1.50x"
    text = "\n".join(report.lines(result))
    assert text.count("missed") == 2
    assert "FAILED" not in text


def not_restored() -> Run:
    found = run()
    found.differences = [Difference("gangd-demo-0: pin of vCPU 0", "0,1", "0")]
    return found


def not_compared() -> Run:
    found = run()
    found.differences = None
    return found


def half_measured() -> Run:
    found = run()
    del found.phases["after"]
    return found


def disturbed() -> Run:
    found = run()
    found.phases["gang"].measured = False
    return found


@pytest.mark.parametrize(
    "bad", [not_restored, not_compared, half_measured, disturbed, lambda: run(corun=0.1)]
)
def test_what_fails(bad: Any) -> None:
    result = made(bad())
    assert result["exit_status"] == 1
    assert "FAILED" in "\n".join(report.lines(result))


def test_difference_is_named() -> None:
    assert "not restored: gangd-demo-0: pin of vCPU 0: 0,1 -> 0" in list(report.lines(made(not_restored())))


def test_early_end_and_dead_linux_guest_fail() -> None:
    assert made(run(), failure="gave up")["exit_status"] == 1
    assert made(run(), linux=LinuxRun("u", 5, 0.9, False, ["died"]))["exit_status"] == 1
    assert made()["exit_status"] == 1
    assert "ended early: gave up" in list(report.lines(made(failure="gave up")))


def test_third_phase_away_from_the_first() -> None:
    found = run()
    found.phases["after"] = phase(50_000, 0.1)
    assert check(made(found), "3rd phase")["met"] is False


def test_lab_failures_and_repeats_are_counted() -> None:
    found = run()
    found.phases["gang"].failures = ["a guest died"]
    found.phases["gang"].disturbed = 2
    result = made(found)
    assert result["lab_failures"] == 1
    assert result["runs"][0]["phases"]["gang"]["repeated"] == 3
    assert result["runs"][0]["phases"]["gang"]["disturbed"] is True


def test_table_fits() -> None:
    without = run()
    for measured in without.phases.values():
        measured.repeats = [
            dict.fromkeys(r, Figures(1e6, None, None, 1.0, None, None)) for r in measured.repeats
        ]
    for one in (run(ple=True), without, Run("barrier", False, dict(GUESTS))):
        lines = table.of_run(report.run_document(one))
        assert max(map(len, lines)) <= 110
        assert len({line.count("|") for line in lines if "|" in line}) == 1
    assert "-" in table.of_run(report.run_document(without))[4]


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
