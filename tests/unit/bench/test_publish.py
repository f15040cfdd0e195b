# SPDX-License-Identifier: Apache-2.0
"""How `make publish` cuts what is to be measured, measures the pieces side by side, and goes on."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from msgspec.structs import replace

from bench import lanes, pieces, publish, result, settings, store
from bench.pieces import Job, Piece
from bench.records import Cell, Result
from bench.seeds import plan
from lab.errors import LabError
from unit.bench.test_store import options

# This program stands for a piece's process: it has a VM, measures for a while, and at its end, also if it is
# terminated, its result has one cell more.
WORKER = """
import signal, subprocess, sys, time
from pathlib import Path
from bench.records import Cell, Result

def terminated(*_):
    sys.exit(143)

place, load, seconds, status = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
signal.signal(signal.SIGTERM, terminated)
vm = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "--", "sleep", "100"])
begin = time.monotonic()
try:
    place.with_suffix(".vm").write_text(f"{vm.pid}")
    time.sleep(seconds)
finally:
    found = Result.read(place)
    found.cells.append(Cell(variant="default", load=load, ple=True, guests=2, rates=[1.0]))
    found.date, found.kernel, found.lab_failures = "2026-01-01", "6.18", [load]
    found.wall_seconds += 10
    found.write(place)
    place.with_suffix(".times").write_text(f"{begin} {time.monotonic()}")
    vm.kill()
sys.exit(status)
"""
# This program runs publish with such processes; a test kills it.
RUN = """
import sys
from pathlib import Path
from bench import command, lanes, publish, store
from unit.bench import test_publish as here

import signal
signal.signal(signal.SIGTERM, command._terminated)
store.HOME = Path(sys.argv[1])
store.PUBLISHED = store.HOME / "results"
with lanes.alone() as lock:
    jobs = [here.job()]
    publish.measured(jobs, publish.lack(jobs), 2, lambda piece: here.worker(piece, 100), lock)
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(store, "HOME", tmp_path)
    monkeypatch.setattr(store, "PUBLISHED", tmp_path / "results")
    monkeypatch.setattr(lanes, "POLL_SECONDS", 0.02)
    return tmp_path


@cache
def job(loads: str = "ipi,spin") -> Job:
    """A job of the matrix with a cell for each load."""
    few = ("--guests", "2", "--ple", "on", "--variants", "default", "--rounds", "1")
    return publish.job("matrix", options("--loads", loads, *few))


def worker(piece: Piece, seconds: float = 0.3, status: int = 0) -> list[str]:
    return [sys.executable, "-c", WORKER, str(piece.place), piece.options.loads, str(seconds), str(status)]


def measured(found: Job, number: int = 2, failing: str = "") -> int:
    with lanes.alone() as lock:
        return publish.measured(
            [found],
            publish.lack([found]),
            number,
            lambda piece: worker(piece, status=int(piece.options.loads == failing)),
            lock,
        )


@pytest.mark.parametrize(("part", "words"), publish.JOBS)
def test_pieces_measure_all_cells_and_none_twice(home: Path, part: str, words: str) -> None:
    """Nothing is there yet, so each piece lacks all of its cells; no two have a file in common."""
    found = whole(part, words)
    cut = list(pieces.cut(found))
    each = [pieces.places(part, piece.options) for piece in cut]
    places = list(itertools.chain(*each))
    assert sorted(places) == sorted(set(places)) == sorted(pieces.places(part, found.options))
    assert [piece.lacking for piece in cut] == list(map(len, each))
    assert len({piece.place for piece in cut}) == len(cut)
    values = getattr(found.options, pieces.CUT[part]).split(",") if part in pieces.CUT else [""]
    assert len(cut) == len(values)


@pytest.mark.parametrize(("part", "words"), publish.JOBS)
def test_the_command_of_a_piece_asks_for_its_cells(home: Path, part: str, words: str) -> None:
    """Each piece is measured under the conditions of its part, and the process has the same cells."""
    for piece in pieces.cut(whole(part, words)):
        again = pieces.complete(part, parsed(publish.command(piece)[3:]))
        assert vars(again) == vars(piece.options)
        assert store.name_of(part, again) == piece.job.name


