# SPDX-License-Identifier: Apache-2.0
"""gangctl top: the rates of `stats`, again and again; on a screen of its own, or as text with --batch."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterable
from itertools import count as numbers

from gangd.cli.command import Task, connected, interval, optional_domain
from gangd.cli.rates import rates
from gangd.cli.table import bar, count, seconds, share, table, typed, width
from gangd.control.client import Client
from gangd.control.schema import Document
from gangd.control.text import printable
from gangd.errors import GangError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import curses
    from typing import Any

HEADERS = ("Domain", "Policy", "CPU", "Co-run", "Run delay/s", "PAUSE/s", "LHP/s", "Exits/s", "Switches/s")
SORTS = ("name", "policy", "cpu", "corun", "delay", "pause", "lhp", "exits", "switches")  # for --sort
TEXTS = 2  # columns that are text: their order is ascending, that of numbers descending
KEYS = "q: quit, left and right: sort by another column, r: reverse, up and down: scroll"
FIXED = 4  # lines above the rows
STEPS = {"KEY_DOWN": 1, "KEY_UP": -1, "KEY_NPAGE": 1, "KEY_PPAGE": -1, "KEY_HOME": -(1 << 30)}
HEAR_SECONDS = 0.5  # Ctrl-C just before curses waits for a key is heard after it
POLL_SECONDS = 0.05  # a terminal that is gone answers every question for a key at once


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--interval",
        metavar="S",
        type=interval,
        default=2.0,
        help="seconds between two readings (default: 2)",
    )
    parser.add_argument("--batch", action="store_true", help="print one table after the other, as plain text")
    parser.add_argument("-n", "--iterations", metavar="N", type=_times, help="end after N tables")
    parser.add_argument("--sort", choices=SORTS, default="delay", help="column to sort by (default: delay)")
    parser.add_argument("--reverse", action="store_true", help="reverse the order")
    optional_domain(parser)


def _times(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= 1_000_000_000):
        raise ArgumentTypeError(f"'{printable(text)}' is not a number from 1 to 1000000000")
    return int(text)


class Meter:
    """Rates since the reading before. Raises what Client.stats raises, GangError when time stood still."""

    def __init__(self, client: Client, domain: str | None) -> None:
        self._client = client
        self._domain = domain
        self._before = client.stats(domain)

    def read(self) -> Document:
        """A stats document of rates (docs/json.md)."""
        before, self._before = self._before, self._client.stats(self._domain)
        return rates(before, self._before)


def _top(args: Namespace) -> int:
    plain = args.batch or args.json
    if not plain:
        _require_terminal()
    meter = Meter(connected(args), args.domain)
    if plain:
        _print(meter, args)
        return 0
    import curses

    with contextlib.suppress(KeyboardInterrupt):
        curses.wrapper(_watch, meter, args)
    return 0


def _require_terminal() -> None:
    """curses would end the program or draw nonsense. Raises GangError."""
    import curses

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise GangError("this is not a terminal (--batch prints plain text)")
    try:
        curses.setupterm()
        able = curses.tigetstr("cup") is not None
    except curses.error:
        able = False
    if not able:
        kind = printable(os.environ.get("TERM") or "none")
        raise GangError(f"a terminal of type {kind} cannot be drawn on (--batch prints plain text)")


def _print(meter: Meter, args: Namespace) -> None:
    for number in numbers(1):
        time.sleep(args.interval)
        document = meter.read()
        if args.json:
            print(json.dumps(document), flush=True)
        else:
            lines = frame(document, Order(args.sort, args.reverse), args.quiet)
            print(typed("\n".join(lines), sys.stdout.encoding), flush=True)
        if number == args.iterations:
            return
        if not args.json:
            print()


class Order:
    """The order of rows: by column `sort` of HEADERS; a number that is not known comes last."""

    def __init__(self, sort: str = "delay", reverse: bool = False) -> None:
        self.sort, self.reverse = SORTS.index(sort), reverse

    def press(self, key: str) -> None:
        """Sort by the column beside this one, or the other way round."""
        self.sort = (self.sort + {"KEY_RIGHT": 1, "KEY_LEFT": -1}.get(key, 0)) % len(HEADERS)
        self.reverse ^= key.lower() == "r"

    def sorted(self, rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """The rows; those that are equal in the column are in the order of names."""
        named = sorted(rows, key=lambda row: row[0])
        known = [row for row in named if row[self.sort] is not None]
        known.sort(key=lambda row: row[self.sort], reverse=(self.sort >= TEXTS) != self.reverse)
        return known + [row for row in named if row[self.sort] is None]


def _watch(screen: curses.window, meter: Meter, args: Namespace) -> None:
    """Draw until q is pressed or `args.iterations` tables were shown."""
    import curses

    with contextlib.suppress(curses.error):  # not every terminal can hide it
        curses.curs_set(0)
    order, offset, shown = Order(args.sort, args.reverse), 0, 0
    document: Document | None = None
    lines = [f"measuring for {args.interval:g} s ({KEYS})"]
    due = time.monotonic() + args.interval
    while True:
        if document:
            lines = frame(document, order, args.quiet)
        offset = _draw(screen, lines, 0 if args.quiet else FIXED, offset)
        if shown == args.iterations:
            return
        key = _wait(screen, due)
        if key in ("q", "Q"):
            return
        order.press(key)
        offset = max(0, offset + STEPS.get(key, 0) * (screen.getmaxyx()[0] // 2 if "PAGE" in key else 1))
        if time.monotonic() >= due:
            document, shown = meter.read(), shown + 1
            due = time.monotonic() + args.interval


def _wait(screen: curses.window, due: float) -> str:
    """The name of the next key or change of size, "" when the time is `due` or may be."""
    import curses

    screen.timeout(max(0, int(min(due - time.monotonic(), HEAR_SECONDS) * 1000)))
    key = screen.getch()
    left = due - time.monotonic()
    if key == -1 and left > 0:
        time.sleep(min(left, POLL_SECONDS))
    return "" if key == -1 else curses.keyname(key).decode("ascii", "replace")


def _draw(screen: curses.window, lines: list[str], fixed: int, offset: int) -> int:
    """Draw the first `fixed` lines, then the others from `offset` on as far as they fit. Return the offset,
    less where fewer lines than that are hidden."""
    screen.erase()
    height, across = screen.getmaxyx()
    offset = min(offset, max(0, len(lines) - height))
    lines = [*lines[:fixed], *lines[fixed + offset :]]
    hidden = len(lines) - height
    if hidden > 0:
        lines = [*lines[: height - 1], f" ... {hidden + 1} more"]
    for row, line in enumerate(lines):
        # An escape has more cells than its letter: cut afterwards.
        text = typed(line, screen.encoding)
        text = text.encode(screen.encoding, "backslashreplace").decode(screen.encoding)
        # The last cell of the last line cannot be written without scrolling.
        screen.addstr(row, 0, cut(text, across - 1))
    screen.refresh()
    return offset


def cut(text: str, cells: int) -> str:
    """Return as much of `text` as fits into that many terminal cells."""
    while text and width(text) > cells:
        text = text[: max(0, min(len(text) - 1, cells))]
    return text


def frame(document: Document, order: Order, quiet: bool = False) -> list[str]:
    """Return a reading as lines: when, how many, and a row for each domain."""
    rows = order.sorted(_row(d) for d in document["domains"])
    shown = [
        (name, policy, share(cpu), bar(corun), seconds(delay), *map(count, counts))
        for name, policy, cpu, corun, delay, *counts in rows
    ]
    clock = time.strftime("%H:%M:%S", time.localtime(document["time_seconds"]))
    marked = sum(d["policy"] is not None for d in document["domains"])
    about = (
        f"{clock}   {len(rows)} running, {marked} marked   rates over {document['interval_seconds']:.1f} s"
        f"   by {HEADERS[order.sort]}{', reversed' if order.reverse else ''}"
    )
    lines = table(HEADERS, shown, not quiet).split("\n") if shown else [" no domain is running"]
    return lines if quiet else [about, "", *lines]


def _row(d: Document) -> tuple[Any, ...]:
    """Sums over the vCPUs; unknown when one of them is."""

    def total(key: str) -> float | None:
        return _sum(v[key] for v in d["vcpus"])

    rates_of = ("pause_exits", "lhp_exits", "exits_total", "switches")
    return (
        d["name"],
        d["policy"],
        total("cpu_seconds"),
        d["corun_ratio"],
        total("run_delay_seconds"),
        *map(total, rates_of),
    )


def _sum(values: Iterable[float | None]) -> float | None:
    found = list(values)
    known = [value for value in found if value is not None]
    return sum(known) if found and len(known) == len(found) else None


COMMANDS = (
    Task(
        "top",
        "watch the rates of running domains",
        lambda a: "failed to watch " + (f"domain '{printable(a.domain)}'" if a.domain else "the domains"),
        _top,
        _arguments,
    ),
)
