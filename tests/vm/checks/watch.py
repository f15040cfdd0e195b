# SPDX-License-Identifier: Apache-2.0
"""Checks of what a debug kernel noticed while the scripts before this one ran; the last script of a boot.

Unlike the other checks, these look at nothing of gangd's: they ask lockdep, KASAN, kmemleak and all
others that complain in the kernel log whether a task made them complain.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from pathlib import Path

from lab.observe.complaints import PROVOKED, excerpts, leaks, unexpected
from vm.checks.inside.check import SHARE, note, run

KMEMLEAK = Path("/sys/kernel/debug/kmemleak")
LOCKDEP = Path("/proc/lockdep_stats")
# kmemleak reports what it finds twice unreferenced and older than five seconds.
AGE_SECONDS = 6.0


def kernel_log() -> str:
    """Return the whole kernel log; a copy stays in the share."""
    log = subprocess.run(["dmesg"], capture_output=True, text=True, errors="replace", check=True).stdout
    (SHARE / "dmesg").write_text(log)
    return log


def check_the_kernel_is_watching() -> None:
    """Lockdep, KASAN and kmemleak are there, and lockdep has not switched itself off."""
    log = kernel_log()
    assert "KernelAddressSanitizer initialized" in log, "there is no KASAN in this kernel"
    assert KMEMLEAK.exists(), "there is no kmemleak in this kernel"
    found = dict(re.findall(r"^ *([\w -]+?): +(\d+)", LOCKDEP.read_text(), re.MULTILINE))
    note(f"lock classes {found['lock-classes']}, dependencies {found['direct dependencies']}")
    assert found["debug_locks"] == "1", "lockdep has switched itself off: see the first splat in the log"


def check_nothing_is_leaked() -> None:
    """Nothing was allocated in the kernel that nothing points to any more."""
    begin = time.monotonic()
    time.sleep(AGE_SECONDS)
    for _ in range(2):
        KMEMLEAK.write_text("scan")
    found = leaks(KMEMLEAK.read_text())
    note(f"{len(found)} leaked objects; two scans took {time.monotonic() - begin - AGE_SECONDS:.0f} s")
    assert not found, "\n\n".join(found[:10])


def check_the_kernel_log_is_clean() -> None:
    """Since power-on the kernel has complained about nothing but what checks provoked on purpose."""
    log = kernel_log()
    files = {script: SHARE / f"{script}.json" for script, _ in PROVOKED}
    made = [(s, name) for s, file in files.items() if file.exists() for name in json.loads(file.read_text())]
    found = unexpected(log, made)
    note(f"{len(log.splitlines())} lines, {len(found)} complaints")
    assert not found, "\n".join([*found, "", *excerpts(log)])


if __name__ == "__main__":
    run(__file__, dict(globals()))
