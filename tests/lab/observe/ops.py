# SPDX-License-Identifier: Apache-2.0
"""The cost of each op of a scheduling class, by the kernel's function tracer: fair and sched_ext alike.

The time of a function includes what it calls, so that sched_ext's includes gangd's programs, and some of the
tracer's own work, which is the same for both classes.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

TRACE = Path("/sys/kernel/tracing")
BUFFER_KIB = 16384
# By op the functions of kernel/sched/{fair,ext}.c that do it; the calls of the first are the op's. The fair
# class puts the last task and takes the next one within pick_next_task_fair().
OPS = {
    "fair": {
        "select_cpu": ("select_task_rq_fair",),
        "enqueue": ("enqueue_task_fair",),
        "dispatch": ("pick_next_task_fair",),
        "stopping": ("dequeue_task_fair",),
        "tick": ("task_tick_fair",),
    },
    "ext": {
        "select_cpu": ("select_task_rq_scx",),
        "enqueue": ("enqueue_task_scx",),
        "dispatch": ("balance_scx", "pick_task_scx"),
        "running": ("set_next_task_scx",),
        "stopping": ("put_prev_task_scx", "dequeue_task_scx"),
        "tick": ("task_tick_scx",),
    },
}  # type: dict[str, dict[str, tuple[str, ...]]]
_CALL = re.compile(r" ([\d.]+) us +\| +(?:\} /\* )?(\w+)")
_LOST = re.compile(r"^(?:overrun|dropped events): (\d+)$", re.MULTILINE)

Cost = dict[str, Any]


@contextlib.contextmanager
def traced(kind: str) -> Iterator[dict[str, Cost]]:
    """By op of a class (`fair`, `ext`), its calls in the body and the ns of each; filled in at the end.

    Raises OSError where the kernel does not trace such a function, or the tracer lost calls.
    """
    names = [name for functions in OPS[kind].values() for name in functions]
    (TRACE / "buffer_size_kb").write_text(str(BUFFER_KIB))
    (TRACE / "set_ftrace_filter").write_text(" ".join(names))
    taken = (TRACE / "set_ftrace_filter").read_text().split()
    if missing := [name for name in names if name not in taken]:
        raise OSError(f"cannot trace {', '.join(missing)}: this kernel has no such function")
    (TRACE / "current_tracer").write_text("function_graph")
    (TRACE / "options/funcgraph-tail").write_text("1")
    found: dict[str, Cost] = {}
    try:
        yield found
        (TRACE / "tracing_on").write_text("0")
        lost = sum(int(n) for path in TRACE.glob("per_cpu/*/stats") for n in _LOST.findall(path.read_text()))
        if lost:
            raise OSError(f"the tracer lost {lost} calls of {kind}'s functions")
        with (TRACE / "trace").open() as lines:
            found.update(costs(kind, lines))
    finally:
        (TRACE / "current_tracer").write_text("nop")
        (TRACE / "set_ftrace_filter").write_text("")
        (TRACE / "tracing_on").write_text("1")


def costs(kind: str, lines: Iterator[str] | Sequence[str]) -> dict[str, Cost]:
    """By op its calls and the ns of each, by the lines of a trace. What was never called is left out."""
    calls: dict[str, int] = {}
    spent: dict[str, float] = {}
    for line in lines:
        if call := _CALL.search(line):
            name = call[2]
            calls[name] = calls.get(name, 0) + 1
            spent[name] = spent.get(name, 0.0) + float(call[1]) * 1000
    return {
        op: {
            "calls": calls[functions[0]],
            "ns": sum(spent.get(f, 0.0) for f in functions) / calls[functions[0]],
        }
        for op, functions in OPS[kind].items()
        if functions[0] in calls
    }
