# SPDX-License-Identifier: Apache-2.0
"""Which results are gone on with, and which are published."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bench import conditions, pieces, publish, settings, store
from bench.records import Cell, Result
from lab import meaning, project
from lab.paths import REPO
from lab.qemu import Clock

PAGE = REPO / "docs/tools/benchmarks.py"
RESULTS = [each for each in (REPO / "docs/results").glob("*.json") if '"origin"' in each.read_text()]


def options(*words: str, clock: Clock = Clock.VIRTUAL) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kernel", default="6.18")
    settings.add_options(parser)
    found = settings.complete(parser.parse_args(words))
    found.clock = clock.value
    return found


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(store, "HOME", tmp_path)
    monkeypatch.setattr(store, "PUBLISHED", tmp_path / "results")
    return tmp_path


def measured(place: Path, found: argparse.Namespace) -> None:
    """A result with a cell in it."""
    store.begin("matrix", conditions.origin("matrix", found), place, found.again)
    document = store.document(place)
    assert document is not None
    cells = [Cell(variant="default", load="spin", ple=False, guests=2, rates=[1.0])]
    replace(document, cells=cells, lab_failures=["one"], date="2026-01-01").write(place)


def kept(place: Path, found: argparse.Namespace) -> bool:
    store.begin("matrix", conditions.origin("matrix", found), place, found.again)
    return Result.read(place).lab_failures == ["one"]


def test_a_run_goes_on_where_it_was(home: Path) -> None:
    """More rounds and other cells belong to the same result; `--again` begins a new one."""
    measured(home / "matrix.json", options())
    assert kept(home / "matrix.json", options("--loads", "ipi", "--rounds", "9"))
    assert not kept(home / "matrix.json", options("--again"))


@pytest.mark.parametrize("words", [("--smp", "4"), ("--seconds", "2"), ("--slot-ms", "10")])
def test_another_setting_begins_another_result(home: Path, words: tuple[str, str]) -> None:
    measured(home / "matrix.json", options())
    assert not kept(home / "matrix.json", options(*words))


def test_so_do_other_sources_and_another_clock(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured(home / "matrix.json", options())
    assert not kept(home / "matrix.json", options(clock=Clock.REAL))
    measured(home / "matrix.json", options())
    monkeypatch.setattr(project, "measured", lambda module, planner: "another")
    assert not kept(home / "matrix.json", options())


def test_only_virtual_time_is_published(home: Path) -> None:
    measured(home / "matrix.json", options(clock=Clock.REAL))
    publish.publish(publish.job("matrix", options(clock=Clock.REAL)))
    assert not (home / "results" / "matrix.json").exists()
    measured(home / "matrix.json", options())
    publish.publish(publish.job("matrix", options()))
    published = store.document(home / "results" / "matrix.json")
    assert published is not None and published.origin == conditions.origin("matrix", options())


def test_a_published_result_never_gives_way_to_an_older_one(home: Path) -> None:
    """A clone has its own last result, of other conditions: the published one is gone on with, and stays."""
    measured(home / "matrix.json", options())
    publish.publish(publish.job("matrix", options()))
    measured(home / "matrix.json", options("--slot-ms", "10"))
    publish.publish(publish.job("matrix", options()))
    published = store.document(home / "results" / "matrix.json")
    assert published is not None and published.origin == conditions.origin("matrix", options())
    assert kept(home / "matrix.json", options())


def test_a_driver_is_all_that_it_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver is all that it imports and the program that it runs."""
    files: list[str] = []
    monkeypatch.setattr(conditions, "meaning", lambda paths: files.extend(path.name for path in paths))
    conditions.driver("overhead")
    assert {"overhead.py", "guest_pool.py", "domains.py", "stats.py", "wakeup.c"} <= set(files)
    assert not {"boot.py", "publish.py", "page.py"} & set(files)


def test_sources_are_what_figures_are_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page, a generated file, what schedules nobody change nothing; a policy does, and so may gang.ko."""
    monkeypatch.setattr(project, "REPO", tmp_path)
    monkeypatch.setattr(meaning, "REPO", tmp_path)
    for name in (*project.SCHEDULER, *project.PLANNER):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "policies/strict.py").write_text("1")
    (tmp_path / project.APART[1]).mkdir()
    before = project.measured()
    for name in (
        "policies/README.md",
        "daemon/gangd/bpf/core.so",
        "kernel-helper/gang.bpf.d",
        f"{project.APART[1]}/core.c",
        "daemon/gangd/answers.py",
    ):
        (tmp_path / name).write_text("x")
    assert project.measured() == before
    (tmp_path / "kernel-helper/module").mkdir()
    without = project.measured(module=False)
    (tmp_path / "kernel-helper/module/slot.c").write_text("x")
    assert project.measured(module=False) == without
    assert project.measured() != before
    before, scheduler = project.measured(), project.measured(planner=False)
    (tmp_path / "policies/strict.py").write_text("2")
    assert (project.measured() != before, project.measured(planner=False)) == (True, scheduler)


def test_a_clone_continues_the_published_result(home: Path) -> None:
    """The clone has measured nothing itself; a result on more CPUs, or on another kernel, is another one."""
    found = options()
    measured(home / "matrix.json", found)
    publish.publish(publish.job("matrix", found))
    (home / "matrix.json").unlink()
    assert kept(home / "matrix.json", found)
    wide = options("--smp", "4")
    new = options("--kernel", "7.3")
    names = [store.name_of("matrix", each) for each in (found, wide, new)]
    assert names == ["matrix", "matrix-4cpus", "matrix-7.3"]
    assert store.name_of("shares", wide) == "shares-6.18"


def test_a_result_is_done_when_it_has_every_cell(home: Path) -> None:
    found = options(
        "--loads", "ipi", "--guests", "2", "--ple", "on", "--variants", "default", "--rounds", "1"
    )
    measured(home / "matrix.json", found)
    assert not pieces.is_done(publish.job("matrix", found))
    document = store.document(home / "matrix.json")
    assert document is not None
    cell = Cell(variant="default", load="ipi", ple=True, guests=2, rates=[1.0])
    replace(document, cells=[cell]).write(home / "matrix.json")
    assert pieces.is_done(publish.job("matrix", found))
    assert not pieces.is_done(publish.job("matrix", options("--loads", "ipi,spin")))


@pytest.mark.parametrize("words", [words for part, words in publish.JOBS if part == "matrix" and words])
def test_a_wide_host_has_a_place_on_the_page(words: str) -> None:
    """Under the name that its run gives it."""
    found = options(*words.split())
    assert f'"{store.name_of("matrix", found)}"' in PAGE.read_text()


def known(found: Any) -> Any:
    """Return a document without what is unknown, empty or zero."""
    if isinstance(found, dict):
        return {name: value for name, each in found.items() if (value := known(each))}
    return [known(each) for each in found] if isinstance(found, list) else found


@pytest.mark.parametrize("place", RESULTS)
def test_a_published_result_is_read_and_written_whole(place: Path, tmp_path: Path) -> None:
    """No figure of a file is lost, also of a file of an earlier format."""
    Result.read(place).write(tmp_path / "copy.json")
    old, new = (json.loads(each.read_text()) for each in (place, tmp_path / "copy.json"))
    assert known(new) == {**known(old), "origin": known(new)["origin"]}
    assert known(old["origin"]).items() >= known(new["origin"]).items()
