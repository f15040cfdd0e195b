# SPDX-License-Identifier: Apache-2.0
"""The outcome of a demonstration: words, a picture, README's block and the exit status."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from bench.demo import outcome, report
from bench.demo.phases import PHASES, Phase, Run
from lab.observe.figures import Figures
from lab.observe.service import Cost
from lab.observe.timeline import Stretch

STATUS = {
    "backend": {"name": "sched_ext", "active": True, "reason": None},
    "probes": {"active": True, "reason": None},
    "own": {"pid": 77},
    "failures": [],
}
EXTRA = {"settings": {"repeats": 2, "seconds": 4.0, "virtual": True, "help_lab": []}}


def result(corun: float = 0.97, planned: int = 1) -> dict[str, Any]:
    """Return the run of a guest, and as many runs more as were planned and never reached."""
    run = Run({"barrier": 1}, True, {"g": "barrier"}, {"g": "uuid"})
    for phase in PHASES:
        found = Figures(throughput=1000.0 if phase == "gang" else 500.0, corun=corun)
        run.phases[phase] = Phase([{"g": found, "barrier": found}], measured=True, cpus={"g": [[0], [1]]},
                                  timeline=[Stretch(0, 0, 30_000, 0, 0)])  # fmt: skip
    run.statuses, run.differences, run.compared = [STATUS, STATUS], [], 60
    more = [Run({"linux": 2}, False) for _ in range(planned - 1)]
    return report.document([run, *more], Cost(8.0, 0.001, 60 << 20), 0.0, None, None, EXTRA)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of its own, with a README that has a block."""
    monkeypatch.setattr(outcome, "REPO", tmp_path)
    monkeypatch.setattr(outcome, "README", tmp_path / "README.md")
    monkeypatch.setattr(outcome, "PICTURE", tmp_path / "picture.svg")
    (tmp_path / "README.md").write_text(f"before\n{outcome.BEGIN} -->\nold\n{outcome.END}\nafter\n")
    (tmp_path / "build").mkdir()
    return tmp_path


def finished(home: Path, found: dict[str, Any], **options: bool) -> tuple[int, str, str]:
    """Exit status, words, README."""
    file = home / "build/result.json"
    file.write_text(json.dumps(found))
    said: list[str] = []
    status = outcome.finish(file, say=said.append, **options)
    return status, "\n".join(said), (home / "README.md").read_text()


def test_it_did_its_work(home: Path) -> None:
    status, said, readme = finished(home, result(), write=True)
    assert status == 0
    assert "gangd did its work (exit status 0)" in said
    assert "build/timeline.svg" in said
    ET.parse(home / "picture.svg")
    block = (home / "build/README.block").read_text()
    assert readme == f"before\n{block}after\n"
    assert outcome.sources() in block.splitlines()[0]
    assert "2.00x ok" in block


def test_the_readme_is_not_touched_unless_told(home: Path) -> None:
    assert "old" in finished(home, result())[2]
    assert not (home / "picture.svg").exists() and (home / "build/timeline.svg").exists()


def test_it_did_not(home: Path) -> None:
    """A failure is written, too: README says what is so."""
    status, said, readme = finished(home, result(corun=0.7), write=True)
    assert status == 1
    assert "did NOT" in said
    assert "0.700 FAILED" in readme


def test_strict(home: Path) -> None:
    assert finished(home, result(corun=0.9))[0] == 0
    assert finished(home, result(corun=0.9), strict=True)[0] == 1


def test_without_a_verdict_nothing_is_written(home: Path) -> None:
    status, said, readme = finished(home, result(planned=2), write=True)
    assert status == 69
    assert "no verdict" in said
    assert "old" in readme
    assert "not measured" in (home / "build/README.block").read_text()
