# SPDX-License-Identifier: Apache-2.0
"""The timeline of a run as an SVG: a block for each phase, a lane for each CPU, a colour for each guest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

# Okabe and Ito's colours, which the colour-blind can tell apart.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#F0E442", "#000000")
LEFT, WIDTH, RIGHT = 70, 900, 20
TOP, LANE, GAP, TITLE, AXIS = 56, 22, 6, 20, 22
FONT = 'font-family="sans-serif" font-size="12"'


def svg(title: str, phases: Sequence[tuple[str, Sequence[Mapping[str, Any]]]]) -> str:
    """phases: heading, and the stretches (timeline.Stretch as a mapping) of each."""
    every = [stretch for _, found in phases for stretch in found]
    cpus = sorted({s["cpu"] for s in every})
    guests = sorted({s["guest"] for s in every})
    length = max((s["end"] for s in every), default=1)
    block = TITLE + len(cpus) * (LANE + GAP) + AXIS
    height = TOP + len(phases) * block
    size = f'width="{LEFT + WIDTH + RIGHT}" height="{height}"'
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} {FONT}>',
             '<rect width="100%" height="100%" fill="white"/>',
             f'<text x="{LEFT}" y="20" font-weight="bold">{escape(title)}</text>',
             *_legend(guests)]  # fmt: skip
    for number, (heading, found) in enumerate(phases):
        lines += _phase(heading, found, TOP + number * block, cpus, length)
    return "\n".join([*lines, "</svg>", ""])


def _legend(guests: Sequence[int]) -> Iterator[str]:
    x = LEFT
    for guest in guests:
        yield f'<rect x="{x}" y="30" width="12" height="12" fill="{_colour(guest)}"/>'
        yield f'<text x="{x + 16}" y="41">guest {guest}</text>'
        x += 80
    yield f'<text x="{x}" y="41" fill="#666">grey: no guest; the number is that of the vCPU</text>'


def _phase(
    heading: str, found: Sequence[Mapping[str, Any]], top: int, cpus: Sequence[int], length: int
) -> Iterator[str]:
    yield f'<text x="{LEFT}" y="{top + 14}">{escape(heading)}</text>'
    lanes = {cpu: top + TITLE + row * (LANE + GAP) for row, cpu in enumerate(cpus)}
    for cpu, y in lanes.items():
        yield f'<text x="{LEFT - 8}" y="{y + 15}" text-anchor="end">CPU {cpu}</text>'
        yield f'<rect x="{LEFT}" y="{y}" width="{WIDTH}" height="{LANE}" fill="#ddd"/>'
    for stretch in found:
        x, end = (LEFT + WIDTH * stretch[key] / length for key in ("begin", "end"))
        y = lanes[stretch["cpu"]]
        milliseconds = (stretch["end"] - stretch["begin"]) / 1e3
        hint = f"guest {stretch['guest']} vCPU {stretch['vcpu']}, {milliseconds:.2f} ms"
        yield (f'<rect x="{x:.1f}" y="{y}" width="{max(end - x, 0.3):.1f}" height="{LANE}" '
               f'fill="{_colour(stretch["guest"])}"><title>{hint}</title></rect>')  # fmt: skip
        if end - x > 14:
            yield (f'<text x="{(x + end) / 2:.1f}" y="{y + 15}" fill="white" text-anchor="middle">'
                   f"{stretch['vcpu']}</text>")  # fmt: skip
    yield from _axis(top + TITLE + len(cpus) * (LANE + GAP), length)


def _axis(y: int, length: int) -> Iterator[str]:
    for tick in range(0, length + 1, 50_000):
        x = LEFT + WIDTH * tick / length
        yield f'<text x="{x:.0f}" y="{y + 8}" font-size="9" text-anchor="middle">{tick // 1000} ms</text>'


def _colour(guest: int) -> str:
    return COLOURS[guest % len(COLOURS)]
