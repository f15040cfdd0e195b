# SPDX-License-Identifier: Apache-2.0
"""`make bench-seeds`: what is counted, and what the page makes of it."""

from __future__ import annotations

import re
import struct
from typing import Any

import pytest

from bench import stats
from bench.records import Origin, Result
from bench.seeds import latency, page, plan
from bench.seeds.guests import Kind, xml
from bench.seeds.image import GUEST, SCRIPT_LINES, whole
from bench.seeds.plan import ARMS
from lab.guests.counters import MAX_CPUS


def rounds(*rates: float, **counts: float) -> list[dict[str, Any]]:
    """Rounds of an arm; counts: that differ from the usual."""
    usual = {"cpu_seconds": 4.0, "run_seconds": 2.0, "corun_seconds": 1.0, "switches": 40, "exits_total": 400,
             "pause_exits": 0, "lhp_exits": 0}  # fmt: skip
    return [{"rate": rate, **usual, **counts} for rate in rates]


def cell(load: str = "ebizzy", ple: bool = False, **arms: list[dict[str, Any]]) -> dict[str, Any]:
    """A cell in which all arms are alike, but for these."""
    alike = {arm: rounds(*[100.0] * 7) for arm in ARMS}
    return {"load": load, "ple": ple, "features": "nopvspin", "guests": 2, "arms": {**alike, **arms}}


def measured(**parts: Any) -> Result:
    return Result(part="seeds", origin=Origin(sources="one"), **parts)


@pytest.mark.parametrize(
    ("rates", "verdict"),
    [
        ([200.0] * 7, "relaxed 1.5: met"),
        ([120.0] * 7, "relaxed 1.5: missed"),
        ([120.0, 200.0, 120.0, 200.0, 120.0, 200.0, 150.0], "relaxed 1.5: open"),
        ([200.0] * 4, "relaxed 1.5: open"),
    ],
)
def test_a_row_is_judged_by_its_interval(rates: list[float], verdict: str) -> None:
    assert page.wanted(cell(relaxed=rounds(*rates))) == verdict


def test_a_row_of_ordinary_work_is_judged_by_adaptive() -> None:
    found = cell("dbench", pinned=rounds(*[110.0] * 7), relaxed=rounds(*[300.0] * 7))
    assert page.wanted(found) == "adaptive 0.97: missed"


def test_a_row_shows_the_seeds_percentages() -> None:
    assert page.seed(cell()) == "ebizzy: +1520 %, +885 %"
    assert page.seed(cell("pgbench", ple=True)) == "specjbb: -17 %, -18 %"
    assert page.seed(cell("barrier")) == "-"


def test_a_row_says_why() -> None:
    found = cell(
        relaxed=rounds(*[150.0] * 7, corun_seconds=1.9, pause_exits=40, lhp_exits=4),
        balance=rounds(*[110.0] * 7, pause_exits=4000, lhp_exits=3600),
    )
    assert page.why(found) == (
        "ebizzy, 2 guests: `relaxed` wins over `balance`: co-run 95% (there 50%), switches 10/s (there "
        "10/s), exits 100/s (there 100/s), PAUSE exits 10/s (there 1,000/s), of these LHP 1/s (there 900/s)."
    )


@pytest.mark.parametrize(
    ("low", "high", "claim"),
    [
        (1.01, 1.2, "wins over"),
        (0.8, 0.99, "loses to"),
        (0.98, 1.02, "is level with"),
        (0.996, 0.999, "is level with"),
        (0.9, 1.4, "cannot be told from"),
        (None, None, "cannot be told from"),
    ],
)
def test_a_claim_is_as_strong_as_its_interval(low: float | None, high: float | None, claim: str) -> None:
    assert page.claim(stats.Ratio(7, 1.0, low, high)) == claim


def test_a_round_that_gangd_failed_is_told() -> None:
    failed = [*rounds(*[100.0] * 6), {**rounds(0.0)[0], "failed": "relaxed: not within 120 s"}]
    told = page.why(cell(relaxed=failed))
    assert told.endswith(" Failed rounds, which count: 1 (relaxed: not within 120 s).")


def test_the_page_is_in_mmtests_form() -> None:
    text = "\n".join(page.lines(measured(seeds=[cell(relaxed=rounds(*[120.0] * 7))])))
    (mean,) = (line for line in text.splitlines() if line.startswith("Hmean"))
    assert mean.split() == [
        *("Hmean", "ebizzy", "2vm", "100.0", "(", "0.0%)", "100.0", "(", "0.0%)", "100.0", "(", "0.0%)"),
        *("120.0", "*", "20.0%*", "100.0", "(", "0.0%)"),
    ]
    assert "| ebizzy | 2 | ebizzy: +1520 %, +885 % | 1.20 (1.20 to 1.20) |" in text


