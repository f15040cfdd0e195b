# SPDX-License-Identifier: Apache-2.0
"""`make bench-noise`: one cell of the matrix, as the machine is and again beside two busy loops of ours.

In virtual time it must not matter. build/bench/noise.json has a row for each variant with PLE off and on.
"""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench import boot, result, settings, store
from bench.records import Machine, Noise, Result

LOOPS = 2
BUSY = ("setpriv", "--pdeathsig", "KILL", "--", sys.executable, "-c", "while True: pass")
RESULT = store.HOME / "noise.json"
CELL: dict[str, Any] = {
    "loads": "barrier",
    "guests": "4",
    "ple": "off,on",
    "variants": "default,pinned,relaxed",
    "rounds": settings.NOISE_ROUNDS,
    "seconds": settings.NOISE_SECONDS,
}


def measure(options: Namespace) -> int:
    """0 when all medians differ by less than what is wanted, 1 when not, or when one is missing."""
    options = settled(options)
    options.again = True
    documents, machine = {}, {}
    for name, loops in (("quiet", 0), ("noisy", LOOPS)):
        place = store.HOME / f"noise-{name}.json"
        with beside(loops), observed() as seen:
            status = boot.measure("matrix", options, place)
        if status:
            return status
        found = store.document(place)
        assert found is not None
        documents[name], machine[name] = found, seen
    quiet, noisy = documents["quiet"], documents["noisy"]
    document = result.empty("noise", quiet.origin)
    document.machine, document.rows = machine, rows(quiet, noisy)
    document.date, document.kernel = noisy.date, noisy.kernel
    document.wall_seconds = quiet.wall_seconds + noisy.wall_seconds
    document.lab_failures = quiet.lab_failures + noisy.lab_failures
    result.finish(document).write(RESULT)
    return 0 if all(row.met for row in document.judged) and document.rows else 1


def rows(quiet: Result, noisy: Result) -> list[Noise]:
    """Return each cell's medians, and their difference as a share of the quiet one, None without both."""
    found = []
    other = {(c.variant, *result.key_of(c)): c for c in noisy.cells}
    for cell in quiet.cells:
        match = other.get((cell.variant, *result.key_of(cell)))
        one, two = cell.median, match.median if match else None
        ple = "on" if cell.ple else "off"
        found.append(Noise(
            cell=f"{cell.load}, PLE {ple}, {cell.guests} guests, {cell.variant}", quiet=one, noisy=two,
            difference=(two - one) / one if one and two is not None else None,
            spread=cell.spread, rounds=len(cell.rates), failed=cell.failed + (match.failed if match else 0),
        ))  # fmt: skip
    return found


def settled(options: Namespace) -> Namespace:
    """Return the options, with those of the cell where none are given."""
    given = {name: value for name, value in vars(options).items() if value is not None}
    return Namespace(**{**vars(options), **CELL, **{name: given[name] for name in CELL if name in given}})


@contextlib.contextmanager
def beside(loops: int) -> Iterator[None]:
    """Meanwhile so many processes of ours use all CPU time they can get."""
    started = [subprocess.Popen(BUSY) for _ in range(loops)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


@contextlib.contextmanager
def observed() -> Iterator[Machine]:
    """Fills in what the machine's CPUs did meanwhile: how many of them were busy, of how many there are."""
    found = Machine(cpus=os.cpu_count() or 1)
    begin, busy = time.monotonic(), busy_seconds()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    yield found
    seconds, after = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    ours = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    found.seconds = round(seconds)
    found.busy, found.vm = (busy_seconds() - busy) / seconds, ours / seconds


def busy_seconds(stat: Path = Path("/proc/stat")) -> float:
    """CPU time of everybody on this machine; proc(5): user, nice, system, then idle and iowait."""
    words = [int(word) for word in stat.read_text().splitlines()[0].split()[1:9]]
    return (sum(words) - words[3] - words[4]) / os.sysconf("SC_CLK_TCK")
