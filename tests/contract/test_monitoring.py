# SPDX-License-Identifier: Apache-2.0
"""The rules of docs/monitoring hold, name only what there is, and have a runbook for each alert."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.tools import monitoring
from gangd.cli.main import commands, parser

RUNBOOKS = sorted((monitoring.FOLDER / "runbooks").glob("*.md"))
TEXT = monitoring.RULES.read_text()
RULE = re.compile(r"^  - (alert|record): (\S+)\n(.*?)(?=^  - |^- |\Z)", re.MULTILINE | re.DOTALL)
RULES = {name: (kind, body) for kind, name, body in RULE.findall(TEXT)}
ALERTS = {name: body for name, (kind, body) in RULES.items() if kind == "alert"}
RECORDS = {name: body for name, (kind, body) in RULES.items() if kind == "record"}
# Prometheus itself records these of every target.
OWN = {"up"}
LABEL = "gangd_runbooks"  # external, of Prometheus: where the runbooks are
EXPORTER = "http://{{ $labels.instance }}/runbooks"
BASE = f"{{{{ with $externalLabels.{LABEL} }}}}{{{{ . }}}}{{{{ else }}}}{EXPORTER}{{{{ end }}}}"
SECTIONS = ["What it means", "How to confirm", "What to do", "How to silence it"]


@pytest.mark.parametrize("what", monitoring.CHECKS)
def test_promtool_agrees(what: str) -> None:
    assert monitoring.complaint(what) is None


def test_make_monitoring_fails_when_a_rule_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An alert with another threshold is one line that says FAILED, and exit status 1."""
    (tmp_path / "gangd.rules.yml").write_text(TEXT.replace("ratio_rate5m > 0.5", "ratio_rate5m > 0.9"))
    (tmp_path / "tests.yml").write_text(monitoring.CASES.read_text())
    (tmp_path / "watcher.rules.yml").write_text(monitoring.WATCHER.read_text())
    files = {"check": (tmp_path / "gangd.rules.yml",), "test": (tmp_path / "tests.yml",)}
    monkeypatch.setattr(monitoring, "CHECKS", files)
    monkeypatch.setattr(monitoring, "ROOT", tmp_path)
    assert monitoring.main() == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [
        "ok     promtool check rules gangd.rules.yml",
        "FAILED promtool test rules tests.yml",
    ]


def test_every_metric_is_one_of_gangds() -> None:
    """docs/metrics.md has it; a recorded name is one that is recorded here, and is level:metric:operation."""
    known = set(
        re.findall(r"^\| `(gangd_[a-z_]+)` \|", (monitoring.ROOT / "docs/metrics.md").read_text(), re.M)
    )
    used = set(re.findall(r"(?<![\w:.])gangd_\w+(?![\w:])", TEXT)) - {LABEL}
    assert used and used <= known
    assert set(re.findall(r"\w+:\w+:\w+", TEXT)) == set(RECORDS)
    assert [name for name in RECORDS if not re.fullmatch("[a-z]+:[a-z_]+:[a-z0-9_]+", name)] == []
    bodies = [body.replace(BASE, "") for body in ALERTS.values()]
    bare = {body.split("expr: ")[1].split("{")[0] for body in bodies if "gangd_" not in body}
    assert bare == OWN


def test_pages_name_records_that_there_are() -> None:
    """A query which a page tells others to use has an answer: its record is in the rules."""
    pages = [monitoring.ROOT / "docs/stacks.md", *monitoring.FOLDER.rglob("*.md")]
    named = {found for page in pages for found in re.findall(r"\b[a-z]+:gangd_\w+:\w+", page.read_text())}
    named |= {found for page in pages for found in re.findall(r"\bgangd:\w+:\w+", page.read_text())}
    assert "gangd:node_contention:ratio" in named and named <= set(RECORDS)


def test_every_rule_has_its_reason() -> None:
    """The comment above it; records that are alike share one."""
    lines = TEXT.splitlines()
    first = [i for i, line in enumerate(lines) if re.match("  - (alert|record):", line)]
    bare = [lines[i].split(": ", 1)[1] for i in first if not lines[i - 1].startswith("  #")]
    assert bare == [*list(RECORDS)[1:4], "instance:gangd_overcommit:ratio"]


def test_every_alert_says_what_to_do() -> None:
    """Severity, two sentences, and a runbook on the exporter or at another base; no runbook without alert."""
    assert {path.stem for path in RUNBOOKS} == set(ALERTS)
    page = (monitoring.FOLDER / "README.md").read_text()
    for name, body in ALERTS.items():
        severity = re.search(r"severity: (critical|warning)$", body, re.M)
        assert severity and f"[{name}](runbooks/{name}.md) | {severity[1]} |" in page
        assert re.search("summary: .", body) and re.search("description: .", body)
        assert f"runbook_url: '{BASE}/{name}.md'\n" in body + "\n"


def test_every_alert_has_a_firing_and_a_silent_case() -> None:
    cases = monitoring.CASES.read_text()
    found = re.findall(r"alertname: (\w+),?\s+eval_time: \w+,?\s+exp_alerts:(.*)", cases)
    assert {name for name, rest in found if not rest} == set(ALERTS)
    assert {name for name, rest in found if "[]" in rest} == set(ALERTS)


def named(text: str) -> Iterator[str]:
    """Every command line of gangctl's in a page."""
    yield from re.findall(r"^    (gangctl .*)$", text, re.M)
    yield from re.findall(r"`(gangctl [^`]*)`", text)


@pytest.mark.parametrize("path", RUNBOOKS, ids=lambda path: path.stem)
def test_a_runbook_names_real_commands(path: Path) -> None:
    """A runbook has the four sections, and gangctl's own parser takes each line, which names a command."""
    text = path.read_text()
    assert re.findall("^## (.*)$", text, re.M) == SECTIONS and text.startswith(f"# {path.stem}\n")
    lines = list(named(text))
    assert lines
    for line in lines:
        words = shlex.split(line)[1:]
        assert words[0] in {command.name for command in commands()}
        parser().parse_args(words)
