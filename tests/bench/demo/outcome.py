# SPDX-License-Identifier: Apache-2.0
"""The outputs made of result.json: the printed report, the picture, README's block, the exit status."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.demo import report, table
from gangd.trace.svg import svg
from gangd.trace.timeline import Run, Timeline
from lab import project
from lab.paths import REPO

README, PICTURE = REPO / "README.md", REPO / "docs/timeline.svg"
BEGIN, END = "<!-- demo: begin", "<!-- demo: end -->"
DIGITS = 12
HEADINGS = {
    "default": "1st: default scheduler",
    "pinned": "2nd: default scheduler, each vCPU pinned by gangd (balance)",
    "gang": "3rd: gangs",
    "after": "4th: unmarked, default scheduler again",
}


def sources() -> str:
    """The fingerprint of what is demonstrated, as README has it."""
    return project.measured(module=False)[:DIGITS]


def finish(file: Path, strict: bool = False, write: bool = False, say: Callable[[str], None] = print) -> int:
    """Show what is in result.json; into README.md too, if `write` and there is a verdict."""
    result: dict[str, Any] = json.loads(file.read_text())
    for line in report.lines(result):
        say(line)
    status = report.exit_status(result, strict)
    drawn = file.with_name("timeline.svg")
    drawn.unlink(missing_ok=True)
    run = next((run for run in result["runs"] if any(p["timeline"] for p in run["phases"].values())), None)
    if run:
        drawn.write_text(drawing(run))
        say(f"picture, who was on which CPU: {drawn.relative_to(REPO)}")
    block = file.with_name("README.block")
    block.write_text("\n".join(fenced(result, sources())) + "\n")
    say(f"all figures: {file.relative_to(REPO)}; README's block: {block.relative_to(REPO)}")
    if write and status == report.NO_VERDICT:
        say("README.md stays as it is: there is no verdict to write into it")
    elif write:
        README.write_text(with_block(README.read_text(), block.read_text()))
        if run:
            shutil.copy(drawn, PICTURE)
        say(f"written into {README.relative_to(REPO)}, and the picture to {PICTURE.relative_to(REPO)}")
    verdict = {0: "gangd did its work", 1: "gangd did NOT do its work"}
    say(f"{verdict.get(status, 'no verdict')} (exit status {status})")
    return status


def drawing(run: dict[str, Any]) -> str:
    """The picture of one run."""
    phases = [
        (HEADINGS[name], recorded(run["phases"][name]["timeline"]))
        for name in table.PHASES
        if name in run["phases"]
    ]
    names = [f"{number}: {load}" for number, load in enumerate(run["loads"].values())]
    return svg(f"PLE {'on' if run['ple'] else 'off'}: who is on which CPU", phases, names)


def recorded(stretches: Sequence[dict[str, Any]]) -> Timeline:
    """The timeline of a phase, from its stretches in result.json."""
    return Timeline(max((one["end"] for one in stretches), default=1), tuple(Run(**one) for one in stretches))


def fenced(result: dict[str, Any], fingerprint: str) -> Iterator[str]:
    """The block as README has it, markers included."""
    yield f"{BEGIN} (written by `make demo DEMO=--write`; of what decides who runs: {fingerprint}) -->"
    yield "```"
    yield from report.block(result)
    yield "```"
    yield END


def with_block(readme: str, block: str) -> str:
    """README's text with this block instead of the one it has."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END + "\n")
    if not begin or not end:
        raise ValueError("README.md has no block of the demo to replace")
    return before + block + after
