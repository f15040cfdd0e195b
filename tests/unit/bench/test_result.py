# SPDX-License-Identifier: Apache-2.0
"""The conclusions that `make bench-kernel` draws from its cells, and the cells it still has to measure."""

from __future__ import annotations

import time
from typing import Any

import pytest
from msgspec.structs import replace

from bench import bars, noise, result, settings, stats, table
from bench.boot import Words
from bench.cells import Series, documents
from bench.records import Cell, Memory, Origin, Overhead, Result, Round, Share
from bench.stats import Ratio
from bench.variants import NAMES, chosen, in_order

KEY = ("barrier", False, 4)
ORIGIN = Origin(sources="s", emulator="e", clock="virtual")
EMPTY = result.empty("matrix", ORIGIN)
DRIFT = (1.0, 0.9, 1.1, 0.95, 1.05)


def rounds(*rates: float, **more: Any) -> list[Round]:
    return [Round(rate=rate, skew_ms=0.5 * more.get("whole", 0), **more) for rate in rates]


def made(cells: list[Cell]) -> Result:
    return result.finish(replace(EMPTY, cells=cells))


def document(**medians: float) -> Result:
    """Return a cell's variants, five rounds each, in which all of them are faster or slower alike."""
    series = {name: Series(rounds(*(rate * drift for drift in DRIFT))) for name, rate in medians.items()}
    return made(documents(KEY, series, "a run"))


def test_a_cell_is_described_by_its_median_and_spread() -> None:
    found = result.cell("relaxed", KEY, rounds(100.0, 90.0, 120.0, turns=10, whole=9))
    assert (found.median, found.spread) == (100.0, pytest.approx(0.3))
    assert found.whole_share == pytest.approx(0.9)
    assert found.skew_mean_ms == pytest.approx(0.5)


def test_a_figure_that_was_not_counted_is_unknown() -> None:
    """The default class has no turns: their share is unknown, not zero."""
    found = result.cell("default", KEY, rounds(100.0))
    assert (found.whole_share, found.skew_mean_ms, found.skew_p99_ms) == (None, None, None)
    assert result.cell("boost", KEY, []).median is None


def test_a_gang_is_compared_with_the_best_baseline_and_the_limit() -> None:
    found = document(default=100, pinned=150, balance=120, relaxed=480, alone=500)
    (ratio,) = found.ratios
    assert (ratio.best, ratio.of_best) == ("pinned", ratio.of_pinned)
    assert ratio.of_best == Ratio(5, *[pytest.approx(3.2)] * 3)
    assert ratio.of_limit.ratio == pytest.approx(0.96)
    rows = {row.what: row for row in found.judged}
    assert rows["barrier, PLE off, 4 guests: gang / best baseline"].met is True
    assert rows["barrier, PLE off, 4 guests: gang / limit"].met is True
    assert rows["barrier, PLE off, 8 guests: gang / best baseline"].met is None


def test_rounds_are_pooled_where_the_machine_drifts() -> None:
    """Each round twice as fast as the one before: the medians of three differ, the ratio of each does not."""
    series = {"pinned": Series(rounds(1.0, 2.0, 4.0)), "relaxed": Series(rounds(1.1, 2.2, 4.4))}
    found = made(documents(("spin", True, 2), series, "a run"))
    (row,) = found.pooled
    assert (row.baseline, row.rounds, row.ratio) == ("pinned", 3, pytest.approx(1.1))
    assert any("1.10x (3)" in line for line in table.lines(found))


def test_an_interval_is_that_of_cells_and_not_of_rounds() -> None:
    """Fifty rounds in five cells that differ say as much as five rounds do."""
    cells = [[(ratio, 1.0)] * 10 for ratio in (0.8, 0.9, 1.0, 1.1, 1.2)]
    many, few = stats.pooled(cells), stats.paired([cell[0] for cell in cells])
    assert (many.ratio, many.low, many.high) == (few.ratio, few.low, few.high)
    assert many.low is not None and many.high is not None and many.low < 0.95 < 1.05 < many.high


def test_too_few_rounds_have_no_interval() -> None:
    assert stats.paired([(2.0, 1.0)] * 4) == Ratio(4, pytest.approx(2.0))
    assert stats.paired([]) == Ratio(0)


def test_a_failed_round_counts() -> None:
    """A round in which the scheduler was thrown out counts as 0; a baseline without progress is left out."""
    assert stats.paired([(2.0, 1.0), (0.0, 1.0)]) == Ratio(2, 0.0)
    assert stats.paired([(2.0, 1.0), (2.0, 0.0)]) == Ratio(1, 2.0)


