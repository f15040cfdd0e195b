# SPDX-License-Identifier: Apache-2.0
"""The price of everything that takes a CPU's time, and where each price comes from."""

from __future__ import annotations

from dataclasses import dataclass

# Two assumptions about a real CPU. The lab counts instructions; it has no caches.
INSTRUCTION_NS = 1 / 3  # 3 GHz, one instruction a cycle
LINE_NS = 100.0  # until another CPU's cache has answered for a line that it wrote

LAB_INSTRUCTION_NS = 8  # an instruction takes as long in docs/results


@dataclass(frozen=True)
class Price:
    """The price of one thing: `instructions`, or `ns` where nobody counted them.

    measured: the place of its nanoseconds in docs/results/overhead.json, below "overhead"; (): an assumption.
    less: likewise, the time that is taken off. per: the lab measured the time of so many.
    """

    name: str
    what: str
    instructions: float = 0
    measured: tuple[str, ...] = ()
    ns: float = 0
    per: int = 1
    less: tuple[str, ...] = ()

    @property
    def cost_ns(self) -> float:
        """The price in ns of a real CPU."""
        return self.ns + self.instructions * INSTRUCTION_NS


def _ours(op: str, instructions: int) -> Price:
    return Price(op, f"{op}, with sched_ext around it", instructions, ("ops", "running", "ops", op, "ns"))


def _fair(op: str, instructions: int) -> Price:
    what = f"{op} of the fair class"
    return Price(f"fair_{op}", what, instructions, ("ops", "busy", "ops", op, "ns"))


PRICES = (
    Price(
        "switch",
        "half of a pipe's round trip, with the system calls and the class in it",
        5_263,
        ("ops", "busy", "round_trip_ns"),
        per=2,
    ),
    Price("kick", "an interrupt to another CPU, its exit from the guest, until it chooses", ns=3_000),
    Price("send", "the lock of a runqueue, and writing the interrupt command", ns=500),
    Price("timer", "from a timer's time until its interrupt runs it", ns=3_000),
    Price("exit", "a PAUSE exit, the look for a sibling, and the way back", ns=2_000),
    _ours("select_cpu", 1_389),
    _ours("enqueue", 2_311),
    _ours("dispatch", 8_372),
    _ours("running", 2_211),
    _ours("stopping", 3_570),
    Price(
        "tick",
        "what a tick takes more than one of the fair class, whose ticks the model does not have",
        1_859,
        ("ops", "running", "ops", "tick", "ns"),
        less=("ops", "busy", "ops", "tick", "ns"),
    ),
    Price("timer_op", "a timer's callback: as a tick", 5_128, ("ops", "running", "ops", "tick", "ns")),
    Price("op", "any other op: gang_disable", 297, ("events", "running", "gang_disable", "ns")),
    Price("call", "a map lookup, the length of a queue, reading the clock", 45),
    Price("queue", "the lock of a queue, and a list or tree operation", 180),
    Price("step", "a round of a loop", 9),
    _fair("select_cpu", 1_261),
    _fair("enqueue", 2_329),
    _fair("dispatch", 2_692),
    _fair("stopping", 2_200),
    Price("line", "a cache line that another CPU wrote, or has while this one writes", ns=LINE_NS),
)
_NS = {price.name: price.cost_ns for price in PRICES}


def _us(name: str) -> float:
    return round(_NS[name]) / 1000


@dataclass(frozen=True)
class Costs:
    """Microseconds; PRICES has the reasons.

    turn: the longest of a gang; slice: of EEVDF on one CPU; tick: from one tick to the next; switch: nobody
    runs; kick: from sending an interrupt to the CPU choosing anew; send: of each, to the sender; timer: how
    late one fires; ple: a spinning vCPU exits after; exit: what that costs; balance: between two looks of
    EEVDF for a busier CPU.
    Of the scheduler: select, enqueue, dispatch, running, stopping, tick_op, timer_op: a call of that op or
    of a timer's callback; op: of any other. To each is added what it does: call: each look at a map or queue;
    queue: each lock taken; step: each round of a loop; line: each cache line that comes from another CPU, 0:
    lines are not followed, and the simulation takes a tenth of the time. fair_: of the fair class.
    """

    turn_us: float = 12_000
    slice_us: float = 700
    switch_us: float = _us("switch")
    kick_us: float = _us("kick")
    send_us: float = _us("send")
    timer_us: float = _us("timer")
    tick_us: float = 4_000
    ple_us: float = 20
    exit_us: float = _us("exit")
    balance_us: float = 32_000
    select_us: float = _us("select_cpu")
    enqueue_us: float = _us("enqueue")
    dispatch_us: float = _us("dispatch")
    running_us: float = _us("running")
    stopping_us: float = _us("stopping")
    tick_op_us: float = _us("tick")
    timer_op_us: float = _us("timer_op")
    op_us: float = _us("op")
    call_us: float = _us("call")
    queue_us: float = _us("queue")
    step_us: float = _us("step")
    line_us: float = 0
    fair_select_us: float = _us("fair_select_cpu")
    fair_enqueue_us: float = _us("fair_enqueue")
    fair_dispatch_us: float = _us("fair_dispatch")
    fair_stopping_us: float = _us("fair_stopping")

    def of(self, scheduler: str) -> dict[str, int]:
        """Return the prices in ns under `scheduler`, by the names of describe.h."""
        found = {f"{name[:-3]}_ns": round(1000 * us) for name, us in vars(self).items()}
        fair = {name[5:]: found.pop(name) for name in list(found) if name.startswith("fair_")}
        return found if scheduler == "gang" else found | fair


WITH_LINES = Costs(line_us=LINE_NS / 1000)
