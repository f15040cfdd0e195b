# SPDX-License-Identifier: Apache-2.0
"""Timelines as an SVG: a block for each, a lane for each CPU, a colour for each guest. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from xml.sax.saxutils import escape

from gangd.errors import GangError
from gangd.trace.timeline import Run, Timeline, Turn, Wait

# Okabe and Ito's colours, which the colour-blind can tell apart.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#F0E442", "#000000")
LEFT, WIDTH, RIGHT = 110, 900, 20
TITLE, ROW, LANE, GAP, AXIS = 20, 18, 22, 6, 22
THIN, NAME, LABEL = 8, 16, 9  # a lane of waits; characters of a name, there and beside a lane
NOTE = "grey: no guest; the number is that of the vCPU"
TRACED = "; black: PAUSE exit while a sibling waits; pale: waits for a CPU"
FONT = 'font-family="sans-serif" font-size="12"'
SPAN, HALVES = 80, 16  # bytes of a span at least; 60 s become 1 ms


def excerpt(timeline: Timeline, window: float, names: Sequence[str], most: int) -> str:
    """Draw the middle of a timeline: `window` of it, halved until the picture has at most `most` bytes.

    Raises GangError if no such picture of these guests is small enough.
    """
    for half in range(HALVES):
        length = window / 2**half
        part = timeline.window((timeline.length - length) / 2, length)
        if len(part.runs) + len(part.waits) > most // SPAN:
            continue
        drawn = of_guests(part, names)
        if len(drawn.encode()) <= most:
            return drawn
    raise GangError(
        f"cannot draw {len(names)} guests in a picture of {most:,d} bytes: they have too many lanes"
    )


def of_guests(part: Timeline, names: Sequence[str]) -> str:
    """Draw a part of a timeline, titled by its length and number of guests."""
    return svg(f"{round(part.length / 1e3, 2):g} ms of {len(names)} guests", [("", part)], names)


def svg(title: str, phases: Sequence[tuple[str, Timeline]], names: Sequence[str]) -> str:
    """phases: heading, and what is drawn below it, all on one scale. names: of the guests, any text."""
    cpus = sorted({run.cpu for _, part in phases for run in part.runs})
    waiting = sorted({wait.guest for _, part in phases for wait in part.waits})
    has_turns = any(part.turns for _, part in phases)
    length = max((part.length for _, part in phases), default=0) or 1.0
    lanes = (len(cpus) + has_turns) * (LANE + GAP) + len(waiting) * (THIN + GAP)
    block = TITLE + lanes + AXIS
    shown = {guest: names[guest] for guest in sorted({who[0] for _, part in phases for who in part.vcpus()})}
    places = _places(list(shown.values()))
    top = 2 * TITLE + ROW * (places[-1][1] + 2 if places else 1)
    size = f'width="{LEFT + WIDTH + RIGHT}" height="{top + len(phases) * block}"'
    traced = bool(waiting) or any(part.pauses for _, part in phases)
    made = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} {FONT}>',
            '<rect width="100%" height="100%" fill="white"/>',
            f'<text x="{LEFT}" y="20" font-weight="bold">{escape(title)}</text>',
            *_legend(shown, places),
            f'<text x="{LEFT}" y="{top - ROW}" fill="#666">{NOTE}{TRACED * traced}</text>']  # fmt: skip
    for number, (heading, part) in enumerate(phases):
        drawing = _Phase(part, names, top + number * block, length)
        made += drawing.lines(heading, cpus, waiting, has_turns)
    return "\n".join([*made, "</svg>", ""])


def _places(names: Sequence[str]) -> list[tuple[int, int]]:
    """Return where each name of the legend begins, and in which row."""
    found, x, row = [], 0, 0
    for name in names:
        wide = 32 + 7 * min(len(name), NAME)
        if x + wide > WIDTH:
            x, row = 0, row + 1
        found.append((LEFT + x, row))
        x += wide
    return found


def _legend(names: Mapping[int, str], places: Sequence[tuple[int, int]]) -> Iterator[str]:
    for (guest, name), (x, row) in zip(names.items(), places, strict=True):
        y = TITLE + 10 + ROW * row
        yield f'<rect x="{x}" y="{y}" width="12" height="12" fill="{_colour(guest)}"/>'
        yield f'<text x="{x + 16}" y="{y + 11}">{escape(_short(name, NAME))}</text>'


class _Phase:
    """A block while it is drawn. y: where the next lane begins."""

    def __init__(self, part: Timeline, names: Sequence[str], top: int, length: float) -> None:
        self._part, self._names, self._top, self._length = part, names, top, length
        self._y = top + TITLE

    def lines(
        self, heading: str, cpus: Sequence[int], waiting: Sequence[int], has_turns: bool
    ) -> Iterator[str]:
        yield f'<text x="{LEFT}" y="{self._top + 14}">{escape(heading)}</text>'
        for cpu in cpus:
            yield from self._lane(f"CPU {cpu}", LANE)
            yield from self._cpu(cpu)
            self._y += LANE + GAP
        if has_turns:
            yield from self._lane("turn of", LANE)
            yield from self._turns()
            self._y += LANE + GAP
        for guest in waiting:
            yield from self._lane(f"{_short(self._names[guest], LABEL)} waits", THIN)
            yield from self._waits(guest)
            self._y += THIN + GAP
        yield from self._axis()

    def _lane(self, label: str, height: int) -> Iterator[str]:
        middle = self._y + height // 2 + 4
        yield f'<text x="{LEFT - 8}" y="{middle}" text-anchor="end">{escape(label)}</text>'
        yield f'<rect x="{LEFT}" y="{self._y}" width="{WIDTH}" height="{height}" fill="#ddd"/>'

    def _cpu(self, cpu: int) -> Iterator[str]:
        for run in self._part.runs:
            if run.cpu == cpu:
                yield from self._run(run)
        for pause in self._part.pauses:
            if pause.cpu == cpu and pause.lhp:
                x = self._x(pause.time)
                yield f'<rect x="{x:.1f}" y="{self._y}" width="0.6" height="{LANE}" fill="black"/>'

    def _run(self, run: Run) -> Iterator[str]:
        x, end = self._x(run.begin), self._x(run.end)
        name = escape(self._names[run.guest])
        hint = f"{name} vCPU {run.vcpu}, {(run.end - run.begin) / 1e3:.2f} ms"
        yield self._block(run, LANE, f"><title>{hint}</title></rect>")
        if end - x > 14:
            yield (f'<text x="{(x + end) / 2:.1f}" y="{self._y + 15}" fill="white" text-anchor="middle">'
                   f"{run.vcpu}</text>")  # fmt: skip

    def _turns(self) -> Iterator[str]:
        for turn in self._part.turns:
            yield self._block(turn, LANE, ' fill-opacity="0.6" stroke="white"/>')

    def _waits(self, guest: int) -> Iterator[str]:
        """Draw those of several vCPUs one over the other, each pale."""
        for wait in self._part.waits:
            if wait.guest == guest:
                yield self._block(wait, THIN, ' fill-opacity="0.4"/>')

    def _block(self, span: Run | Turn | Wait, height: int, rest: str) -> str:
        """Return a span in the lane as a rectangle of its guest's colour. rest: of the element."""
        x, end = self._x(span.begin), self._x(span.end)
        return (f'<rect x="{x:.1f}" y="{self._y}" width="{max(end - x, 0.3):.1f}" height="{height}" '
                f'fill="{_colour(span.guest)}"{rest}')  # fmt: skip

    def _axis(self) -> Iterator[str]:
        step = next((n for n in (1, 2, 5, 10, 20, 50, 100, 200, 500) if self._length / n / 1e3 <= 20), 1000)
        for tick in range(0, int(self._length / 1e3) + 1, step):
            x = self._x(tick * 1e3)
            yield f'<text x="{x:.0f}" y="{self._y + 8}" font-size="9" text-anchor="middle">{tick} ms</text>'

    def _x(self, time: float) -> float:
        return LEFT + WIDTH * time / self._length


def _short(name: str, most: int) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"


def _colour(guest: int) -> str:
    return COLOURS[guest % len(COLOURS)]
