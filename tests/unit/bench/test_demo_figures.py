# SPDX-License-Identifier: Apache-2.0
"""Figures of the demonstration: rates, totals, medians, and what counts as the same."""

from __future__ import annotations

import pytest

from lab.observe.figures import Counts, Figures, Reading, medians, repeat_figures, without_pause
from lab.observe.metrics import Scrape


def reading(
    at: float, iterations: int, run: float | None, corun: float | None, pause: float | None = 0
) -> Reading:
    counts = Counts(at, pause, pause, run, corun, run, at * 1.5, at * 10)
    return Reading(at, iterations, counts)


def test_rates_are_growth_per_second() -> None:
    begin = {"a": reading(10, 1000, 5, 1, 40), "b": reading(10, 0, 5, 1, 0)}
    end = {"a": reading(12, 3000, 6, 2, 60), "b": reading(12, 500, 8, 2, 0)}
    figures = repeat_figures(begin, end, {"a": "barrier", "b": "barrier"})
    assert figures["a"] == Figures(1000, 10, 10, 1.0, 1.5, 10)
    assert figures["b"].corun == pytest.approx(1 / 3)
    # The total's co-run share weighs by run time: 2 of 4 seconds.
    assert figures["barrier"] == Figures(1250, 10, 10, 0.5, 3.0, 20)


def test_each_load_has_a_total_of_its_own() -> None:
    begin = {name: reading(0, 0, 5, 1) for name in "abc"}
    end = {"a": reading(1, 10, 7, 2), "b": reading(1, 20, 9, 2), "c": reading(1, 400, 6, 2)}
    figures = repeat_figures(begin, end, {"a": "barrier", "b": "barrier", "c": "linux"})
    assert (figures["barrier"].throughput, figures["linux"].throughput) == (30, 400)
    assert figures["barrier"].corun == pytest.approx(2 / 6)


def test_progress_has_a_clock_of_its_own() -> None:
    """The guest's counter is read at another moment than the daemon's counters."""
    begin = Reading(1.0, 100, Counts(0.0, switches=0))
    end = Reading(2.0, 300, Counts(4.0, switches=8))
    figures = repeat_figures({"a": begin}, {"a": end}, {"a": "barrier"})["a"]
    assert (figures.throughput, figures.switches) == (200, 2)


def test_unknown_stays_unknown() -> None:
    figures = repeat_figures(
        {"a": reading(0, 0, None, None, None)}, {"a": reading(1, 5, None, None, None)}, {"a": "barrier"}
    )
    assert (figures["a"].corun, figures["a"].pause_exits) == (None, None)
    assert (figures["barrier"].corun, figures["barrier"].pause_exits, figures["barrier"].throughput) == (
        None,
        None,
        5,
    )


def test_a_guest_that_did_not_run_has_no_corun_share() -> None:
    assert (
        repeat_figures({"a": reading(0, 0, 5, 1)}, {"a": reading(1, 0, 5, 1)}, {"a": "x"})["a"].corun is None
    )


def test_medians_of_known_values() -> None:
    repeats = [{"a": Figures(throughput=t, corun=c)} for t, c in ((1, None), (30, 0.5), (2, 0.7))]
    assert medians(repeats)["a"] == Figures(throughput=2, corun=0.6)
    assert medians([]) == {}


def test_without_pause_hides_zeros_but_no_exit() -> None:
    assert without_pause({"a": Figures(1, 0, 0, 1, 1, 1)})["a"].lhp_exits is None
    one = {"a": Figures(1, 2, 0, 1, 1, 1), "b": Figures(1, 0, 0)}
    assert without_pause(one) == one


PAGE = """\
# HELP gangd_kvm_pause_exits_total PAUSE exits.
gangd_kvm_pause_exits_total{domain="g0",vcpu="0"} 3.0
gangd_kvm_pause_exits_total{domain="g0",vcpu="1"} 4.0
gangd_kvm_pause_exits_total{domain="g1",vcpu="0"} 100.0
gangd_domain_run_seconds_total{domain="g0"} 1.5
gangd_domain_info{domain="a \\"b\\"\\\\} c",uuid="u",policy=""} 1.0
gangd_process_resident_memory_bytes 6.7e+07
not a sample
"""


def test_scrape() -> None:
    scrape = Scrape(7.0, PAGE)
    assert scrape.guest("g0") == Counts(7.0, pause_exits=7.0, run_seconds=1.5)
    assert scrape.value("gangd_process_resident_memory_bytes") == 6.7e7
    assert scrape.value("gangd_domain_info", domain='a "b"\\} c') == 1
    assert scrape.value("gangd_domain_info", domain="nobody") is None
