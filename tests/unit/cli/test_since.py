# SPDX-License-Identifier: Apache-2.0
"""gangctl stats --since mark: a domain before its mark and since, and what is said where nothing is known."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from fakes import GANG, FakeService, counters, guest, local_client, reading, snapshot
from gangd.cli.main import main
from gangd.cli.since import duration
from gangd.control import client as control
from gangd.control import structs
from gangd.model.domain import Domain, Mark
from gangd.model.readings import UNWATCHED
from gangd.model.snapshot import DomainStats, VcpuTotals

WEB = guest("web", 3)
MARKED = guest("web", 3, mark=Mark("relaxed"))
HOURS = counters(WEB, 1000.0)


def later(**gang: float) -> DomainStats:
    """The counters at the reading, and 700 s of a gang that runs together more than before."""
    vcpus = tuple(
        vcpu._replace(
            cpu_seconds=vcpu.cpu_seconds + 400.0,
            run_delay_seconds=vcpu.run_delay_seconds + 100.0,
            switches=vcpu.switches + 40_000,
            pause_exits=vcpu.pause_exits + 4_000,
            lhp_exits=vcpu.lhp_exits + 400,
        )
        for vcpu in HOURS.vcpus
    )
    counted = replace(GANG, run_seconds=800.0, apart_seconds=40.0, **gang)
    return replace(
        HOURS, vcpus=vcpus, run_seconds=1250.0, corun_seconds=1075.0, costop_seconds=175.0, gang=counted
    )


def service(now: DomainStats, domain: Domain = MARKED, **fields: Any) -> FakeService:
    """A gangd that took a reading of `web` 700 s ago, in these circumstances."""
    before = snapshot(WEB, stats={WEB.uuid: HOURS})
    made = FakeService(snapshot(domain, stats={WEB.uuid: now}, time=1_000_800.0, read_at=1200.0))
    made.readings[WEB.uuid] = replace(reading(before, WEB), **fields)
    return made


@pytest.fixture
def talk(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Have gangctl talk to a service."""

    def to(made: FakeService) -> FakeService:
        monkeypatch.setattr(control, "connect", lambda bus=None, timeout=0, **others: local_client(made))
        return made

    return to


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(words)
    out, err = capsys.readouterr()
    return code, out, err


TABLE = """\
 'web': marked 11 min ago, policy relaxed; before: 2 h of its life

 Measure          Before   Since the mark
-------------------------------------------
 Co-run           80.0 %   95.0 %
 Co-stop          20.0 %   5.0 %
 Run delay        20.0 %   20.0 %
 LHP/CPU s        50.0     1.0
 PAUSE/CPU s      200.0    10.0
 Switches/CPU s   200.0    100.0
 CPUs             0.14     1.14
 Apart            -        5.0 %

"""


