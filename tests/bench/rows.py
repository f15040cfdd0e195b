# SPDX-License-Identifier: Apache-2.0
"""`make bench-rows`: the figures of the checks on every kernel that schedules gangs, for docs/kernels.md.

Each row is booted once in virtual time for `kernel` and once for `together`, as the tests do; what they found
is committed as docs/results/rows.json. A row whose check failed is written down with the failure.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lab import kernels, project
from lab.paths import REPO
from lab.qemu import Clock
from vm.boots import run
from vm.boots.table import BOOTABLE, kinds, together

PLACE = REPO / "docs/results/rows.json"
TIMEOUT = 3000.0


def scheduled() -> list[str]:
    """Return the rows on which gangs are scheduled."""
    return [name for name, row in BOOTABLE.items() if row.features.sched_ext]


def measured(name: str) -> dict[str, Any]:
    """Boot a row, and return what its checks found: figures by name, and the checks that failed."""
    row = BOOTABLE[name]
    scripts = {"kernel": kinds(row), "together": together(row)}
    figures: dict[str, list[float]] = {}
    failed = []
    for script, prefixes in scripts.items():
        with tempfile.TemporaryDirectory() as share:
            boot = run.boot(name, [script], Path(share), bare=True, timeout=TIMEOUT, clock=Clock.VIRTUAL)
        for check in run.checks(script, prefixes):
            found = boot.results.get(script, {}).get(check, {"error": str(boot.lost or "not made")})
            failed += [f"{script}.{check}"] if found["error"] else []
            figures |= found.get("figures", {})
    version = kernels.prepared_version(row)
    return {"version": version, "date": time.strftime("%Y-%m-%d"), "failed": failed, "figures": figures}


def main(words: list[str]) -> Iterator[int]:
    """Measure the rows named, or all; yields 1 for each with a check that failed, else 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", nargs="*", default=scheduled())
    for name in parser.parse_args(words).rows:
        found = measured(name)
        known = json.loads(PLACE.read_text()) if PLACE.exists() else {}
        known[name] = {"sources": project.measured(False, False), **found}
        PLACE.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n")
        print(f"{name}: {found['failed'] or 'every check holds'}", flush=True)
        yield int(bool(found["failed"]))


if __name__ == "__main__":
    sys.exit(max(main(sys.argv[1:]), default=0))
