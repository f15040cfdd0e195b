# SPDX-License-Identifier: Apache-2.0
"""From the kernel's trace to stretches, and from a result to README's block."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.demo import settings
from bench.demo.outcome import BEGIN, END, with_block
from lab.guests import linux
from lab.observe.timeline import Stretch, stretches

THREADS = {101: (0, 0), 102: (0, 1), 201: (1, 0)}


def switched(cpu: int, time: float, prev: int, following: int) -> str:
    return (
        f"     CPU 0/KVM-{prev}     [{cpu:03}] d..2.  {time:.6f}: sched_switch: prev_comm=CPU 0/KVM "
        f"prev_pid={prev} prev_prio=120 prev_state=R+ ==> next_comm=x next_pid={following} next_prio=120"
    )


def test_stretches() -> None:
    trace = [
        "# tracer: nop",
        switched(0, 10.010, 101, 7),  # was there before the recording began
        switched(0, 10.012, 7, 201),
        switched(1, 10.014, 5, 102),
        switched(0, 10.020, 201, 101),
        switched(0, 10.021, 101, 7),
        switched(0, 10.022, 7, 101),  # and is there when it ends
    ]
    assert sorted(stretches(trace, THREADS, 10.0, 10.03), key=lambda s: (s.cpu, s.begin)) == [
        Stretch(0, 0, 10_000, 0, 0),
        Stretch(0, 12_000, 20_000, 1, 0),
        Stretch(0, 20_000, 21_000, 0, 0),
        Stretch(0, 22_000, 30_000, 0, 0),
        Stretch(1, 14_000, 30_000, 0, 1),
    ]


def test_stretches_are_cut_at_the_ends() -> None:
    trace = [switched(0, 9.5, 7, 101), switched(0, 10.5, 101, 7), switched(0, 11.5, 7, 201)]
    assert list(stretches(trace, THREADS, 10.0, 11.0)) == [Stretch(0, 0, 500_000, 0, 0)]


def test_the_block_is_replaced() -> None:
    readme = f"before\n{BEGIN} (old) -->\nold\n{END}\nafter\n"
    block = f"{BEGIN} (new) -->\nnew\n{END}\n"
    assert with_block(readme, block) == f"before\n{block}after\n"
    with pytest.raises(ValueError, match="no block"):
        with_block("before\n", block)


def test_beats_are_whole_lines(tmp_path: Path) -> None:
    log = tmp_path / "console"
    assert linux.last_beat(log) is None
    log.write_text(
        "kernel: something\r\nbeat 200 12\r\nbeat 400 31\r\n[  0.4] oops\r\nbeat x y\r\nbeat 600 4"
    )
    assert linux.last_beat(log) == (0.4, 31)


def test_planned_runs() -> None:
    assert settings.planned("2barrier/on, 1linux+3spinlock/off") == [
        ({"barrier": 2}, True),
        ({"linux": 1, "spinlock": 3}, False),
    ]
    assert settings.planned(settings.PLANNED)[0][1] is True
    for bad in ("barrier", "2barrier", "barrier/on", "2barrier/", "/on", "2barrier/maybe", "0linux/on"):
        with pytest.raises(ValueError, match="a run is"):
            settings.planned(bad)
