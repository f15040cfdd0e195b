# SPDX-License-Identifier: Apache-2.0
"""`make monitoring`: what promtool says of docs/monitoring, a line each. test_monitoring.py asks it too."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs/monitoring"
RULES = FOLDER / "gangd.rules.yml"
WATCHER = FOLDER / "watcher.rules.yml"
CASES = FOLDER / "tests.yml"
CHECKS = {"check": (RULES, WATCHER), "test": (CASES,)}


def complaint(what: str) -> str | None:
    """Return the fault that `promtool WHAT rules` finds with its files, None when there is none."""
    words = ["promtool", what, "rules", *map(str, CHECKS[what])]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return (done.stdout + done.stderr).strip() if done.returncode else None


def main() -> int:
    """1 when a check fails, and then what promtool said."""
    wrong = {what: complaint(what) for what in CHECKS}
    for what, found in wrong.items():
        verdict = "ok" if found is None else "FAILED"
        files = " ".join(str(path.relative_to(ROOT)) for path in CHECKS[what])
        print(f"{verdict:6} promtool {what} rules {files}")
        if found is not None:
            print(found)
    return int(any(found is not None for found in wrong.values()))


if __name__ == "__main__":
    sys.exit(main())