def test_no_piece_begins_with_a_cell_that_no_host_measures(home: Path) -> None:
    """The driver starts as many guests as its options name at most."""
    cut = {piece.suffix: piece.options.guests for piece in pieces.cut(whole("matrix", ""))}
    assert cut.pop("sleepwake") == "2,4"
    assert set(cut.values()) == {"2,4,8"}


@cache
def whole(part: str, words: str) -> Job:
    """A job of publish."""
    return publish.job(part, parsed(words.split()))


def parsed(words: list[str]) -> argparse.Namespace:
    """Options as the command line has them, not completed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kernel", default="6.18")
    settings.add_options(parser)
    return parser.parse_known_args(words, argparse.Namespace(clock="virtual"))[0]


def test_pieces_run_at_once_and_are_merged(home: Path) -> None:
    """The result has the cells, losses and times of all, and is published; a piece leaves no result."""
    assert measured(job()) == 0
    times = [list(map(float, each.read_text().split())) for each in home.glob("matrix.*.times")]
    assert max(begin for begin, _ in times) < min(end for _, end in times)
    for place in (home / "matrix.json", home / "results/matrix.json"):
        found = Result.read(place)
        assert {cell.load for cell in found.cells} == set(found.lab_failures) == {"ipi", "spin"}
        assert (found.wall_seconds, found.date, found.kernel) == (20, "2026-01-01", "6.18")
    assert not [*home.glob("matrix.*.json"), *home.glob("share-*")]
    assert pieces.is_done(job())


def test_one_lane_runs_one_piece_at_a_time(home: Path) -> None:
    assert measured(job(), 1) == 0
    times = sorted(list(map(float, each.read_text().split())) for each in home.glob("matrix.*.times"))
    assert times[0][1] < times[1][0]


def test_a_lost_piece_loses_no_other(home: Path) -> None:
    assert measured(job(), failing="ipi") == 1
    assert {cell.load for cell in Result.read(home / "matrix.json").cells} == {"ipi", "spin"}


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_killed_ends_its_vms_and_keeps_what_they_measured(home: Path, sent: int) -> None:
    """After SIGTERM all is merged and published; after SIGKILL the next run does that, cut in another way."""
    run = subprocess.Popen([sys.executable, "-c", RUN, str(home)])
    places = [home / f"matrix.{load}.vm" for load in ("ipi", "spin")]
    wait_for(lambda: all(place.exists() and place.read_text() for place in places))
    run.send_signal(sent)
    run.wait(timeout=30)
    with lanes.alone():  # the processes of the run hold it to their end
        assert all(ended(int(place.read_text())) for place in places)
    if sent == signal.SIGTERM:
        assert {cell.load for cell in Result.read(home / "results/matrix.json").cells} == {"ipi", "spin"}
    else:
        assert len(pieces.left_over(job())) == 2
    assert not publish.lack([job()])
    (piece,) = pieces.cut(job("ipi,spin,barrier"))
    assert piece.suffix == "barrier"
    assert measured(job("ipi,spin,barrier")) == 0
    found = Result.read(home / "results/matrix.json")
    assert {cell.load for cell in found.cells} == {"ipi", "spin", "barrier"}
    assert found.wall_seconds == 30


def wait_for(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def ended(pid: int) -> bool:
    """True if no such process is left, now or soon."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 0)
            if "Z" in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1][:3]:
                return True
            time.sleep(0.05)
            continue
        return True
    return False


def test_a_piece_begins_with_its_own_cells_and_no_others(home: Path) -> None:
    """A piece is one run, to the instruction, whatever was measured beside it."""
    found = job("ipi,spin")
    whole = result.empty("matrix", found.origin)
    whole.cells = [cell("ipi"), cell("spin")]
    whole.wall_seconds, whole.lab_failures = 100, ["lost"]
    for piece in pieces.cut(found):
        began = pieces.begun(piece, whole)
        assert [each.load for each in began.cells] == [piece.suffix]
        assert (began.wall_seconds, began.lab_failures) == (0, [])


