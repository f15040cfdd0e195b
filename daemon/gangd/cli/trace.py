# SPDX-License-Identifier: Apache-2.0
"""gangctl trace: who was on which CPU when, who waited, whose turn it was: as lines, as a picture, as a file
for Perfetto. gangctl records by itself; of gangd it learns which threads are whose vCPUs."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Sequence
from pathlib import Path

from gangd.cli.command import Task, connected, interval, number, print_document
from gangd.cli.table import count, seconds, share, table, typed
from gangd.control.client import Client
from gangd.control.text import printable
from gangd.errors import GangError, NotRunning

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gangd.cli.structs import Trace
    from gangd.control.schema import Document
    from gangd.trace.recorder import Recording
    from gangd.trace.timeline import Timeline

SECONDS_MAX = 60.0  # of what a host does in a minute a file has some hundred MB
HEADERS = ("", "Domain", "Ran", "Waited", "Co-run", "Turns", "PAUSE exits", "LHP exits", "Yields")


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--seconds", metavar="N", type=_seconds, default=5.0, help="to record (default: 5, at most 60)"
    )
    parser.add_argument(
        "--window",
        metavar="MS",
        type=_window,
        default=100.0,
        help="milliseconds that lines and picture show, from the middle of the recording (default: 100)",
    )
    parser.add_argument("--svg", metavar="FILE", help="write the window as a picture")
    parser.add_argument("--perfetto", metavar="FILE", help="write all as a trace for ui.perfetto.dev")
    parser.add_argument("domains", metavar="DOMAIN", nargs="*", help="id, name or UUID; none: all that run")


def _seconds(text: str) -> float:
    value = interval(text)
    if value > SECONDS_MAX:
        raise ArgumentTypeError(f"'{printable(text)}' is more than {SECONDS_MAX:.0f} seconds")
    return value


def _window(text: str) -> float:
    return number(text, 1, 1000 * SECONDS_MAX, "milliseconds")


def _trace(args: Namespace) -> int:
    from gangd.trace.recorder import record
    from gangd.trace.timeline import build

    guests = _guests(connected(args), args.domains)
    threads = {v["tid"]: (n, v["vcpu"]) for n, one in enumerate(guests) for v in one["vcpus"] if v["tid"]}
    if not threads:
        raise NotRunning("no vCPU of a running domain has a thread")
    recorded = time.time()
    recording = record(threads, args.seconds, _progress(args))
    timeline = build(recording, threads)
    names = [printable(one["name"]) for one in guests]
    window = min(1e3 * args.window, timeline.length)
    begin = (timeline.length - window) / 2
    _write(args, timeline, timeline.window(begin, window), names)
    _keep(timeline, window, names, recorded)
    if args.json:
        print_document(_document(guests, timeline, recording))
    else:
        print(typed(_shown(timeline, begin, window, names, args), sys.stdout.encoding))
        for line in _cautions(recording):
            print(f"gangctl: {line}", file=sys.stderr)
    return 0


def _guests(client: Client, domains: Sequence[str]) -> list[Document]:
    """Return the counters of each domain once: they name the threads."""
    found: dict[str, Document] = {}
    for domain in domains or (None,):
        found |= {one["uuid"]: one for one in client.stats(domain)["domains"]}
    return list(found.values())


def _progress(args: Namespace) -> Callable[[float, int], None]:
    """Return what tells of the time and events so far, to a terminal."""
    if args.json or args.quiet or not sys.stderr.isatty():
        return lambda *_: None

    def told(past: float, size: int) -> None:
        end = "\r" if past + 0.1 < args.seconds else "\n"
        sys.stderr.write(f"recorded {past:.1f} of {args.seconds:g} s, {size // 24:,d} events{end}")
        sys.stderr.flush()

    return told


def _write(args: Namespace, timeline: Timeline, part: Timeline, names: Sequence[str]) -> None:
    """Write the files that were asked for. Raises GangError."""
    from gangd.trace import perfetto
    from gangd.trace.svg import of_guests

    made = {}
    if args.svg:
        made[args.svg] = of_guests(part, names)
    if args.perfetto:
        made[args.perfetto] = json.dumps(perfetto.document(timeline, names))
    for file, text in made.items():
        try:
            Path(file).write_text(text)
        except OSError as error:
            raise GangError(f"cannot write '{printable(file)}': {error.strerror}") from error


def _keep(timeline: Timeline, window: float, names: Sequence[str], recorded: float) -> None:
    """Keep the picture for gangd's page; without it the trace is as good, and a sentence says why."""
    from gangd.config import RUNTIME
    from gangd.trace.kept import MOST, keep
    from gangd.trace.svg import excerpt

    try:
        keep(RUNTIME, excerpt(timeline, window, names, MOST), recorded)
    except GangError as error:
        print(f"gangctl: {error.cause}", file=sys.stderr)


def _shown(timeline: Timeline, begin: float, window: float, names: Sequence[str], args: Namespace) -> str:
    from gangd.trace.blocks import LEGEND, MARGIN, coloured, letter, lines, plain

    columns = shutil.get_terminal_size((100, 24)).columns - 1
    colours = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    cell = window / max(columns - MARGIN, 1) / 1e6
    head = (
        f" {window / 1e3:g} ms of {timeline.length / 1e6:.2f} s, from {begin / 1e6:.2f} s on; "
        f"a column is {seconds(cell)}"
    )
    drawn = lines(timeline.window(begin, window), columns, coloured if colours else plain)
    rows = [
        (letter(guest), name, seconds(one.run), seconds(one.wait), share(one.corun), count(one.turns),
         count(one.pauses), count(one.lhps), count(one.yields))
        for guest, (name, one) in enumerate(zip(names, timeline.shares(len(names)), strict=True))
    ]  # fmt: skip
    account = table(HEADERS, rows, not args.quiet)
    return "\n".join([head, "", *drawn, "", f" {LEGEND}", "", account])


def _cautions(recording: Recording) -> list[str]:
    """Return what the picture lacks, a sentence each."""
    told = [f"not seen are {text}" for text in recording.missing]
    if recording.lost:
        told.append(f"{recording.lost:,d} events were lost: the host was faster than this program read them")
    return told


def _document(guests: Sequence[Document], timeline: Timeline, recording: Recording) -> Trace:
    from dataclasses import asdict

    from gangd.cli.structs import Trace, Traced, TracedMoment, TracedRun, TracedSpan

    domains = [
        Traced(uuid=guest["uuid"], name=guest["name"], run_seconds=one.run, wait_seconds=one.wait,
               corun_ratio=one.corun, turns=one.turns, pause_exits=one.pauses, lhp_exits=one.lhps,
               yields=one.yields)
        for guest, one in zip(guests, timeline.shares(len(guests)), strict=True)
    ]  # fmt: skip
    return Trace(
        seconds=timeline.length / 1e6,
        lost=recording.lost,
        missing=list(recording.missing),
        domains=domains,
        runs=[TracedRun(**asdict(one)) for one in timeline.runs],
        waits=[TracedSpan(**asdict(one)) for one in timeline.waits],
        turns=[TracedSpan(vcpu=None, **asdict(one)) for one in timeline.turns],
        pauses=[TracedMoment(**asdict(one)) for one in timeline.pauses],
        yields=[TracedMoment(**asdict(one)) for one in timeline.yields],
    )


COMMANDS = (
    Task(
        "trace",
        "record which vCPU runs on which CPU, who waits, and whose turn it is",
        lambda a: "failed to trace the domains",
        _trace,
        _arguments,
    ),
)
