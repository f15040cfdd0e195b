# SPDX-License-Identifier: Apache-2.0
"""A timeline as lines, as a picture, and as a trace for Perfetto."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET

import pytest

from gangd.errors import GangError
from gangd.trace import perfetto
from gangd.trace.blocks import MARGIN, coloured, letter, lines
from gangd.trace.svg import excerpt, svg
from gangd.trace.timeline import Moment, Run, Timeline, Turn, Wait

HOSTILE = 'vm & <script> "x"'
PART = Timeline(
    10_000,
    (Run(0, 0, 5000, 0, 0), Run(1, 0, 5000, 0, 1), Run(0, 5000, 10_000, 1, 0)),
    (Wait(0, 5000, 1, 0), Wait(5000, 10_000, 0, 0)),
    (Turn(0, 4000, 0),),
    (Moment(1000, 0, 0, 0, False), Moment(7000, 1, 0, 0, True)),
)


def test_lines() -> None:
    """CPUs have letters of guests, vCPUs what they did; preemption in a lock shows in any column."""
    assert list(lines(PART, MARGIN + 10)) == [
        " CPU 0    aaaaabbbbb",
        " CPU 1    aaaaa·····",
        " turn of  aaaa······",
        " a 0      █████░░!░░",
        " a 1      █████     ",
        " b 0      ░░░░░█████",
    ]


def test_a_column_is_of_whom_has_half_of_it() -> None:
    """Less than half a column is nobody's; of several guests the one with the most has it."""
    part = Timeline(4000, (Run(0, 0, 400, 0, 0), Run(0, 1000, 1300, 0, 0), Run(0, 1300, 1900, 1, 0)))
    assert next(lines(part, MARGIN + 4)) == " CPU 0    ·b··"


def test_colours_change_no_text() -> None:
    """A terminal, without its escape sequences, shows the text that a file has."""
    painted = "\n".join(lines(PART, 60, coloured))
    assert "\x1b[48;5;" in painted
    assert re.sub(r"\x1b\[[0-9;]*m", "", painted) == "\n".join(lines(PART, 60))


def test_many_vcpus_are_not_all_drawn() -> None:
    """A line says how many are left out."""
    many = Timeline(1000, tuple(Run(0, n, n + 1, n, 0) for n in range(60)))
    assert list(lines(many, 40))[-1].strip().startswith("and 28 vCPUs more")
    assert letter(51) == "Z" and letter(52) == "a"


def test_svg() -> None:
    """Widths are to scale; a run has its length as a hint; names are text."""
    drawn = ET.fromstring(svg("a <title> & more", [("1st", PART), ("2nd", PART)], [HOSTILE, "b"]))
    name = "{http://www.w3.org/2000/svg}"
    hinted = [one for one in drawn.findall(f"{name}rect") if one.find(f"{name}title") is not None]
    assert len(hinted) == 6
    assert {one.findtext(f"{name}title") for one in hinted} == {
        *(f"{HOSTILE} vCPU {vcpu}, 5.00 ms" for vcpu in (0, 1)),
        "b vCPU 0, 5.00 ms",
    }
    assert len({one.get("fill") for one in hinted}) == 2
    texts = [text.text for text in drawn.findall(f"{name}text")]
    assert {"a <title> & more", "1st", "2nd", "CPU 0", "CPU 1", "turn of", "b waits", "10 ms"} <= set(texts)


def test_svg_is_to_scale() -> None:
    """A run that is six times as long is drawn so."""
    part = Timeline(70_000, (Run(0, 0, 10_000, 0, 0), Run(0, 10_000, 70_000, 1, 0)))
    drawn = svg("", [("", part)], "ab")
    first, last = re.findall(r'<rect x="[\d.]+" y="\d+" width="([\d.]+)" height="22" fill="#[^d]', drawn)
    assert float(last) / float(first) == pytest.approx(6, rel=0.01)


def test_svg_of_nothing() -> None:
    """An empty recording is a picture without lanes."""
    for phases in ([], [("", Timeline(0))]):
        drawn = ET.fromstring(svg("nothing", phases, ["vm"]))
        assert len(drawn.findall("{http://www.w3.org/2000/svg}rect")) == 1  # the background


def test_an_excerpt_is_as_long_as_fits() -> None:
    """The excerpt is the middle, halved until it fits; what never fits is refused."""
    busy = tuple(Run(0, n * 100, n * 100 + 50, 0, 0) for n in range(10_000))
    full = Timeline(1e6, busy, (Wait(0, 1e6, 1, 0),))
    sizes = {}
    for most in (4000, 1 << 16, 1 << 19, 1 << 24):
        drawn = excerpt(full, 1e6, ["a", "b"], most)
        sizes[most] = (len(drawn), float(re.findall(r">([\d.]+) ms of 2 guests<", drawn)[0]))
        assert len(drawn) <= most
    assert [length for _, length in sizes.values()] == [0.98, 31.25, 500, 1000]
    with pytest.raises(GangError, match="cannot draw 1 guests in a picture of 10 bytes"):
        excerpt(full, 1e6, ["a"], 10)


def test_perfetto() -> None:
    """Tracks by CPU and by guest; turns are slices, preemption in a lock is an instant of its vCPU."""
    made = json.loads(json.dumps(perfetto.document(PART, [HOSTILE, "b"])))["traceEvents"]
    named = {(one["pid"], one["tid"]): one["args"]["name"] for one in made if one["name"] == "thread_name"}
    cpus, turns = {(1, 0): "CPU 0", (1, 1): "CPU 1"}, {(2, 0): "turns", (3, 0): "turns"}
    assert named == {**cpus, **turns, (2, 1): "vCPU 0", (2, 2): "vCPU 1", (3, 1): "vCPU 0"}
    processes = {one["pid"]: one["args"]["name"] for one in made if one["name"] == "process_name"}
    assert processes == {1: "CPUs", 2: HOSTILE, 3: "b"}
    keys = ("name", "pid", "tid", "ts", "dur")
    slices = [tuple(one[key] for key in keys) for one in made if one["ph"] == "X"]
    assert ("turn", 2, 0, 0, 4000) in slices and ("waits", 3, 1, 0, 5000) in slices
    assert len(slices) == 2 * 3 + 2 + 1
    assert [(one["name"], one["ts"]) for one in made if one["ph"] == "i"] == [
        ("PAUSE exit", 1000),
        ("lock-holder preemption", 7000),
    ]