def cell(load: str) -> Cell:
    return Cell(variant="default", load=load, ple=True, guests=2, rates=[1.0])


def test_another_clone_s_cells_are_gone_on_with(home: Path) -> None:
    """Cells that were measured here are published beside those that another clone has published."""
    found = job("ipi,spin,barrier")
    empty = replace(result.empty("matrix", found.origin), date="2026-01-01")
    store.PUBLISHED.mkdir()
    replace(empty, cells=[cell("ipi")]).write(store.PUBLISHED / "matrix.json")
    replace(empty, cells=[cell("spin")]).write(home / "matrix.json")
    assert [piece.suffix for piece in publish.lack([found])] == ["barrier"]
    assert measured(found) == 0
    assert len(Result.read(store.PUBLISHED / "matrix.json").cells) == 3


def test_a_piece_of_other_conditions_is_left_out(home: Path) -> None:
    found = job()
    whole = result.empty("matrix", found.origin)
    other = result.empty("matrix", replace(found.origin, sources="other"))
    pieces.merge(found, whole, replace(other, cells=[cell("ipi")], wall_seconds=5))
    assert (whole.cells, whole.wall_seconds) == ([], 0)


def test_the_cells_of_earlier_sources_are_carried_once(home: Path) -> None:
    """The seeds' page has no holes: what is measured anew stays, with its date, until a piece has it."""
    found = publish.job("seeds", parsed(["--loads", "ebizzy,barrier", "--guests", "2", "--ple", "off"]))
    key = {"load": "ebizzy", "ple": False, "features": "pv", "guests": 2, "arms": {a: [] for a in plan.ARMS}}
    old = result.empty("seeds", replace(found.origin, sources="other"))
    replace(old, seeds=[key], wall_seconds=50, date="2026-01-01").write(home / "seeds-6.18.json")
    assert {piece.why for piece in pieces.cut(found)} == {"measured with other sources"}
    publish.gather(found)
    publish.gather(found)
    whole = Result.read(home / "seeds-6.18.json")
    assert ([each["date"] for each in whole.before], whole.wall_seconds) == (["2026-01-01"], 50)
    for piece in pieces.cut(found):
        assert not pieces.begun(piece, whole).before


def test_the_report_says_what_is_measured_why_and_for_how_long(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = job("ipi,spin,barrier")
    old = result.empty("matrix", replace(found.origin, driver="other"))
    store.PUBLISHED.mkdir()
    published = replace(old, cells=[cell("ipi"), cell("spin")], wall_seconds=1200, date="2026-01-01")
    published.write(store.PUBLISHED / "matrix.json")
    publish.report([found], publish.lack([found]), 2)
    said = capsys.readouterr().out.splitlines()
    assert said[1].split(maxsplit=4) == ["matrix.ipi", "1", "of", "1", said[1].split(maxsplit=4)[4]]
    assert all("10 min  measured with other driver" in line for line in said[1:4])
    assert said[4:] == ["all VMs 30 min; 2 at once: 20 min"]


@pytest.mark.parametrize(
    ("waiting", "running", "words"),
    [
        ([600, 600, 600], [], "20 min"),
        ([3600, 7200], [3600], "3.0 h"),
        ([None, 600], [], "10 min and 1 of unknown length"),
        ([], [None], "0 min and 1 of unknown length"),
    ],
)
def test_the_time_that_is_left_is_told_over_lanes(
    waiting: list[float | None], running: list[float | None], words: str
) -> None:
    assert lanes.in_lanes(waiting, 2, running) == words


def test_a_name_that_no_part_has_is_refused() -> None:
    with pytest.raises(LabError, match=r"cannot publish matrices: the parts are matrix$"):
        publish.chosen([job()], "matrices")
    assert publish.chosen([job()], None) == [job()]
