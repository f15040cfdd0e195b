# SPDX-License-Identifier: Apache-2.0
"""adaptive: a gang where that ends spinning, apart where running together makes the guest fight with itself.

What is compared is what spinning costs either way: PAUSE exits per CPU second. A vCPU spins for a
sibling that is off its CPU (lock-holder preemption, which a gang ends), or for one that runs
(contention, which a gang makes worse: siblings of a gang are always there to fight). Whichever it
is, the side with fewer wins.

    settled on one side ──(due, or its cost doubled or halved)──▶ trying the other ──▶ settled

A trial lasts one whole reading, at most GAP_MAX and at least GAP_MIN seconds after the one before,
later each time it changes nothing. The other side has to be better by MARGIN. A guest that hardly
spins is not tried at all: it would not notice.

Unknown is not zero: without PAUSE exits (no probe, or a CPU without pause-loop exiting) nothing
can be compared, and the guest is a gang, which ends the spinning nobody sees.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from gangd.model.domain import Domain, Mode
from gangd.model.evidence import Evidence
from gangd.model.policy import Decision

SAMPLE = 1.0  # seconds between readings
GAP_MIN, GAP_MAX = 60.0, 960.0  # seconds from a trial to the next
CHANGED = 2.0  # a cost that grew or shrank by this factor is another load
RECENT = 5.0  # seconds after a trial in which a change is not yet one
MARGIN = 1.25
QUIET = 50.0  # PAUSE exits per CPU second that are not worth a trial

SIDES = {Mode.RELAXED: "as a gang", Mode.BALANCE: "apart"}


@dataclass(frozen=True)
class Memory:
    """What was seen so far. home: the side that won; mode: the one in force, another one during a trial.

    costs: PAUSE exits per CPU second on either side, when last measured. settled: what `home` cost
    when it won. seen: the reading last taken into account. Times are those of the readings.
    """

    home: Mode = Mode.RELAXED
    mode: Mode = Mode.RELAXED
    costs: dict[Mode, float] = field(default_factory=dict)
    settled: float | None = None
    seen: float = 0.0
    tried: float = float("-inf")
    gap: float = GAP_MIN
    why: str = "not measured yet"


class Adaptive:
    """The policy."""

    name = "adaptive"

    def decide(self, domain: Domain, evidence: Evidence, memory: object = None) -> Decision:
        """relaxed or balance; off for a guest with one vCPU."""
        if len(domain.vcpus) < 2:
            return Decision(Mode.OFF, "a guest with one vCPU has no siblings to run with")
        past = memory if isinstance(memory, Memory) else Memory()
        now = past if evidence.time <= past.seen else _learn(past, evidence)
        return Decision(now.mode, f"adaptive: {now.why}", now, SAMPLE)


def _learn(past: Memory, evidence: Evidence) -> Memory:
    """After one more reading."""
    past = replace(past, seen=evidence.time)
    if evidence.mode is not past.mode:  # it was another for a part of the time
        return past
    cost = _cost(evidence)
    if cost is None:
        return replace(past, home=Mode.RELAXED, mode=Mode.RELAXED, why="PAUSE exits are not measured here")
    past = replace(past, costs={**past.costs, past.mode: cost})
    return _judged(past) if past.mode is not past.home else _settled(past, cost)


def _cost(evidence: Evidence) -> float | None:
    """PAUSE exits per CPU second; 0 for a guest that used no CPU, None = unknown."""
    if evidence.pause_per_second is None or evidence.cpu_per_second is None:
        return None
    return evidence.pause_per_second / max(evidence.cpu_per_second, 0.01)


def _judged(past: Memory) -> Memory:
    """After a trial: the other side, if it is better by the margin."""
    won = past.costs[past.mode] * MARGIN < past.costs[past.home]
    home = past.mode if won else past.home
    return replace(
        past,
        home=home,
        mode=home,
        settled=past.costs[home],
        tried=past.seen,
        gap=GAP_MIN if won else min(past.gap * 2, GAP_MAX),
        why=f"{_compared(past)}: {SIDES[home]}",
    )


def _settled(past: Memory, cost: float) -> Memory:
    """Between trials: on to the next one when it is due, or when this is another load."""
    if cost < QUIET:
        return replace(past, settled=cost, why=f"it hardly spins, {cost:.0f} PAUSE exits per CPU second")
    since = past.seen - past.tried
    before = past.settled or 0.0
    other_load = since > RECENT and (before < QUIET or not before / CHANGED < cost < before * CHANGED)
    if not other_load and since < past.gap:
        return past
    other = Mode.BALANCE if past.home is Mode.RELAXED else Mode.RELAXED
    gap = GAP_MIN if other_load else past.gap
    return replace(past, mode=other, gap=gap, why=f"{cost:.0f} PAUSE exits per CPU second "
                   f"{SIDES[past.home]}; trying {SIDES[other]}")  # fmt: skip


def _compared(past: Memory) -> str:
    costs = ", ".join(f"{past.costs[mode]:.0f} {words}" for mode, words in SIDES.items())
    return f"PAUSE exits per CPU second {costs}"


POLICY = Adaptive()