def test_one_guest_alone_is_not_pooled() -> None:
    series = {"pinned": Series(rounds(1.0, 2.0)), "relaxed": Series(rounds(9.0, 9.0))}
    cells = documents(("spin", True, 1), series, "a run")
    assert made(cells).pooled == []


def test_cpu_time_is_compared_where_it_was_read() -> None:
    """Old cells do not have it: unknown, and not judged."""
    series = {name: Series(rounds(9.0, cpus=cpus)) for name, cpus in
              (("pinned", 1.9), ("default", 2.0), ("relaxed", 1.95))}  # fmt: skip
    read = made(documents(("spin", False, 4), series, "a run"))
    assert read.ratios[0].cpus_of_best == pytest.approx(0.975)
    rows = {row.what: row for row in read.judged}
    assert rows["spin: the same of CPU time that the guests had, worst cell"].met is True
    assert document(default=100, relaxed=250).ratios[0].cpus_of_best is None


@pytest.mark.parametrize(
    ("gang", "met"),
    [
        ((4.0, 4.1, 4.2, 4.3, 4.4), True),
        ((1.0, 4.1, 4.2, 4.3, 2.4), None),
        ((4.0,) * 4, None),
        ((0.0,) * 4, False),
        ((1.0, 1.1, 1.2, 1.3, 4.4), None),
        ((2.0,) * 5, False),
    ],
)
def test_a_bar_is_judged_by_the_interval(gang: tuple[float, ...], met: bool | None) -> None:
    """Met or missed if all of it is; open while the bar is in it, and while rounds are too few for one."""
    names = {name: Series(rounds(*[1.0] * len(gang))) for name in ("default", "pinned", "balance")}
    cells = documents(KEY, {**names, "relaxed": Series(rounds(*gang))}, "a run")
    rows = {row.what: row for row in made(cells).judged}
    row = rows["barrier, PLE off, 4 guests: gang / best baseline"]
    assert row.met is met
    assert table.verdict(row) == {True: "met", False: "missed", None: "open"}[met]


def test_a_missed_figure_is_missed() -> None:
    found = document(default=100, relaxed=250, alone=500)
    rows = {row.what: row.met for row in found.judged}
    assert rows["barrier, PLE off, 4 guests: gang / best baseline"] is False
    assert rows["barrier, PLE off, 4 guests: gang / limit"] is False


def test_the_best_of_fewer_baselines_is_no_success() -> None:
    """A baseline that was not measured might have been better; what is missed without it is missed."""
    what = "barrier, PLE off, 4 guests: gang / best baseline"
    for gang, met in ((900.0, None), (110.0, False)):
        rows = {row.what: row for row in document(default=100, pinned=150, relaxed=gang).judged}
        assert (rows[what].met, rows[what].without) == (met, ["balance"])


def test_the_judge_knows_upper_bounds() -> None:
    overhead = Overhead(memory=Memory(bytes_per_vcpu=5000.0))
    found = result.finish(replace(result.empty("overhead", ORIGIN), overhead=overhead))
    rows = {row.what: row.met for row in found.judged}
    assert rows["memory of the kernel side, bytes a vCPU it has room for"] is False


def test_figures_of_two_runs_are_told_apart() -> None:
    """A variant measured later is merged in, and its ratio says that the baseline is of another run."""
    first = document(default=100, alone=200)
    later = documents(KEY, {"relaxed": Series(rounds(150))}, "another run")
    found = made(result.merged(first.cells, later))
    assert [ratio.within_one_run for ratio in found.ratios] == [False]
    assert any("different runs" in line for line in table.notes(found))


def test_only_what_is_missing_is_measured_again() -> None:
    """Too few rounds are missing; a variant that cannot be had here is not."""
    found = document(default=100, relaxed=250)
    assert result.is_complete(found, KEY, ["default", "relaxed"], 5)
    assert not result.is_complete(found, KEY, ["default", "relaxed"], 6)
    assert not result.is_complete(found, KEY, ["default", "strict"], 5)
    found.cells += documents(KEY, {"strict": Series(unavailable="no such thing")}, "a run")
    assert result.is_complete(found, KEY, ["default", "strict"], 5)


@pytest.mark.parametrize("name", ["sources", "emulator", "clock"])
def test_a_result_of_other_conditions_is_begun_anew(name: str) -> None:
    """Figures that other bars judged are begun anew, too."""
    found = document(default=100, relaxed=250)
    assert result.continued(found, "matrix", replace(ORIGIN)) is found
    anew = result.continued(found, "matrix", replace(ORIGIN, **{name: "another"}))
    assert anew.cells == [] and getattr(anew.origin, name) == "another"
    assert result.continued(replace(found, plan={}), "matrix", ORIGIN).cells == []
    assert result.continued(None, "matrix", ORIGIN).cells == []


