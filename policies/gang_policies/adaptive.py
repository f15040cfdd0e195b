# SPDX-License-Identifier: Apache-2.0
"""adaptive: off until it pays: a gang, or vCPUs kept apart, only where that ends spinning.

Three arms: gangd out of the way (off), vCPUs pinned apart (balance), a gang (relaxed). What is compared is
what spinning costs in each: PAUSE exits per CPU second. A guest begins in the first, and stays there while
it hardly spins. Once lock-holder preemption (PAUSE exits while a runnable sibling was off its CPU) says that
there is something to gain, the other two are tried, the lesser first: a trial is READINGS whole readings of
one second. An arm is entered for a cost lower by PAYS, and left for a lesser one as soon as its own is not
lower by KEEPS. Trials are repeated from time to time, and when the spinning changed.

No arm but the gang has a scheduler loaded for it: between trials a host where no gang pays has none. A trial
of a gang there has to load it, which takes seconds; all of them, loading too, count against BUDGET, and they
begin on the same minutes for all guests, so that one loading serves all. From a gang the other arms are
tried with the scheduler held, for loading it anew would take longer than the trial.

Unknown is off. Where PAUSE exits are not counted, or the guest takes none (it does not spin, or the CPU or
KVM has no pause-loop exiting), nothing can be compared, and a scheduler under which every task of the host
runs would stay for ever without a reason that anybody could check. The guest has what it had without gangd;
whoever knows better asks for `relaxed`.

Exits are not quite time: the window of pause-loop exiting grows while a vCPU keeps its CPU, so that a long
wait is counted for less than it took in the arm with the longer turns, which is the gang. And what spins
for less than the window is not seen at all. docs/policies.md says what was measured of both, and with what
probability noise makes this policy choose the worse arm.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from gangd.model.domain import Domain, Mode
from gangd.model.evidence import Evidence
from gangd.model.policy import Decision

SAMPLE, REST, BLIND = 1.0, 4.0, 30.0  # seconds between readings: something is found out; else; nothing can be
READINGS, SETTLED = 4, 6  # of an arm on trial, and of the one where a guest is, before they are compared
MISSED_MAX = 5  # readings of a trial that was not in force for all of them: it is given up
GAP_MIN, GAP_MAX = 60.0, 960.0  # seconds from trials to the next; doubled by those that change nothing
BUDGET = 0.02  # share of the time that trials may take; saved up to CREDIT_MAX seconds
CREDIT_MAX, TRIALS = 24.0, 12.0  # seconds; what the trials of two arms take
PAYS, KEEPS = 1.5, 1.1  # factors of cost: to enter an arm; to stay in it
CHANGED = 2.0  # spinning that grew or shrank by this factor, twice in a row, is another load
QUIET, LOUD = 50.0, 100.0  # PAUSE exits per CPU second: hardly spins; begins to spin
SMOOTH = 0.25  # least weight of a new reading in the mean of the arm a guest is in

ARMS = {Mode.OFF: "off", Mode.BALANCE: "apart", Mode.RELAXED: "as a gang"}  # the least intrusive first
UNKNOWN = "PAUSE exits are not measured here: off; --policy relaxed makes it a gang all the same"
NONE = "it takes no PAUSE exits (it does not spin, or this CPU does not report spinning): off"
MISSED = "a trial could not be measured"


@dataclass(frozen=True)
class Memory:
    """The readings so far. home: the arm that won; mode: the arm in force, another one during a trial.

    costs: PAUSE exits per CPU second of every arm that was measured, means. own: the part of them that
    another arm could end, a mean. count: readings in the mean of `mode`; missed: readings in a row that are
    not, as another mode was in force for a part of them. untried: arms that these trials have still to come
    to. wanted: trials are due as soon as there is something to gain. odd: the last reading did not look like
    those before. seen, tried: times of the last reading and of the end of the last trials; gap: from there
    to the next. credit: seconds that trials may take now, below 0 after a slow one.
    """

    home: Mode = Mode.OFF
    mode: Mode = Mode.OFF
    costs: dict[Mode, float] = field(default_factory=dict)
    own: float = 0.0
    count: int = 0
    missed: int = 0
    untried: tuple[Mode, ...] = ()
    wanted: bool = True
    odd: bool = False
    seen: float = float("-inf")
    tried: float = float("-inf")
    gap: float = GAP_MIN
    credit: float = CREDIT_MAX
    why: str = "not measured yet"

    @property
    def on_trial(self) -> bool:
        """It is not where it stays."""
        return self.mode is not self.home


class Adaptive:
    """The policy."""

    name = "adaptive"

    def decide(self, domain: Domain, evidence: Evidence, memory: object = None) -> Decision:
        """off, balance or relaxed; a guest with one vCPU is refused."""
        if len(domain.vcpus) < 2:
            return Decision(Mode.OFF, "a guest with one vCPU has no siblings to run with")
        past = memory if isinstance(memory, Memory) else Memory()
        now = _learn(past, evidence) if evidence.seconds > 0 and evidence.time > past.seen else past
        held = now.on_trial and now.home is Mode.RELAXED
        return Decision(now.mode, f"adaptive: {now.why}", now, _pause(past, now), held)


def _learn(past: Memory, evidence: Evidence) -> Memory:
    """After one more reading."""
    past = _charged(past, evidence)
    cost, own = _cost(evidence), _own(evidence, past.mode)
    if cost is None or own is None:
        return _unknown(past)
    if evidence.mode is not past.mode:  # it was another for a part of the time
        past = replace(past, missed=past.missed + 1)
        given_up = past.on_trial and past.missed > MISSED_MAX
        return _ended(past, past.home, f"{MISSED}: {ARMS[past.home]}") if given_up else past
    past = _counted(past, cost)
    return _tried(past) if past.on_trial else _settled(past, cost, own)


def _charged(past: Memory, evidence: Evidence) -> Memory:
    """Time went by: credit for trials grows, or is used by one."""
    passed = min(evidence.time - past.seen, GAP_MAX)
    credit = past.credit - passed if past.on_trial else past.credit + BUDGET * passed
    return replace(past, seen=evidence.time, credit=min(credit, CREDIT_MAX))


def _pause(past: Memory, now: Memory) -> float:
    """Until the next reading. Nothing presses where all is as it was, or there is nothing to compare; that
    exits are not counted may be an accident once, not twice."""
    if now.why == UNKNOWN:
        return BLIND if past.why == UNKNOWN else REST
    return SAMPLE if now.on_trial or now.odd or now.count < SETTLED else REST


def _cost(evidence: Evidence) -> float | None:
    """PAUSE exits per CPU second, None = unknown."""
    return _per_cpu_second(evidence.pause_per_second, evidence)


def _own(evidence: Evidence, mode: Mode) -> float | None:
    """The part of them that another arm could end: contention of a gang, for siblings are always there to
    contend; else lock-holder preemption. All of them where the two are not told apart. None = unknown."""
    pause, lhp = evidence.pause_per_second, evidence.lhp_per_second
    if pause is None or lhp is None:
        return _cost(evidence)
    return _per_cpu_second(max(pause - lhp, 0.0) if mode is Mode.RELAXED else lhp, evidence)


def _per_cpu_second(rate: float | None, evidence: Evidence) -> float | None:
    """A guest that used hardly any CPU has spun hardly any, whatever the quotient."""
    if rate is None or evidence.cpu_per_second is None:
        return None
    return rate / max(evidence.cpu_per_second, 0.01)


def _unknown(past: Memory) -> Memory:
    """Off, with nothing kept of what was compared before."""
    return Memory(seen=past.seen, tried=past.tried, gap=past.gap, credit=past.credit, why=UNKNOWN)


def _counted(past: Memory, cost: float) -> Memory:
    """With the reading in the mean of the arm it was in."""
    count = past.count + 1
    mean = cost if count == 1 else _mean(past.costs[past.mode], cost, count)
    return replace(past, costs={**past.costs, past.mode: mean}, count=count, missed=0)


def _mean(mean: float, reading: float, count: int) -> float:
    """The mean of `count` readings, with the new one; once they are many, recent ones weigh more."""
    return mean + max(SMOOTH, 1 / count) * (reading - mean)


def _settled(past: Memory, cost: float, own: float) -> Memory:
    """Between trials: on to the next when they are due, or when this is another load."""
    usual = own if past.count == 1 else past.own
    odd = own >= LOUD and not usual / CHANGED < own < usual * CHANGED
    if odd and not past.odd:
        return replace(past, odd=True)  # one reading may be an accident
    if odd:
        return replace(past, costs={**past.costs, past.home: cost}, own=own, count=1, wanted=True,
                       odd=False, gap=GAP_MIN)  # fmt: skip
    past = replace(past, own=_mean(usual, own, past.count), odd=False)
    if past.home is Mode.OFF and past.own < LOUD:
        past = replace(past, why=_nothing_to_gain(past))
    return _begun(past) if past.count >= SETTLED and _is_due(past) else past


def _nothing_to_gain(past: Memory) -> str:
    cost = past.costs[Mode.OFF]
    told = f"{cost:.0f} PAUSE exits per CPU second, {past.own:.0f} of them lock-holder preemption: off"
    return told if cost else NONE


def _is_due(past: Memory) -> bool:
    """There is something to gain, time to look for it, and it is the minute at which all guests look."""
    if past.credit < TRIALS or (past.own < LOUD and past.home is Mode.OFF):
        return False
    on_line = past.seen // past.gap > past.tried // past.gap and past.seen - past.tried >= past.gap / 2
    return past.wanted or on_line


def _begun(past: Memory) -> Memory:
    """The first trial. Of a guest that hardly spins apart, off may do as well, and nothing better."""
    quiet = past.home is Mode.BALANCE and past.costs[past.home] <= QUIET * PAYS
    arms = (Mode.OFF,) if quiet else tuple(arm for arm in ARMS if arm is not past.home)
    return _next(replace(past, untried=arms, wanted=False))


def _next(past: Memory) -> Memory:
    """The next trial of those that have begun."""
    arm, *rest = past.untried
    told = f"{past.costs[past.home]:.0f} PAUSE exits per CPU second {ARMS[past.home]}"
    why = f"{told}; trying it {ARMS[arm]}"
    return replace(past, mode=arm, untried=tuple(rest), count=0, missed=0, why=why)


def _tried(past: Memory) -> Memory:
    """During a trial: on to the next arm, or the end. Nothing beats an arm in which a guest hardly spins."""
    if past.count < READINGS:
        return past
    if past.untried and past.costs[past.mode] > QUIET * PAYS:
        return _next(past)
    skipped = past.untried
    costs = {arm: cost for arm, cost in past.costs.items() if arm not in skipped}
    home = _best(past.home, costs)
    told = ", ".join(f"{costs[arm]:.0f} {ARMS[arm]}" for arm in ARMS if arm in costs)
    return _ended(replace(past, costs=costs), home, f"PAUSE exits per CPU second {told}: {ARMS[home]}")


def _best(home: Mode, costs: dict[Mode, float]) -> Mode:
    """The least intrusive arm, but for those that pay. What is below QUIET is all the same."""
    best = Mode.OFF
    for arm in (arm for arm in ARMS if arm in costs):
        margin = KEEPS if arm is home else PAYS
        if max(costs[arm], QUIET) * margin < max(costs[best], QUIET):
            best = arm
    return best


def _ended(past: Memory, home: Mode, why: str) -> Memory:
    """The end of trials. What is known of `own` is of the home before: still true if that stays."""
    stays = home is past.home
    gap = min(past.gap * 2, GAP_MAX) if stays else GAP_MIN
    return replace(past, home=home, mode=home, count=SETTLED if stays else 0, missed=0, untried=(),
                   odd=False, tried=past.seen, gap=gap, why=why)  # fmt: skip


POLICY = Adaptive()
