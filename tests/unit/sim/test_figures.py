# SPDX-License-Identifier: Apache-2.0
"""Shares, fairness, the comparison with the lab, the tables, the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangd.model.columns import caches
from gangd.model.topology import Cpu, Topology
from gangsim import measured, table
from gangsim.__main__ import main, parser
from gangsim.figures import fair_shares, jain
from gangsim.placement import place
from gangsim.scenario import Guest, Host, Scenario

DEMANDS = st.lists(st.tuples(st.integers(1, 8), st.integers(1, 1000), st.floats(0.01, 1)), min_size=1)


@given(cpus=st.integers(1, 64), guests=DEMANDS)
def test_fair_shares_leave_nothing_and_favour_nobody(cpus: int, guests: list[tuple[int, int, float]]) -> None:
    """No more than the host or one's demand; whoever got less than it wants got its weight's share."""
    scenario = Scenario("x", Host(cpus), tuple(Guest(vcpus=n, weight=weight) for n, weight, _ in guests))
    demand = [n * busy for n, _, busy in guests]
    shares = fair_shares(scenario, demand)
    assert sum(shares) == pytest.approx(min(cpus, sum(demand)))
    assert all(share <= want * 1.000001 for share, want in zip(shares, demand, strict=True))
    unit = [share / (n * weight) for share, (n, weight, _) in zip(shares, guests, strict=True)]
    hungry = [at for at, share in enumerate(shares) if share < 0.999 * demand[at]]
    assert all(unit[at] == pytest.approx(max(unit)) for at in hungry)


def test_jains_index_knows_its_ends() -> None:
    """1 for equals, 1/n when one has all."""
    assert jain([3, 3, 3]) == pytest.approx(1)
    assert jain([5, 0, 0, 0]) == pytest.approx(0.25)


@given(threads=st.sampled_from([1, 2]), widths=st.lists(st.integers(1, 8), max_size=30))
def test_guests_go_where_the_daemon_would_put_them(threads: int, widths: list[int]) -> None:
    """The host has the daemon's caches, and a guest over several has the one with most of its CPUs, as
    the scheduler is told."""
    host = Host(cpus=24, threads=threads, llc_cpus=8)
    topology = Topology(
        tuple(Cpu(cpu, cpu // threads * threads, cpu // 8 * 8, 0, 0) for cpu in range(host.cpus))
    )
    domains = [tuple(domain) for domain in host.domains()]
    assert domains == [d.cpus for d in caches(topology)]
    for index, cpus in place(host, [Guest("spin", width) for width in widths]):
        assert 3 * sum(cpu in domains[index] for cpu in cpus) >= len(cpus)


def bench(folder: Path, cells: object) -> Path:
    path = folder / "matrix.json"
    path.write_text(json.dumps({"cells": cells}))
    return path


def cell(**other: object) -> dict[str, object]:
    cell = {"variant": "relaxed", "load": "barrier", "guests": 2, "ple": False}
    return {**cell, "rates": [9, 10, 11], "median": 10.0, "alone": 11.0, **other}


def run(folder: Path, *more: str, cells: object = None) -> int:
    found = [] if cells is None else ["--bench", str(bench(folder, cells))]
    size = ["--cpus", "2", "--threads", "1", "--guests", "2", "--seconds", "0.5"]
    return main(["--out", str(folder / "sim"), "--bench", str(folder / "none.json"), *size, *found, *more])


def test_the_command_prints_draws_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A table, two pictures, a JSON with every figure; without figures of the lab it says so."""
    assert run(tmp_path) == 0
    out = capsys.readouterr().out
    assert "asked: 2 CPUs, 2 guests, 4 vCPUs, barrier" in out and "lab: no figures" in out
    document = json.loads((tmp_path / "sim/sim.json").read_text())
    figures = document["scenarios"][0]["figures"]
    assert [one["scheduler"] for one in figures] == ["gang", "default", "pinned", "balance"]
    assert figures[0]["efficiency"] > 0.95 and document["lab"] is None
    assert document["scenarios"][0]["scenario"]["forgets"]
    for picture in ("timeline-asked.svg", "throughput.svg"):
        assert "<svg" in (tmp_path / "sim" / picture).read_text()


def test_figures_stand_beside_those_of_the_lab(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Cells of the same scenario are compared; others, PLE and broken ones are not."""
    cells = [cell(), cell(ple=True), cell(guests=3), cell(median=None), cell(alone=0), cell(variant="x"), 7]
    assert run(tmp_path, cells=[*cells, cell(variant="pinned", median=5.5)]) == 0
    document = json.loads((tmp_path / "sim/sim.json").read_text())["lab"]
    assert [(one["variant"], one["measured"]) for one in document] == [
        ("relaxed", pytest.approx(10 / 11)),
        ("pinned", pytest.approx(0.5)),
    ]
    assert document[0]["simulated"] == pytest.approx(1, abs=0.02)
    assert run(tmp_path, "--kernel", "7.0", "--schedulers", "gang") == 0
    later = json.loads((tmp_path / "sim/sim.json").read_text())["scenarios"]
    assert [one["scenario"]["forgets"] for one in later] == [False]
    assert "difference" in capsys.readouterr().out


def test_the_published_figures_are_the_default() -> None:
    """The file is there, and names the variants by the words of the comparison."""
    cells = measured.read(parser().parse_args([]).bench)
    assert cells is not None and set(measured.VARIANTS) <= {cell["variant"] for cell in cells}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"cells": 3}', "\x00"])
def test_a_file_that_is_none_is_none(tmp_path: Path, text: str) -> None:
    """A malformed file reads as None, and is no reason to stop."""
    (tmp_path / "matrix.json").write_text(text)
    assert measured.read(tmp_path / "matrix.json") is None


def test_a_wrong_request_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No traceback."""
    assert run(tmp_path, "--vcpus", "9") == 1
    error = capsys.readouterr().err
    assert error.startswith("error: cannot simulate 'asked'") and error.count("\n") == 1


def test_numbers_are_short() -> None:
    """Three digits, a dash for unknown."""
    assert [table.number(value) for value in (None, 0, 12.345, 1234, 5.6e6)] == [
        "-",
        "0",
        "12.3",
        "1.23k",
        "5.6M",
    ]
    assert table.share(None) == "-" and table.share(0.5) == "50.0%"
