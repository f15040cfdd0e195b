# SPDX-License-Identifier: Apache-2.0
"""A timeline as lines of characters: a line for each CPU, then one for each vCPU. Pure.

A column is a stretch of time. On a CPU's line it has the letter of the guest that ran there longest, on a
vCPU's what that did longest; a PAUSE exit that was lock-holder preemption shows in any column.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from string import ascii_lowercase, ascii_uppercase

from gangd.trace.timeline import Run, Timeline, Turn, Wait

LETTERS = ascii_lowercase + ascii_uppercase
NOBODY, RUNS, WAITS, SLEEPS, LHP = "·", "█", "░", " ", "!"
LEGEND = f"{RUNS} runs   {WAITS} waits for a CPU   {LHP} PAUSE exit while a sibling waits   {NOBODY} no guest"
# Background colours of a terminal that the colour-blind can tell apart (Okabe and Ito's, in 256 colours).
COLOURS = (25, 214, 36, 175, 166, 74, 227, 240)
MARGIN = 10  # columns before the first one of time
VCPUS_MAX = 32  # lines

Paint = Callable[[str, int], str]


def letter(guest: int) -> str:
    """The letter of a guest; they come again after the last."""
    return LETTERS[guest % len(LETTERS)]


def plain(text: str, guest: int) -> str:
    """Leave it as it is."""
    return text


def coloured(text: str, guest: int) -> str:
    """Put it on the background of a guest, by the escape sequences of terminals."""
    return f"\x1b[48;5;{COLOURS[guest % len(COLOURS)]}m\x1b[38;5;15m{text}\x1b[0m"


def lines(part: Timeline, columns: int, paint: Paint = plain) -> Iterator[str]:
    """Draw `part` in lines that are so wide."""
    columns = max(columns - MARGIN, 1)
    cell = part.length / columns
    for cpu in sorted({run.cpu for run in part.runs}):
        here = [run for run in part.runs if run.cpu == cpu]
        yield _label(f"CPU {cpu}") + _longest(here, columns, cell, paint)
    if part.turns:
        yield _label("turn of") + _longest(part.turns, columns, cell, paint)
    yield from _vcpus(part, columns, cell)


def _label(text: str) -> str:
    return f" {text:<{MARGIN - 2}} "[:MARGIN]


def _longest(spans: Iterable[Run | Turn], columns: int, cell: float, paint: Paint) -> str:
    """Fill each column with the guest that has the most of it, if that is half or more."""
    had: list[dict[int, float]] = [defaultdict(float) for _ in range(columns)]
    for span in spans:
        for column, length in _columns(span, columns, cell):
            had[column][span.guest] += length
    made = []
    for found in had:
        guest = max(found, key=found.__getitem__, default=None)
        mine = guest is not None and found[guest] >= cell / 2
        made.append(paint(letter(guest), guest) if mine and guest is not None else NOBODY)
    return "".join(made)


def _columns(span: Run | Turn | Wait, columns: int, cell: float) -> Iterator[tuple[int, float]]:
    """Yield the columns that a span reaches into, and how far."""
    first, last = int(span.begin / cell), min(int(span.end / cell), columns - 1)
    for column in range(first, last + 1):
        yield column, min(span.end, (column + 1) * cell) - max(span.begin, column * cell)


def _vcpus(part: Timeline, columns: int, cell: float) -> Iterator[str]:
    everybody = part.vcpus()
    for guest, vcpu in everybody[:VCPUS_MAX]:
        line = [SLEEPS] * columns
        for spans, text in ((part.runs, RUNS), (part.waits, WAITS)):
            for column, share in _filled(spans, guest, vcpu, columns, cell):
                line[column] = text if share >= cell / 2 else line[column]
        for pause in part.pauses:
            if pause.lhp and (pause.guest, pause.vcpu) == (guest, vcpu):
                line[min(int(pause.time / cell), columns - 1)] = LHP
        yield _label(f"{letter(guest)} {vcpu}") + "".join(line)
    if len(everybody) > VCPUS_MAX:
        yield f" and {len(everybody) - VCPUS_MAX} vCPUs more: name the domains, or write a file"


def _filled(
    spans: Iterable[Run | Wait], guest: int, vcpu: int, columns: int, cell: float
) -> Iterable[tuple[int, float]]:
    found: dict[int, float] = defaultdict(float)
    for span in spans:
        if (span.guest, span.vcpu) == (guest, vcpu):
            for column, length in _columns(span, columns, cell):
                found[column] += length
    return found.items()
