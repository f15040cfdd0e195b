# SPDX-License-Identifier: Apache-2.0
"""Runs the checks of one script inside the VM, and writes what came of each to the share.

A check is a function without arguments whose docstring is the sentence it proves. They run in the
order they stand in: booting is expensive, so they build on each other. The file is written
after each, and sent out where the share is a copy, so that a VM that is lost tells how far it came.

There is no second try. A guest that is dead or starved when a check fails is named in the failure.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from lab.observe.machine import Machine, OwnMachine, SharedMachine, between

SHARE = Path("/share")
SAVE = Path("/lab/save")  # of the lab's VMs (tests/lab/root/save)
POLL_SECONDS = 0.2
PATIENCE = float(os.environ.get("GANGD_PATIENCE", "1"))  # a debug kernel under an emulator needs more
FIGURES = PATIENCE == 1  # of time and memory are judged: a debug kernel is slow, and keeps freed memory
MEASUREMENTS = 10
DISTURBED = 0.1  # of the time
URGENT = -15
VIRTUAL = os.environ.get("GANGD_CLOCK") == "virtual"

T = TypeVar("T")

_notes: list[str] = []
_figures: dict[str, list[float]] = {}


def note(text: str) -> None:
    """Print `text`, and keep it for the report of the present check, whether it fails or not."""
    print(f"    {text}", flush=True)
    _notes.append(text)


def figure(name: str, value: float) -> None:
    """Keep a figure of the present check for the table of rows (bench/rows.py); a name may have several."""
    _figures.setdefault(name, []).append(round(value, 6))


def wait_for(true: Callable[[], object], seconds: float, what: str) -> float:
    """Poll until `true()`; how long that took. Fails with `what` when `seconds`, by patience, are over."""
    seconds *= PATIENCE
    begin = time.monotonic()
    while not true():
        waited = time.monotonic() - begin
        assert waited < seconds, f"not within {seconds:g} s: {what}"
        time.sleep(POLL_SECONDS)
    return time.monotonic() - begin


def machine() -> Machine:
    """Return the machine below the VM; in virtual time the VM itself, which nothing outside disturbs."""
    return OwnMachine() if VIRTUAL else SharedMachine(SHARE / "machine.json")


def undisturbed(measure: Callable[[], T]) -> T:
    """Return what `measure` returns, once the machine below the VM let it run; drop disturbed results.

    When anything else runs on the machine's CPUs, the emulator's two CPUs no longer run together, and
    nothing inside can. The share tells how long the emulator's threads waited (lab/observe/machine.py).
    In virtual time they run together, whatever else runs there.
    """
    below = machine()
    for _ in range(MEASUREMENTS):
        quiet = below.sample()
        result = measure()
        below.sample()  # may be older than the end; the next one is not
        noise = between(quiet, below.sample())
        if not noise.disturbed(DISTURBED):
            return result
        note(f"disturbed, measured again: the VM waited {noise.wait_share:.0%} of the time for a CPU of the "
             f"machine, and {noise.steal_share:.0%} of the machine's own time was stolen")  # fmt: skip
        time.sleep(1.0)
    raise AssertionError(f"the machine was too busy to measure anything, {MEASUREMENTS} times in a row")


def run(
    script: str,
    functions: Mapping[str, Any],
    prefixes: tuple[str, ...] = ("check_",),
    lost: Callable[[], str | None] = lambda: None,
    fresh: Callable[[], None] = lambda: None,
) -> None:
    """Run every function whose name starts with a prefix, in order; in a boot of the long run, those of the
    prefix `long_`, too.

    lost: why a guest is of no use any more, else None; asked when a check has failed. fresh: new guests for
    the checks that are left.
    """
    results: dict[str, dict[str, Any]] = {}
    prefixes += ("long_",) if os.environ.get("GANGD_LONG") else ()
    if PATIENCE > 1:
        # The verifier works in our time, beside loads that never sleep: minutes, on a debug kernel.
        os.setpriority(os.PRIO_PROCESS, 0, URGENT)
    for name, function in functions.items():
        if name.startswith(prefixes):
            results[name] = _run_one(name, function, lost, fresh)
            _save(SHARE / f"{Path(script).stem}.json", results)


def _run_one(
    name: str, function: Callable[[], None], lost: Callable[[], str | None], fresh: Callable[[], None]
) -> dict[str, Any]:
    print(f"{name} ...", flush=True)
    _notes.clear()
    _figures.clear()
    begin = time.monotonic()
    error = _attempt(function)
    seconds = time.monotonic() - begin
    if error and (reason := lost()):
        error = f"{error}\n{reason}\n{_attempt(fresh) or ''}"
    print(f"{name}: {'FAILED' if error else 'ok'} after {seconds:.1f} s", flush=True)
    if error:
        print(error, flush=True)
    return {"error": error, "notes": list(_notes), "figures": dict(_figures), "seconds": seconds}


def _attempt(function: Callable[[], None]) -> str | None:
    try:
        function()
    except Exception:
        return traceback.format_exc()
    return None


def _save(path: Path, results: Mapping[str, Any]) -> None:
    new = path.with_suffix(".new")
    new.write_text(json.dumps(results, indent=1))
    new.replace(path)
    if SAVE.exists():
        subprocess.run([SAVE], check=True)
