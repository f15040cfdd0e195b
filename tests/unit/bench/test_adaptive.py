# SPDX-License-Identifier: Apache-2.0
"""The decisions that `make bench-adaptive` waits for, and its conclusions."""

from __future__ import annotations

from typing import Any

import pytest

from bench import adaptive, daemon, result, settings, table
from bench.records import Comparison, Origin
from fakes import guest
from gangd.model.evidence import Conditions, Evidence
from gangd.planner import load_policies

FAIR = Conditions(fair=True)


def measured() -> Comparison:
    """Three rounds."""
    found = adaptive.begun("barrier", True, 4)
    found.rates = {
        "off": [50.0] * 3,
        "balance": [90.0, 100.0, 110.0],
        "relaxed": [200.0, 210.0, 190.0],
        "adaptive": [190.0] * 3,
    }
    found.decided_seconds, found.chosen = [4.0, 9.0, 5.0], ["relaxed"] * 11 + ["balance"]
    adaptive.conclude(found)
    return found


def test_adaptive_is_compared_with_the_best_arm() -> None:
    """Round by round: what the machine did to a round it did to all arms."""
    document = measured()
    assert document.ratio == pytest.approx((0.95 * 190 / 210 * 1.0) ** (1 / 3))
    assert (document.rounds, document.low, document.high) == (3, None, None)


def test_of_equal_arms_the_lucky_one_is_not_chosen() -> None:
    """Each arm is ahead in one round by what is noise: no round is held against adaptive."""
    rates = {"off": [50.0] * 2, "balance": [110.0, 100.0], "relaxed": [100.0, 110.0], "adaptive": [100.0] * 2}
    assert adaptive.against_best(rates) == [(100.0, 100.0), (100.0, 100.0)]
    assert adaptive.against_best({arm: rounds[:1] for arm, rounds in rates.items()}) == [(100.0, 110.0)]


def test_an_unmeasured_variant_has_no_ratio() -> None:
    """The variant has no median either."""
    found = adaptive.begun("spin", False, 4)
    found.rates["adaptive"] = [3.0]
    adaptive.conclude(found)
    assert (found.ratio, found.medians["relaxed"]) == (None, None)


def test_it_is_shown() -> None:
    """The table has a line a load, below what else was measured."""
    document = result.empty("adaptive", Origin(sources="s"))
    document.adaptive = [measured()]
    result.finish(document)
    (line,) = (line for line in table.lines(document) if line.startswith("barrier "))
    assert [row.measured for row in document.judged] == [pytest.approx(0.9505, abs=1e-3), 9.0]
    assert line.split() == [
        *("barrier", "on", "4", "50.0", "100", "200", "190", "0.95x", "5.0", "s", "9.0", "s"),
        *("balance", "1", "relaxed", "11"),
    ]


def summary(schedule: str | None, reason: str | None) -> dict[str, Any]:
    """Return a schedule as `gangctl list` has it."""
    return {"schedule": schedule, "schedule_reason": reason}


def test_it_waits_for_the_policys_own_words() -> None:
    """A guest is undecided until a window was read, or nothing can be."""
    web, policy = guest("web", 1), load_policies()["adaptive"]
    decision, said = policy.decide(web, Evidence(conditions=FAIR)), []
    assert not daemon.is_arranged(summary(decision.mode.value, decision.reason), "adaptive")
    for second in range(1, 6):
        reading = Evidence(1.0, cpu_per_second=1.0, time=float(second), delay_per_second=1.0, conditions=FAIR)
        decision = policy.decide(web, reading, decision.memory)
        said.append(daemon.is_arranged(summary(decision.mode.value, decision.reason), "adaptive"))
    assert said == [False] * 3 + [True] * 2
    for conditions in (FAIR, Conditions(), Conditions(fair=False)):
        decision = policy.decide(web, Evidence(5.0, time=5.0, conditions=conditions))
        assert daemon.is_arranged(summary(decision.mode.value, decision.reason), "adaptive")


def test_a_guest_without_its_scheduler_is_waited_for() -> None:
    """A guest that is not in the mode it was marked for is waited for, too."""
    assert not daemon.is_arranged(summary("waiting", "its vCPUs ran apart for 40%"), "adaptive")
    assert not daemon.is_arranged(summary("waiting", "not loaded"), "relaxed")
    assert not daemon.is_arranged(summary(None, None), "balance")
    assert daemon.is_arranged(summary("balance", "marked balance"), "balance")


def test_its_own_defaults() -> None:
    """The loads run with and without pause-loop exiting."""
    import argparse

    parser = argparse.ArgumentParser()
    parser.add_argument("--adaptive", action="store_true")
    settings.add_options(parser)
    options = settings.complete(parser.parse_args(["--adaptive", "--loads", "ipi"]), "adaptive")
    assert (options.loads, options.ple, options.guests, options.rounds) == ("ipi", "on,off", "4", 6)
    assert "on,off" in settings.words(options)