def test_the_table(talk: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Each row compares a ratio of the time before with that of the 700 s since; --quiet leaves the rows."""
    talk(service(later()))
    code, out, err = run(capsys, "stats", "web", "--since", "mark")
    assert (code, err) == (0, "")
    assert [line.rstrip() for line in out.splitlines()] == TABLE.splitlines()[:-1]
    quiet = run(capsys, "-q", "stats", "--domain", "web", "--since", "mark")[1]
    assert quiet.split() == " ".join(TABLE.splitlines()[4:]).split()


def test_a_changed_policy_names_the_one_before(talk: Any, capsys: pytest.CaptureFixture[str]) -> None:
    talk(service(later(), before="balance", policy="strict"))
    out = run(capsys, "stats", "web", "--since", "mark")[1]
    assert out.startswith(" 'web': policy changed 11 min ago from balance to strict; before: 2 h of its life")


EXITS = ("lhp_per_cpu_second", "pause_per_cpu_second")
PROBES = ("corun_ratio", "costop_ratio", *EXITS)
BLIND = replace(
    later(),
    run_seconds=None,
    corun_seconds=None,
    costop_seconds=None,
    vcpus=tuple(v._replace(pause_exits=None, lhp_exits=None) for v in later().vcpus),
)
NO_DELAY = replace(later(), vcpus=tuple(v._replace(run_delay_seconds=None) for v in later().vcpus))
IDLE = replace(HOURS, gang=replace(GANG, run_seconds=0.0, apart_seconds=0.0))
ALL = (*PROBES, "run_delay_ratio", "switches_per_cpu_second", "apart_ratio")


@pytest.mark.parametrize(
    ("now", "fields", "before", "since"),
    [
        (later(), {}, {"apart_ratio"}, set()),
        (later(), {"watched": UNWATCHED}, {"apart_ratio", *EXITS}, set()),
        (later(), {"life_seconds": None}, {"apart_ratio", "seconds", "cpus"}, set()),
        (later(), {"stats": replace(HOURS, gang=GANG)}, set(), set()),
        (replace(later(), gang=None), {}, {"apart_ratio"}, {"apart_ratio"}),
        (BLIND, {}, {"apart_ratio"}, set(PROBES)),
        (NO_DELAY, {}, {"apart_ratio"}, {"run_delay_ratio"}),
        (IDLE, {}, {"apart_ratio"}, set(ALL)),
        (replace(later(), run_seconds=1.0), {}, {"apart_ratio"}, {"corun_ratio", "costop_ratio"}),
    ],
    ids=["all", "unwatched", "no life", "a gang", "no gang", "blind", "no delay", "idle", "probes anew"],
)
def test_unknown_counters_are_null(
    talk: Any,
    capsys: pytest.CaptureFixture[str],
    now: DomainStats,
    fields: dict[str, Any],
    before: set[str],
    since: set[str],
) -> None:
    """Neither a counter that is missing nor one that was started anew becomes 0; the table shows `-`."""
    talk(service(now, **fields))
    document = json.loads(run(capsys, "--json", "stats", "web", "--since", "mark")[1])
    msgspec.convert(document, structs.Since)
    for part, unknown in (("before", before), ("since", since)):
        assert {key for key, value in document[part].items() if value is None} == unknown, part
    assert (document["time_seconds"], document["mark_time_seconds"]) == (1_000_800.0, 1_000_100.0)
    shown = run(capsys, "-q", "stats", "web", "--since", "mark")[1].split()
    assert shown.count("-") == len(before - {"seconds"}) + len(since)


def test_exits_are_compared_with_the_cpu_time_in_which_they_were_counted(
    talk: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """A gangd that started late counted 200,001 exits less 1, in 500 CPU seconds of 1000."""
    talk(service(later(), watched=VcpuTotals(500.0, 9.0, 9, {}, 1, 0)))
    before = json.loads(run(capsys, "--json", "stats", "web", "--since", "mark")[1])["before"]
    assert (before["pause_per_cpu_second"], before["lhp_per_cpu_second"]) == (400.0, 100.0)
    assert before["cpus"] == pytest.approx(1000.0 / 7200.0)


@pytest.mark.parametrize(
    ("domain", "kept", "code", "sentence"),
    [
        (MARKED, False, "Failed", "gangd has no reading from before its mark: the guest was marked before"),
        (WEB, True, "NotMarked", "domain is not marked (gangctl mark)"),
        (guest("web", mark=Mark()), True, "NotRunning", "domain is not running"),
    ],
)
def test_there_is_nothing_to_compare(
    talk: Any, capsys: pytest.CaptureFixture[str], domain: Domain, kept: bool, code: str, sentence: str
) -> None:
    """A sentence says why there is nothing to compare, with the exit status 1."""
    made = talk(service(later(), domain))
    if not kept:
        made.readings.clear()
    status, out, err = run(capsys, "stats", "web", "--since", "mark")
    assert (status, out) == (1, "")
    first, second = err.splitlines()
    assert first == "error: failed to compare domain 'web' with before its mark"
    assert second.startswith(f"error: {sentence}")
    told = json.loads(run(capsys, "--json", "stats", "web", "--since", "mark")[1])
    assert told["error"]["code"] == code


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--since", "mark"), "option --since needs a domain"),
        (("web", "--since", "mark", "--interval", "5"), "mutually exclusive"),
        (("web", "--since", "dawn"), "dawn"),
    ],
)
def test_words_that_do_not_fit(
    talk: Any, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], sentence: str
) -> None:
    talk(service(later()))
    status, out, err = run(capsys, "stats", *words)
    assert (status, out) == (1, "") and sentence in err


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0.4, "0 s"),
        (45.9, "45 s"),
        (725.0, "12 min"),
        (10_800.0, "3 h"),
        (11_100.0, "3 h 5 min"),
        (187_300.0, "2 d 4 h"),
        (172_900.0, "2 d"),
    ],
)
def test_a_time_in_words(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text
