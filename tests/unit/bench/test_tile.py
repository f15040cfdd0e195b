# SPDX-License-Identifier: Apache-2.0
"""`make bench-tile`: what is counted, how it is judged, and the tables."""

from __future__ import annotations

import re
from typing import Any

import pytest

from bench.records import Origin, Result
from bench.seeds import image as seeds_image
from bench.seeds import plan as seeds
from bench.tile import memory, others, page, plan, web
from bench.tile.image import GUEST
from bench.tile.parties import GUESTS, LATENCIES, names
from bench.tile.plan import ARMS, Cell

ALL = names(len(GUESTS))


def rounds(number: int = 7, **speeds: float) -> list[dict[str, Any]]:
    """Rounds of an arm in which every party has a speed of 100, but these."""
    found = {**dict.fromkeys(ALL, 100.0), **speeds}
    times = {name: 1e6 / found[name] for name in LATENCIES}
    one = {"speeds": found, "cpus": dict.fromkeys(ALL, 0.25), "p50_us": times, "p99_us": times}
    return [dict(one) for _ in range(number)]


def cell(number: int = 7, **arms: list[dict[str, Any]]) -> Cell:
    """A cell in which all arms are alike, but these."""
    alike = {arm: rounds(number) for arm in ARMS}
    return {"load": "tile", "ple": False, "features": "nopvspin", "guests": 6, "arms": {**alike, **arms}}


def result(*cells: Cell) -> Result:
    return Result(part="tile", origin=Origin(sources="x"), tile=[*cells])


def test_the_tile_has_all_kinds_of_parties() -> None:
    """Some are measured by throughput and some by latency; one guest has no mark, and the host has a task."""
    assert ALL == ("db", "web", "loop", "busy", "compile", "idle", "backup")
    assert names(5) == ("db", "web", "loop", "busy", "compile", "backup")
    assert LATENCIES == ("web", "idle")
    assert [party.name for party in GUESTS if not party.marked] == ["busy"]
    assert [(party.name, party.vcpus(4)) for party in GUESTS if party.wide] == [("loop", 4), ("compile", 4)]
    assert {party.vcpus(2) for party in GUESTS} == {2}


def test_every_arm_has_its_rounds() -> None:
    found = plan.turns(7)
    assert sorted(found) == sorted((number, arm) for number in range(7) for arm in ARMS)
    assert found[-7:] == [(number, "plain") for number in range(7)]
    assert [arm for _, arm in found[:3]] == list(seeds.BASELINES)


def test_the_mean_is_of_ratios() -> None:
    """A party that is twice as fast and one that is half as fast are even."""
    found = cell(plain=rounds(loop=200.0, web=50.0))
    assert plan.mean(found, "plain").rounds == 7
    assert plan.mean(found, "plain").ratio == pytest.approx(1.0)
    found = cell(plain=rounds(loop=2.0**6 * 100))
    assert plan.mean(found, "plain").ratio == pytest.approx(2.0)
    assert plan.mean(cell(default=rounds(backup=0.0)), "plain").ratio == pytest.approx(1.0)


def test_the_best_is_the_baseline_with_the_best_mean() -> None:
    found = cell(pinned=rounds(loop=200.0), balance=rounds(loop=150.0), plain=rounds(loop=400.0))
    assert plan.best(found) == "pinned"
    assert plan.mean(found, "plain", "pinned").ratio == pytest.approx(2 ** (1 / 6))


def test_a_party_without_progress_makes_the_mean_zero() -> None:
    assert plan.mean(cell(plain=rounds(db=0.0)), "plain").ratio == 0.0
    assert plan.mean(cell(default=rounds(db=0.0)), "plain").rounds == 0


def test_a_round_that_gangd_failed_counts() -> None:
    """A policy that was asked for and is not in force has a speed of 0; gangd's own choice has its figure."""
    failed = [{**one, "failed": "relaxed: not within 120 s"} for one in rounds()]
    assert plan.mean(cell(relaxed=failed), "relaxed").ratio == 0.0
    assert plan.mean(cell(plain=failed), "plain").ratio == pytest.approx(1.0)
    assert [*page.failures(cell(plain=failed))] == ["rounds that gangd failed: 7 (relaxed: not within 120 s)"]


