# SPDX-License-Identifier: Apache-2.0
"""`make nightly`: what is too long for a change to wait for; NIGHTLY="long intel" runs these parts alone.

The outcome of each part is in docs/results/nightly.json once it has ended, and in CONTRIBUTING.md's table.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lab import project

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "docs/results/nightly.json"
PAGE = ROOT / "CONTRIBUTING.md"
LOGS = ROOT / "build/nightly"
BEGIN, END = "<!-- nightly: begin (written by `make nightly`) -->", "<!-- nightly: end -->"
PARTS = {
    "long": "test-long",
    "intel": "test-intel",
    "debug": "test-debug",
    "fleet": "fleet",
    "matrix": "bench-kernel",
    "seeds": "bench-seeds",
}
Outcome = dict[str, Any]


def run(part: str) -> Outcome:
    """Run one part and return its outcome; its output is in build/nightly."""
    LOGS.mkdir(parents=True, exist_ok=True)
    log, begin, sources = LOGS / f"{part}.log", time.monotonic(), project.fingerprint("tests")
    print(f"make {PARTS[part]}: output in {log.relative_to(ROOT)}", flush=True)
    with log.open("w") as file:
        command = ["make", "-C", str(ROOT), PARTS[part]]
        status = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, check=False).returncode
    found = {"status": status, "said": summary(log.read_text(errors="replace"))}
    found |= {"seconds": round(time.monotonic() - begin), "date": time.strftime("%Y-%m-%d", time.gmtime())}
    print(f"make {PARTS[part]}: status {status} after {found['seconds'] / 60:.0f} minutes: {found['said']}")
    return found | {"sources": sources}


def summary(text: str) -> str:
    """Return the line in which pytest sums up; else the last one."""
    lines = [line.strip("= ") for line in text.splitlines() if line.strip("= ")]
    counts = [line for line in lines if re.match(r"\d+ (passed|failed|deselected|error)", line)]
    return (counts or lines or ["nothing"])[-1]


def rendered(page: str, outcomes: dict[str, Outcome]) -> str:
    """The page with the table of these outcomes."""
    head, _, rest = page.partition(BEGIN)
    return head + "\n".join([BEGIN, "", *_table(outcomes), "", END]) + rest.partition(END)[2]


def _table(outcomes: dict[str, Outcome]) -> Iterator[str]:
    yield "| part | command | outcome | minutes | date | sources |"
    yield "|---|---|---|---|---|---|"
    for part, target in PARTS.items():
        found = outcomes.get(part)
        cells = ["not run yet", "", "", ""]
        if found:
            verdict = "ok" if found["status"] == 0 else f"**failed** ({found['status']})"
            cells = [f"{verdict}: {found['said']}", f"{found['seconds'] / 60:.0f}", found["date"],
                     f"`{found['sources'][:12]}`"]  # fmt: skip
        yield f"| {part} | `make {target}` | {' | '.join(cells)} |"


def outcomes() -> dict[str, Outcome]:
    """Return what the last run of each part came to."""
    return json.loads(RESULT.read_text()) if RESULT.exists() else {}


def main() -> int:
    """0 when every part was; a part that failed does not keep the others from running."""
    parts = sys.argv[1:] or list(PARTS)
    unknown = set(parts) - set(PARTS)
    if unknown:
        print(
            f"error: no such part: {', '.join(sorted(unknown))} (there are {', '.join(PARTS)})",
            file=sys.stderr,
        )
        return 2
    found = outcomes()
    for part in parts:
        found[part] = run(part)
        RESULT.write_text(json.dumps(found, indent=1) + "\n")
        PAGE.write_text(rendered(PAGE.read_text(), found))
    return int(any(found[part]["status"] for part in parts))


if __name__ == "__main__":
    sys.exit(main())