def test_every_bar_has_its_figure() -> None:
    """On empty results of every part nothing is measured, and nothing fails."""
    parts = {bar["part"] for bar in bars.plan()["bar"]}
    assert parts == {"matrix", "overhead", "adaptive", "shares", "noise"}
    for part in parts:
        judged = result.finish(result.empty(part, ORIGIN)).judged
        assert judged and all(row.measured is None and row.met is None for row in judged)


def test_shares_are_judged_by_who_loses_most() -> None:
    """The party that loses most is judged, and how far one with a quota is from it; both are shown."""
    rows = [
        Share(5, gang, 0.8, 0.89, scene="s", party=party, default=1.0, gang=gang, of_quota=quota)
        for party, gang, quota in (("hog", 0.85, None), ("gang", 1.2, 1.2))
    ]
    found = result.finish(replace(result.empty("shares", ORIGIN), shares=rows))
    assert [(row.measured, row.met) for row in found.judged] == [
        (0.85, False), (pytest.approx(0.2), False)
    ]  # fmt: skip
    assert any(line.split()[:2] == ["s", "hog"] for line in table.lines(found))


def test_noise_is_the_difference_of_medians() -> None:
    quiet, noisy = document(default=100, relaxed=200), document(default=104, relaxed=199)
    found = noise.rows(quiet, noisy)
    assert [row.difference for row in found] == [pytest.approx(0.04), pytest.approx(-0.005)]
    whole = result.finish(replace(result.empty("noise", ORIGIN), rows=found))
    assert [row.met for row in whole.judged] == [False]
    assert noise.rows(quiet, EMPTY)[0].difference is None


def test_busy_loops_end_with_what_they_disturb() -> None:
    """By their own process ids, also when it fails."""
    with pytest.raises(KeyError), noise.beside(2):
        raise KeyError
    before = noise.busy_seconds()
    with noise.beside(1):
        time.sleep(0.3)
    assert noise.busy_seconds() > before


def test_the_newer_of_two_measurements_counts() -> None:
    old, new = document(default=100).cells, document(default=200).cells
    assert [cell.median for cell in result.merged(old, new)] == [200]


def test_rounds_go_there_and_back() -> None:
    """A scheduler is loaded once a round, and a drift of the machine falls on all alike."""
    variants = chosen(["relaxed", "default", "strict"])
    assert [variant.name for variant in variants] == ["default", "relaxed", "strict"]
    assert in_order(variants, 1) == in_order(variants, 0)[::-1]
    with pytest.raises(ValueError, match="no such variant: gang "):
        chosen(["gang"])


def test_options_name_every_variant() -> None:
    """The default of --variants is written where variants.py cannot be imported."""
    assert sorted(settings.VARIANTS.split(",")) == sorted(NAMES)


def test_quantile_of_a_histogram() -> None:
    assert result.quantile([(0.1, 98), (1.0, 1), (5.0, 1)], 0.99) == 1.0
    assert result.quantile([(0.1, 98), (1.0, 1), (5.0, 1)], 0.5) == 0.1
    assert result.quantile([], 0.99) is None
    assert result.quantile([(0.1, 0)], 0.99) is None


def test_the_table_shows_what_is_unknown_as_a_dash() -> None:
    found = document(default=100, relaxed=250, alone=500)
    cells, ratios = table.cells(found), table.ratios(found)
    row = dict(zip(cells.heads, *cells.rows, strict=True))
    assert row["load"] == "barrier" and row["PLE"] == "off" and row["n"] == "4"
    assert (row["default"], row["relaxed"], row["balance"]) == ("100", "250", "-")
    equal = ["2.50, 2.50 to 2.50"] * 2
    assert ratios.rows == [["barrier", "off", "4", "relaxed", "-", *equal, "0.50, 0.50 to 0.50"]]
    assert any(line.rstrip().endswith("missed") for line in table.lines(found))


def test_a_variant_that_is_not_to_be_had_is_named_once() -> None:
    cells = [
        cell
        for guests in (2, 4)
        for cell in documents(("spin", True, guests), {"boost": Series(unavailable="no module")}, "a run")
    ]
    found = made(cells)
    assert [line for line in table.notes(found) if "boost" in line] == ["boost: not available: no module"]


def test_a_stream_remembers_when_it_was_written_to(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    stream = Words()
    stream.last = 0.0
    stream.write(b"")
    assert stream.last == 0.0
    stream.write(b"x")
    assert stream.last > 0.0