@pytest.mark.parametrize(
    ("speeds", "verdicts"),
    [
        ({"loop": 300.0}, ["met", "met", "met", "met"]),
        ({"loop": 220.0}, ["missed", "met", "met", "met"]),
        ({}, ["missed", "missed", "met", "met"]),
        ({"loop": 900.0, "db": 90.0, "idle": 92.0}, ["met", "met", "missed", "met"]),
        ({"loop": 900.0, "db": 96.0, "idle": 90.0}, ["met", "met", "met", "missed"]),
    ],
)
def test_plain_is_judged_by_its_bars(speeds: dict[str, float], verdicts: list[str]) -> None:
    assert [bar.verdict for bar in plan.bars(cell(plain=rounds(**speeds)))] == verdicts


def test_few_rounds_leave_all_open() -> None:
    assert {bar.verdict for bar in plan.bars(cell(4))} == {"open"}


def test_a_result_is_whole_with_all_its_worlds() -> None:
    off, on = cell(), {**cell(), "ple": True, "features": "pv"}
    assert plan.is_whole([off, on], [False, True], 6, 7)
    assert not plan.is_whole([off], [False, True], 6, 7)
    assert plan.is_whole([off], [False], 6, 7)
    assert not plan.is_whole([off], [False], 6, 8)
    assert plan.lacks(cell(5), 7) == 10


def test_the_table_is_read_by_row() -> None:
    document = result(cell(relaxed=rounds(loop=200.0, idle=80.0)), cell(pinned=[]))
    text = [*page.lines(document)]
    (mean,) = (line for line in text if line.startswith("geometric mean  "))
    assert mean.split()[2:6] == ["1.00", "(1.00", "to", "1.00)"]
    (worst,) = (line for line in text if line.startswith("worst party"))
    assert worst.split()[-2:] == ["idle", "0.80"]
    (idle,) = (line for line in page.markdown(document) if line.startswith("| idle"))
    assert idle == (
        "| idle | p99 10.0 ms, 0.25 CPUs | 1.00 (1.00 to 1.00) | 1.00 (1.00 to 1.00) | 1.00 (1.00 to 1.00) "
        "| 0.80 (0.80 to 0.80) |"
    )
    assert [*page.lines(result(cell(pinned=[])))] == [*page.lines(result())] == []


def test_a_world_has_a_row() -> None:
    """The row says what schedules there, each arm's mean, and the party that it serves worst."""
    module = Result(part="tile", origin=Origin(sources="x", row="6.12", module=True, smp=2),
                    tile=[cell(plain=rounds(loop=64.0 * 100, busy=50.0))])  # fmt: skip
    ((world, *figures),) = page.worlds([("**old:** ", module, *module.tile)]).rows
    assert world == "**old:** kernel 6.12, gang.ko, 2 CPUs, PLE off, guests with nopvspin"
    assert figures == ["1.00 (1.00 to 1.00)", "db 1.00", "1.78 (1.78 to 1.78)", "busy 0.50",
                       "1.00 (1.00 to 1.00)", "db 1.00"]  # fmt: skip


def test_a_ring_has_its_last_entries() -> None:
    written = {number % 8: number for number in range(3, 11)}
    assert memory.window([written[place] for place in range(8)], 8, 11) == [8, 9, 10]
    assert memory.window([written[place] for place in range(8)], 0, 11) == [*range(3, 11)]


def test_others_are_threads_that_are_no_party() -> None:
    """Threads of one name count together, the most first; a new thread counts from its start."""
    before = {("vhost", 1, 2): 1.0, ("gangd", 3, 3): 5.0, ("CPU 0/KVM", 1, 4): 7.0}
    after = {("vhost", 1, 2): 3.0, ("vhost", 5, 6): 1.0, ("gangd", 3, 3): 5.0, ("CPU 0/KVM", 1, 4): 16.0}
    found = others.between(before, after, {4}, 10.0)
    assert found == {"vhost": 0.3}
    assert others.told(found) == "others 0.30 (vhost 0.30)"


def test_guest_and_host_agree() -> None:
    """The port, the address, the length of a request, and the place of the delays."""
    source = (GUEST / "init.c").read_text()
    numbers = {name: int(found) for name, found in re.findall(r"#define (\w+)\s+(\d+)\b", source)}
    assert (numbers["PORT"], numbers["REQUEST"]) == (web.PLACE[1], web.REQUEST.size)
    assert (numbers["DELAYS"], numbers["DELAYS_AT"]) == (memory.DELAYS, memory.DELAYS_AT)
    assert f'"{web.PLACE[0]}"' in (seeds_image.GUEST / "card.h").read_text()
