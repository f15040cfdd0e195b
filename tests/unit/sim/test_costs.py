# SPDX-License-Identifier: Apache-2.0
"""The prices, those of cache lines, and the causes of a loss."""

from __future__ import annotations

import json
from dataclasses import astuple
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangsim import loss
from gangsim.costs import INSTRUCTION_NS, LAB_INSTRUCTION_NS, PRICES, WITH_LINES, Costs, Price
from gangsim.engine import ROOT, Engine
from gangsim.scenario import Guest, Host, Scenario

OVERHEAD = json.loads((ROOT / "docs/results/overhead.json").read_text())
MEASURED = [price for price in PRICES if price.measured]
CPUS = st.floats(0, 8)


def at(place: tuple[str, ...]) -> float:
    return float(reduce(lambda part, name: part[name], place, OVERHEAD["overhead"]))


@pytest.mark.parametrize("price", MEASURED, ids=lambda price: price.name)
def test_a_price_is_what_the_lab_measured(price: Price) -> None:
    """The count of instructions differs by a fifth at most from the published one."""
    assert OVERHEAD["origin"]["instruction_ns"] == LAB_INSTRUCTION_NS
    ns = at(price.measured) - (at(price.less) if price.less else 0)
    assert price.instructions == pytest.approx(ns / LAB_INSTRUCTION_NS / price.per, rel=0.2)


def test_each_price_has_instructions_or_nanoseconds() -> None:
    """The one assumption about a CPU's speed makes a time of instructions."""
    assert all(bool(price.ns) != bool(price.instructions) for price in PRICES)
    assert Price("x", "", instructions=9000).cost_ns == pytest.approx(9000 * INSTRUCTION_NS)


def test_a_scheduler_pays_its_own_prices() -> None:
    """The fair class is charged what was counted of it, under the names of the same ops."""
    costs = Costs(enqueue_us=7, fair_enqueue_us=5)
    assert costs.of("gang")["enqueue_ns"] == 7000
    assert costs.of("default")["enqueue_ns"] == costs.of("pinned")["enqueue_ns"] == 5000
    assert costs.of("default").keys() == costs.of("gang").keys()


@pytest.mark.parametrize("scheduler", ["gang", "default"])
def test_decisions_of_either_class_take_time(engine: Engine, scheduler: str) -> None:
    """A class whose decisions are all ten times as dear decides for about ten times as long."""
    host, guests = Host(2, 1, 2), (Guest("sleep", 2),) * 2
    ops = [
        name for name in vars(Costs()) if name.startswith("fair_") or name[:-3] in {p.name for p in MEASURED}
    ]
    dear = Costs(**{name: 10 * getattr(Costs(), name) for name in ops if name != "switch_us"})
    taken = [
        engine.run(Scenario("x", host, guests, 1, costs=costs), scheduler).host["op_ns"]
        for costs in (Costs(), dear)
    ]
    assert 5 < taken[1] / taken[0] < 11


@pytest.mark.parametrize("cpus", [1, 2])
def test_a_cache_line_is_paid_for_if_another_cpu_had_it(engine: Engine, cpus: int) -> None:
    """A CPU alone has all lines; two CPUs take some from each other, each at the price of one."""
    wanted = Scenario("x", Host(cpus, 1, cpus), (Guest("spin", 1),) * 3, 1, costs=WITH_LINES)
    host = engine.run(wanted, "gang").host
    assert (host["line_ns"] > 0) == (cpus > 1)
    assert host["line_ns"] % round(1000 * WITH_LINES.line_us) == 0
    assert host["line_ns"] < host["op_ns"]


@given(run=CPUS, switch=CPUS, idle=CPUS, other=CPUS, reached=st.floats(0, 1), skew=CPUS, line=st.floats(0, 1))
def test_the_causes_of_a_loss_add_up(
    run: float, switch: float, idle: float, other: float, reached: float, skew: float, line: float
) -> None:
    """The parts add up to what a full host lacks, and none of them counts twice."""
    cpus, had = run + switch + idle + other + 1, run
    host = {"run_ns": run + other, "switch_ns": switch, "idle_ns": idle + 1, "op_ns": switch / 2}
    host["line_ns"] = line * host["op_ns"]
    limit = cpus
    parts = loss.divide(host, cpus, limit, reached * had, had, skew)
    assert sum(astuple(parts)) == pytest.approx((limit - reached * had) / limit)
    assert min(astuple(parts)) > -1e-9
    assert parts.lines == pytest.approx(line * switch / 2 / limit)
