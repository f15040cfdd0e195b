# SPDX-License-Identifier: Apache-2.0
"""adaptive: a gang where that ends spinning, apart where it ends none or running together makes more of it.

What is compared is what spinning costs either way: PAUSE exits per CPU second. Each is of one of two
kinds, told apart by whether a runnable sibling was off its CPU at that moment:

    lock-holder preemption   the guest waits for a sibling that does not run. A gang ends it.
    contention               it waits for one that runs. A gang makes more of it: siblings are always there.

So a gang is tried apart at first, and again from time to time or when its contention changed; a guest
that is apart is tried as a gang when lock-holder preemption says that there is something to gain. A trial
lasts one whole reading. The other side has to be better by MARGIN; a guest that spins on neither side is
left apart, where it is in nobody's way. Trials take at most BUDGET of the time, whatever the guest does.

Unknown is not zero. Where PAUSE exits are not counted or pause-loop exiting is off, and for a guest that
never took one (the CPU may have none), nothing can be compared: the guest is a gang, which ends the spinning
nobody sees.

Exits are not quite time: the window of pause-loop exiting grows while a vCPU keeps its CPU, so that a long
wait is counted for less than it took in the side with the longer turns, which is the gang. And what spins
for less than the window is not seen at all. docs/policies.md says what was measured of both.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from gangd.model.domain import Domain, Mode
from gangd.model.evidence import Evidence
from gangd.model.policy import Decision

SAMPLE, REST, BLIND = 1.0, 4.0, 30.0  # seconds between readings: something is found out; else; nothing can be
GAP_MIN, GAP_MAX = 60.0, 960.0  # seconds from a trial to the next; doubled by one that changes nothing
BUDGET = 0.02  # share of the time that trials may take; saved up to CREDIT_MAX seconds
CREDIT_MAX, TRIAL, TRIAL_MAX = 10.0, 2.5, 5.0  # seconds; what a trial takes, and when it is given up
MARGIN = 1.5  # what 20 % of noise in two readings can make of nothing
CHANGED = 2.0  # spinning that grew or shrank by this factor, twice in a row, is another load
QUIET, LOUD = 50.0, 100.0  # PAUSE exits per CPU second: hardly spins; begins to spin
SMOOTH = 0.25  # weight of a new reading in the mean of the side a guest is on

SIDES = {Mode.RELAXED: "as a gang", Mode.BALANCE: "apart"}
UNKNOWN = "PAUSE exits are not measured here"
BEGINS = "it begins to spin"
NEVER = "it never took a PAUSE exit; where the CPU has none, spinning takes none"


@dataclass(frozen=True)
class Memory:
    """What was seen so far. home: the side that won; mode: the one in force, another one during a trial.

    costs: PAUSE exits per CPU second of either side, of `home` a mean. own: the part of them that the other
    side could end, also a mean. odd: the last reading did not look like those before. seen, tried: times of
    the last reading and of the end of the last trial; gap: from there to the next. credit: seconds that
    trials may take now. spun: it took a PAUSE exit at least once.
    """

    home: Mode = Mode.RELAXED
    mode: Mode = Mode.RELAXED
    costs: dict[Mode, float] = field(default_factory=dict)
    own: float | None = None
    odd: bool = False
    seen: float = float("-inf")
    begun: float = 0.0
    tried: float = float("-inf")
    gap: float = GAP_MIN
    credit: float = CREDIT_MAX
    spun: bool = False
    why: str = "not measured yet"


class Adaptive:
    """The policy."""

    name = "adaptive"

    def decide(self, domain: Domain, evidence: Evidence, memory: object = None) -> Decision:
        """relaxed or balance; off for a guest with one vCPU."""
        if len(domain.vcpus) < 2:
            return Decision(Mode.OFF, "a guest with one vCPU has no siblings to run with")
        past = memory if isinstance(memory, Memory) else Memory()
        now = _learn(past, evidence) if evidence.seconds > 0 and evidence.time > past.seen else past
        return Decision(now.mode, f"adaptive: {now.why}", now, _pause(past, now))


def _learn(past: Memory, evidence: Evidence) -> Memory:
    """After one more reading."""
    past = _charged(past, evidence)
    cost, own = _cost(evidence), _own(evidence, past.mode)
    if cost is None or own is None:
        return _unknown(past, UNKNOWN)
    if not past.spun and not cost:
        return _unknown(past, NEVER)
    if past.why == NEVER:  # for how much of the time it spun nobody knows
        return replace(past, spun=True, why=BEGINS)
    past = replace(past, spun=True)
    if evidence.mode is not past.mode:  # it was another for a part of the time
        given_up = _on_trial(past) and evidence.time - past.begun > TRIAL_MAX
        return _home(past, past.home, f"a trial was not measured: {SIDES[past.home]}") if given_up else past
    if _on_trial(past):
        return _judged(replace(past, costs={**past.costs, past.mode: cost}))
    return _settled(past, cost, own)


def _charged(past: Memory, evidence: Evidence) -> Memory:
    """Time went by: credit for trials grows, or is used by one."""
    passed = min(evidence.time - past.seen, GAP_MAX)
    credit = past.credit - passed if _on_trial(past) else past.credit + BUDGET * passed
    return replace(past, seen=evidence.time, credit=min(credit, CREDIT_MAX))


def _pause(past: Memory, now: Memory) -> float:
    """Until the next reading. Nothing presses where all is as it was, or there is nothing to compare; that
    exits are not counted may be an accident once, not twice."""
    if past.why == now.why == UNKNOWN:
        return BLIND
    known = now.own is not None or now.why in (UNKNOWN, NEVER)
    return REST if known and not now.odd and not _on_trial(now) else SAMPLE


def _on_trial(past: Memory) -> bool:
    return past.mode is not past.home


def _cost(evidence: Evidence) -> float | None:
    """PAUSE exits per CPU second, None = unknown."""
    return _per_cpu_second(evidence.pause_per_second, evidence)


def _own(evidence: Evidence, mode: Mode) -> float | None:
    """The part of them that the other side could end: contention of a gang, lock-holder preemption of a
    guest that is apart; all of them where the two are not told apart. None = unknown."""
    pause, lhp = evidence.pause_per_second, evidence.lhp_per_second
    if pause is None or lhp is None:
        return _cost(evidence)
    return _per_cpu_second(max(pause - lhp, 0.0) if mode is Mode.RELAXED else lhp, evidence)


def _per_cpu_second(rate: float | None, evidence: Evidence) -> float | None:
    """A guest that used hardly any CPU has spun hardly any, whatever the quotient."""
    if rate is None or evidence.cpu_per_second is None:
        return None
    return rate / max(evidence.cpu_per_second, 0.01)


def _unknown(past: Memory, why: str) -> Memory:
    """A gang, with nothing kept of what was compared before."""
    return replace(past, home=Mode.RELAXED, mode=Mode.RELAXED, costs={}, own=None, odd=False, why=why)


def _home(past: Memory, home: Mode, why: str) -> Memory:
    """The end of a trial. What is known of `own` is of the home before: still true if that stays."""
    own = past.own if home is past.home else None
    gap = GAP_MIN if home is not past.home else min(past.gap * 2, GAP_MAX)
    return replace(past, home=home, mode=home, own=own, odd=False, tried=past.seen, gap=gap, why=why)


def _judged(past: Memory) -> Memory:
    """After a trial: apart if both are quiet, else the other side if it is better by the margin."""
    gang, apart = past.costs[Mode.RELAXED], past.costs[Mode.BALANCE]
    told = f"PAUSE exits per CPU second {gang:.0f} as a gang, {apart:.0f} apart"
    if max(gang, apart) < QUIET:
        return _home(past, Mode.BALANCE, f"{told}: it hardly spins, apart")
    better = past.costs[past.mode] * MARGIN < past.costs[past.home]
    home = past.mode if better else past.home
    return _home(past, home, f"{told}: {SIDES[home]}")


def _settled(past: Memory, cost: float, own: float) -> Memory:
    """Between trials: on to the next one when it is due, or when this is another load."""
    usual = past.own
    if usual is None:  # the first reading here
        past = replace(past, costs={**past.costs, past.home: cost}, own=own)
        return _tried(past) if past.costs.keys() != SIDES.keys() else past
    odd = own >= LOUD and not usual / CHANGED < own < usual * CHANGED
    if odd and not past.odd:
        return replace(past, odd=True)  # one reading may be an accident
    if odd:
        past = replace(past, costs={**past.costs, past.home: cost}, own=own, odd=False, gap=GAP_MIN)
        return _tried(past)
    mean = past.costs[past.home] + SMOOTH * (cost - past.costs[past.home])
    past = replace(past, costs={**past.costs, past.home: mean}, own=usual + SMOOTH * (own - usual), odd=False)
    due = past.seen - past.tried >= past.gap and (past.home is Mode.RELAXED or own >= LOUD)
    return _tried(past) if due else past


def _tried(past: Memory) -> Memory:
    """The beginning of a trial, if there is time left for one."""
    if past.credit < TRIAL:
        return past
    other = Mode.BALANCE if past.home is Mode.RELAXED else Mode.RELAXED
    why = f"{past.costs[past.home]:.0f} PAUSE exits per CPU second {SIDES[past.home]}; trying {SIDES[other]}"
    return replace(past, mode=other, begun=past.seen, why=why)


POLICY = Adaptive()
