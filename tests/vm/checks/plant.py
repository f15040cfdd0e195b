# SPDX-License-Identifier: Apache-2.0
"""A module that makes mistakes (plant/), on a debug kernel: watch.py and complaints.py see each of them.

In a boot of its own, because nothing else can be judged after it.
"""

from __future__ import annotations

import subprocess
import time

from lab.observe.complaints import headlines, leaks
from vm.checks import watch
from vm.checks.inside.check import SHARE, note, run


def planted(what: str) -> list[str]:
    """Load the module with this mistake, unload it; the headlines that came of it."""
    before = len(headlines(watch.kernel_log()))
    subprocess.run(["insmod", str(SHARE / "plant.ko"), f"what={what}"], check=True)
    subprocess.run(["rmmod", "plant"], check=True)
    found = headlines(watch.kernel_log())[before:]
    for line in found:
        note(line)
    return found


def check_a_leak_is_seen() -> None:
    """Memory a module forgot is reported by kmemleak, also when the module has gone."""
    assert not planted("leak")
    time.sleep(watch.AGE_SECONDS)
    for _ in range(2):
        watch.KMEMLEAK.write_text("scan")
    found = [
        leak for leak in leaks(watch.KMEMLEAK.read_text()) if "(size 4096)" in leak and '"insmod"' in leak
    ]
    note(f"{len(found)} of 16 lost objects are reported")
    assert found


def check_sleeping_under_a_spinlock_is_seen() -> None:
    """A function that may sleep, called with a spinlock held, is reported."""
    assert any("sleeping function called from invalid context" in line for line in planted("sleep"))


def check_locks_in_both_orders_are_seen() -> None:
    """Two locks taken in both orders are reported by lockdep, though nothing was ever stuck."""
    assert planted("lock")
    assert "possible circular locking dependency" in watch.kernel_log()


def check_a_wrong_access_is_seen() -> None:
    """A byte written behind an object is a KASAN report; last, because lockdep goes when one comes."""
    assert any("KASAN: slab-out-of-bounds" in line for line in planted("access"))


if __name__ == "__main__":
    run(__file__, dict(globals()))
