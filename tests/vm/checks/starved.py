# SPDX-License-Identifier: Apache-2.0
"""A planted fault: a thread that gets no CPU, and a warning of the kernel. The first check has to fail."""

from __future__ import annotations

from pathlib import Path

from lab.observe.symptoms import symptoms
from vm.checks.inside.check import run
from vm.checks.inside.threads import busy, hog

WARNING = "<4>WARNING: CPU: 0 PID: 1 at planted.c:1 planted+0x1/0x2"
found: list[str] = []


def check_that_fails_beside_a_starved_thread() -> None:
    """A thread shares its CPU with a real-time task that never sleeps; then the check fails."""
    with busy(2) as (process, tids), hog(1):
        seen = symptoms(process.pid, dict(enumerate(tids)))
        assert [seen.vcpus[vcpu].starved for vcpu in (0, 1)] == [False, True], str(seen)
        found.append(str(seen))
    raise AssertionError("a guest makes no progress")


def check_that_holds() -> None:
    """Nothing is wrong but a line in the kernel's log."""
    Path("/dev/kmsg").write_text(f"{WARNING}\n")


if __name__ == "__main__":
    run(__file__, dict(globals()), lost=lambda: f"it was starved: {found[0]}" if found else None)
