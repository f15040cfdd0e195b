# SPDX-License-Identifier: Apache-2.0
"""`make publish`: all of docs/results, measured where it is missing or old, and then the pages.

As many VMs measure as the machine has cores (lanes.py), each a piece of a part (pieces.py). An interrupted
run goes on where it was, also in another clone: what is published counts as measured.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from signal import SIGTERM

from bench import conditions, lanes, pieces, result, settings, store
from bench.grid import Table
from bench.lanes import Lanes, in_lanes, told
from bench.pieces import Job, Piece
from bench.records import Result
from lab.errors import LabError
from lab.paths import REPO
from lab.qemu import Clock

PAGES = ("benchmarks", "kernels")
# By part the options of each of its runs.
JOBS: tuple[tuple[str, str], ...] = (
    ("matrix", ""),
    ("overhead", ""),
    ("adaptive", ""),
    ("noise", ""),
    *(("shares", f"--kernel {row}") for row in ("6.18", "7.2-bpo", "6.12", "6.1")),
    *(("matrix", f"--smp {n} --vcpus {n} --loads barrier --guests 4 --ple off") for n in (4, 8)),
    ("seeds", ""),
    ("latency", ""),
    ("tile", ""),
    ("tile", "--kernel 6.12 --ple off"),  # gang.ko schedules; the emulator has no PLE for this kernel
)


def everything(parse: Callable[[list[str]], Namespace], asked: Namespace) -> int:
    """Measure what is not done. Returns 1 if something could not be measured, else 0."""
    jobs = chosen([job(part, parse(words.split())) for part, words in JOBS], asked.only)
    number = max(1, asked.lanes)
    if asked.dry_run:
        return report(jobs, lack(jobs), number)
    begin = time.monotonic()
    with lanes.alone() as lock:
        found = lack(jobs)
        report(jobs, found, number)
        status = measured(jobs, found, number, command, lock)
    pages()
    documents = [store.document(store.PUBLISHED / each.place.name) for each in jobs]
    hours = sum(document.wall_seconds for document in documents if document) / 3600
    print(f"this run took {told(time.monotonic() - begin)}, and what is published {hours:.1f} hours of VMs")
    return status


def job(part: str, options: Namespace) -> Job:
    """Return a part with today's conditions and all of its options."""
    options = pieces.complete(part, options)
    # `noise` is a cell of the matrix, measured twice.
    return Job(part, options, conditions.origin("matrix" if part == "noise" else part, options))


def chosen(jobs: Sequence[Job], only: str | None) -> list[Job]:
    """Return the jobs of these names, or all. Raises LabError."""
    names = {each.name: each for each in jobs}
    wanted = only.split(",") if only else list(names)
    unknown = [name for name in wanted if name not in names]
    if unknown:
        raise LabError(f"cannot publish {', '.join(unknown)}: the parts are {', '.join(names)}")
    return [names[name] for name in wanted]


def lack(jobs: Sequence[Job]) -> list[Piece]:
    """Return the pieces of all that is not done, in the order of their begin."""
    return lanes.ordered([piece for each in jobs if not pieces.is_done(each) for piece in pieces.cut(each)])


def report(jobs: Sequence[Job], found: Sequence[Piece], number: int) -> int:
    """Print what will be measured, why, and how long that takes."""
    rows = [
        [piece.name, f"{piece.lacking} of {piece.cells}", told(piece.seconds), piece.why] for piece in found
    ]
    left = {piece.job.name for piece in found}
    done = ", ".join(each.name for each in jobs if each.name not in left)
    seconds = [piece.seconds for piece in found]
    notes = [f"all VMs {in_lanes(seconds, 1)}; {number} at once: {in_lanes(seconds, number)}"]
    notes += [f"of today: {done}"] if done else []
    table = Table(["Piece", "Cells", "Expected", "Why"], rows, align="lrrl", notes=notes)
    print("\n".join(table.text() if found else notes[1:]), flush=True)
    return 0


def measured(
    jobs: Sequence[Job], found: Sequence[Piece], number: int, command: Callable[[Piece], list[str]], lock: int
) -> int:
    """Publish what was measured by hand, and measure the pieces; 1 if one could not be."""
    for each in jobs:
        gather(each)
        publish(each)
    return Lanes(found, number, command, begin, end).run(lock)


def gather(found: Job) -> None:
    """Write what is known of a part as its result, also what a killed run left: none is running."""
    pieces.known(found).write(found.place)
    for place in pieces.left_over(found):
        place.unlink()


def begin(piece: Piece) -> None:
    """Write the result that a piece goes on with."""
    if piece.suffix:
        pieces.begun(piece, Result.read(piece.job.place)).write(piece.place)


def end(piece: Piece, status: int) -> str:
    """Merge a piece into its part's result and publish that. Returns the outcome in words."""
    if piece.suffix:
        whole = Result.read(piece.job.place)
        pieces.merge(piece.job, whole, Result.read(piece.place))
        whole.write(piece.job.place)
        piece.place.unlink()
    publish(piece.job)
    shutil.rmtree(store.HOME / f"share-{piece.name}", ignore_errors=True)
    found = store.document(piece.job.place)
    left = len(pieces.lacking(piece.job.part, found, piece.options)) if found else piece.lacking
    outcomes = dict.fromkeys((-SIGTERM, 128 + SIGTERM), "was ended") | {0: "ends"}
    outcome = outcomes.get(status, f"failed with status {status}, see its log,")
    return f"{outcome} with {piece.cells - left} of {piece.cells} cells"


def command(piece: Piece) -> list[str]:
    """Return the command that measures a piece."""
    part = "no-overhead" if piece.job.part == "matrix" else piece.job.part
    options = piece.options
    words = [f"--{part}", "--kernel", options.kernel, "--clock", options.clock, *settings.words(options)]
    return [sys.executable, "-m", "bench", *words, *(["--piece", piece.suffix] if piece.suffix else [])]


def publish(found: Job) -> None:
    """Copy a part's result, as far as it is, to docs/results for the pages to quote: if it was measured in
    virtual time and under today's conditions."""
    store.PUBLISHED.mkdir(exist_ok=True)
    document = store.document(found.place)
    today = document and document.date and document.origin == found.origin
    measured_some = document and pieces.listed(found.part, document)
    if document and today and measured_some and document.origin.clock == Clock.VIRTUAL.value:
        result.finish(document).write(store.PUBLISHED / found.place.name)


def pages() -> None:
    """Write the pages anew that quote docs/results."""
    for page in PAGES:
        subprocess.run([sys.executable, "-m", f"docs.tools.{page}"], cwd=REPO, check=True)
