# SPDX-License-Identifier: Apache-2.0
"""adaptive: a gang while the host is crowded: its vCPUs run apart, or wait for CPUs.

A guest of two or more vCPUs is off until its vCPUs have run apart (one was runnable and off CPU while a
sibling ran) for `scheduler.crowded_percent` of a few seconds. It is a gang then, and stays one until its
vCPUs have hardly waited for CPUs (run delay, which means the same in both modes, less what their own cpu.max
held them off) for a minute: less than `scheduler.calm_percent` of the time in which they could run; who waits
no more than that is no gang to begin with. A gang pays for what it runs as anybody does, so nothing has to be
tried first, and no other load than contention says who gains.

A guest that left enters again ten minutes after it entered, half an hour if its contention ended at once. So
a guest changes its mode once in five minutes at most, and one that is crowded for moments loads the scheduler
twice an hour.

Where apart time is not counted (no probes), run delay alone says both. Where that is unknown the guest is
off, and where no scheduler can be had that is fair to its neighbours: `--policy relaxed` makes it a gang all
the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gangd.model.domain import Domain, Mode
from gangd.model.evidence import Evidence
from gangd.model.policy import Decision

# Seconds between readings; until there is a figure; where nothing can be read.
AGAIN, FIRST, BLIND = 5.0, 1.0, 30.0
WINDOW = 4.0  # seconds that a figure is of, at least: others may have the counters read more often
CALM = 60.0  # seconds without contention after which a gang is left
STAY_SHORT, REST_SHORT, REST = 2 * CALM, 1800.0, 600.0  # seconds from entering, by how long the stay was

TYPE = "`--policy relaxed` makes it a gang all the same"
UNREAD = "not measured yet: off"
UNKNOWN = f"its run delay is not measured here: off; {TYPE}"
UNFAIR = f"the scheduler of gangs here may take CPU time from its neighbours: off; {TYPE}"
NONE = "no scheduler of gangs can be loaded here: off"
APART, WAITED = "its vCPUs ran apart for", "its vCPUs waited for CPUs for"


@dataclass(frozen=True)
class Memory:
    """The readings so far. mode: in force, or on its way. entered, left: when it last became a gang, and
    ceased to be one; calm: since when its vCPUs hardly wait, None = they do. seen: the last reading.

    seconds, parts: of the window that is being read, and what was apart and waited of it (sums of the shares
    by seconds), None = unknown.
    """

    mode: Mode = Mode.OFF
    entered: float = float("-inf")
    left: float = float("-inf")
    calm: float | None = None
    seen: float = float("-inf")
    seconds: float = 0.0
    parts: tuple[float | None, float | None] = (0.0, 0.0)
    why: str = UNREAD

    @property
    def rests(self) -> float:
        """The moment from which it may be a gang again."""
        return self.entered + (REST if self.left - self.entered >= STAY_SHORT else REST_SHORT)


class Adaptive:
    """The policy."""

    name = "adaptive"
    remembers = Memory

    def decide(self, domain: Domain, evidence: Evidence, memory: object = None) -> Decision:
        """off or relaxed; a guest with one vCPU is refused."""
        if len(domain.vcpus) < 2:
            return Decision(Mode.OFF, "a guest with one vCPU has no siblings to run with")
        past = memory if isinstance(memory, Memory) else Memory()
        now = _read(past, evidence) if evidence.seconds > 0 and evidence.time > past.seen else past
        why, fair = now.why, evidence.conditions.fair
        if not fair:
            now = now if now.mode is Mode.OFF else _left(now)
            why = why if why == UNREAD else NONE if fair is None else UNFAIR
        again = FIRST if now.why == UNREAD else AGAIN
        if now.why == UNKNOWN == past.why:  # once may be an accident
            again = BLIND
        return Decision(now.mode, f"adaptive: {why}", now, again)


def _read(past: Memory, evidence: Evidence) -> Memory:
    """Add a reading to the window; a whole window decides."""
    seconds = past.seconds + evidence.seconds
    apart = _added(past.parts[0], evidence.apart_ratio, evidence)
    waited = _added(past.parts[1], evidence.waited_ratio, evidence)
    now = replace(past, seen=evidence.time, seconds=seconds, parts=(apart, waited))
    if seconds < WINDOW:
        return now
    now = replace(now, seconds=0.0, parts=(0.0, 0.0))
    if waited is None:
        now = replace(now, why=UNKNOWN)
        return now if past.mode is Mode.OFF else _left(now)
    if past.mode is Mode.OFF:
        return _outside(now, None if apart is None else apart / seconds, waited / seconds, seconds, evidence)
    return _inside(now, waited / seconds, seconds, evidence)


def _added(part: float | None, share: float | None, evidence: Evidence) -> float | None:
    return None if part is None or share is None else part + share * evidence.seconds


def _outside(past: Memory, apart: float | None, waited: float, seconds: float, evidence: Evidence) -> Memory:
    """Make the guest a gang, or not yet; a guest that would have to leave at once becomes none."""
    share, what = (waited, WAITED) if apart is None else (apart, APART)
    told = f"{what} {share:.0%} of the last {seconds:.0f} s"
    if share * 100 < evidence.conditions.crowded_percent:
        return replace(past, why=f"{told}: off")
    if waited * 100 < evidence.conditions.calm_percent:
        return replace(past, why=f"{told}, and waited {waited:.0%} of the time that they could run: off")
    if past.seen < past.rests:
        left = past.rests - past.seen
        return replace(past, why=f"{told}: off, for it was a gang a while ago; again in {left:.0f} s")
    return replace(past, mode=Mode.RELAXED, entered=past.seen, calm=None, why=f"{told}: a gang")


def _inside(past: Memory, waited: float, seconds: float, evidence: Evidence) -> Memory:
    """Keep the guest a gang while its vCPUs wait, and a minute longer."""
    told = f"{WAITED} {waited:.0%} of the time that they could run"
    if waited * 100 >= evidence.conditions.calm_percent:
        return replace(past, calm=None, why=f"{told}, of the last {seconds:.0f} s: a gang")
    calm = past.calm if past.calm is not None else past.seen - seconds
    if past.seen - calm >= CALM:
        return _left(replace(past, why=f"{told}, of the last minute: off"))
    return replace(past, calm=calm, why=f"{told}, of the last {past.seen - calm:.0f} s: a gang for now")


def _left(past: Memory) -> Memory:
    return replace(past, mode=Mode.OFF, left=past.seen, calm=None)


POLICY = Adaptive()