def test_a_cell_that_was_interrupted_in_its_arms_is_not_measured_yet() -> None:
    text = "\n".join(page.lines(measured(seeds=[cell(), cell("barrier", relaxed=[])])))
    assert "Not measured yet: barrier, hackbench, dbench, pgbench, compile with 2 guests" in text
    assert "| barrier |" not in text


def test_cells_of_earlier_sources_stay_until_they_are_measured_again() -> None:
    """The page marks them."""
    old = measured(date="2026-01-01", seeds=[cell("ebizzy"), cell("barrier")], before=[cell("dbench")],
                   lab_failures=["lost"], wall_seconds=60)  # fmt: skip
    new = measured(seeds=[cell("barrier")])
    plan.carry(old, new)
    assert (new.lab_failures, new.wall_seconds) == (["lost"], 60)
    assert [(found["load"], found.get("sources")) for found in plan.left(new)] == [
        ("ebizzy", "one"),
        ("dbench", None),
    ]
    new.before[-1]["date"] = "2025-12-31"
    text = "\n".join(page.lines(new))
    assert "† measured on 2025-12-31 and 2026-01-01, before" in text
    assert [mark in text for mark in ("ebizzy †", "barrier †", "dbench †")] == [True, False, True]


def test_dbenchs_script_ends_where_every_file_is_closed() -> None:
    opened = ["NTCreateX a 0x1 0x2 7 NT_STATUS_OK", "NTCreateX b 0x1 0x2 8 NT_STATUS_OBJECT_NAME_NOT_FOUND"]
    lines = [
        *opened,
        *["WriteX 7 0 1 1 NT_STATUS_OK"] * SCRIPT_LINES,
        "Close 7 NT_STATUS_OK",
        "Deltree c 0x0",
    ]
    assert whole(lines) == lines[:-1]


def test_a_guest_keeps_a_page_for_its_progress(tmp_path: Any) -> None:
    """A guest keeps a page, and one without paravirtual locks is told so."""
    texts = [
        xml("a", Kind("ebizzy", features, 2, tmp_path, tmp_path / "i")) for features in ("pv", "nopvspin")
    ]
    assert all("memmap=4K$0x200000" in text and "-- ebizzy</cmdline>" in text for text in texts)
    assert ["nopvspin" in text for text in texts] == [False, True]


def test_no_arm_is_always_early_or_late() -> None:
    """The rounds of `relaxed`, which is loaded once, are between those of the baselines."""
    found = plan.turns(7)
    assert sorted(found) == sorted((n, arm) for n in range(7) for arm in ARMS)
    places = {arm: [i for i, turn in enumerate(found) if turn[1] == arm] for arm in ARMS}
    assert [arm for _, arm in found[:6]] == [*plan.BASELINES, *plan.BASELINES[::-1]]
    assert all(
        places[arm][0] < places["relaxed"][0] < places["relaxed"][-1] < places[arm][-1]
        for arm in plan.BASELINES
    )
    assert places["adaptive"][0] == 28


@pytest.mark.parametrize(("factor", "verdict"), [(1.2, "met"), (2.0, "missed")])
def test_latency_is_bounded_from_above(factor: float, verdict: str) -> None:
    slow = [{"p99_us": 2000.0 * factor}] * 7
    arms = {arm: slow if arm == "relaxed" else [{"p99_us": 2000.0}] * 7 for arm in ARMS}
    document = measured(latency=[{"load": "fio", "ple": True, "guests": 4, "arms": arms}])
    (line,) = (line for line in page.latency(document) if line.startswith("| fio"))
    assert line.endswith(f"| {factor:.2f} ({factor:.2f} to {factor:.2f}) | at most 1.5: {verdict} |")


def test_the_classes_of_reads_are_those_of_the_guest() -> None:
    """guest/latency.c counts; a class ends where the next begins."""
    bounds = [latency.bound_us(number) for number in range(MAX_CPUS)]
    assert bounds == sorted(bounds)
    assert bounds[-1] > latency.LOST_SECONDS / 2 * 1e6  # the last class has what took longer
    source = (GUEST / "latency.c").read_text()
    least = re.search(r"#define LEAST_NS\s+(\d+)", source)
    assert least is not None and int(least[1]) == bounds[0] * 1000


def test_an_echo_request_has_its_checksum() -> None:
    """The sum of all words of a valid message is 0xffff (RFC 1071)."""
    total = sum(struct.unpack("!4H", latency.echo(7)))
    assert (total & 0xFFFF) + (total >> 16) == 0xFFFF
