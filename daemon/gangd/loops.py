# SPDX-License-Identifier: Apache-2.0
"""The loops of the daemon: three, each with the state that it alone changes.

    Following ─ guests ─▶ Reconciling ◀─ evidence ─ Measuring
        └─ "look again" ─────▲  └─ "think" ◀───────────┘

State is read along the upper arrows. Along the lower ones Following and Measuring, whose run() is handed
Reconciling, wake it.
Level-triggered: an event only makes Reconciling look. Each time it compares what is wanted with what is, so a
lost event costs an interval, never truth.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import time
from collections.abc import Mapping, Set
from dataclasses import replace
from functools import partial
from math import inf

from gangd import logs
from gangd.actuate.base import Report
from gangd.config import Config
from gangd.events import uevent
from gangd.events.sources import Source
from gangd.host_thread import Host
from gangd.model.domain import KVM, Domain, Mode
from gangd.model.event import CpusSeen, DomainGone, DomainSeen, Event, Resynced
from gangd.model.evidence import Conditions, Evidence
from gangd.model.history import History
from gangd.model.moves import Moves
from gangd.model.pauses import Pauses
from gangd.model.placement import Standing
from gangd.model.plan import GangPlan, Plan
from gangd.model.policy import Policy
from gangd.model.profile import Rules
from gangd.model.snapshot import DomainStats, Part
from gangd.model.stale import StaleGuests
from gangd.model.state import State, reduce
from gangd.planner import make_plan

log = logging.getLogger("gangd")

FRESH_SECONDS = 0.2  # a sample this young is not taken again for the next reader
NOTHING = Plan()
SETTLE_SECONDS = 0.005  # events come in bursts: one reconcile for all of them


class Following:
    """Follows libvirt and the CPUs.

    state: as of the last event. rules: who is scheduled how. undone: UUIDs of guests that are wanted, and
    left alone until they are resumed. events, resyncs: how many there were.
    """

    def __init__(self, source: Source, rules: Rules, news: asyncio.Event) -> None:
        self.state, self.rules = State(), rules
        self.undone: frozenset[str] = frozenset()
        self.events = self.resyncs = 0
        self._source, self._news = source, news
        self._stale = asyncio.Event()  # CPUs may have come or gone

    async def run(self, reconciling: Reconciling) -> None:
        """Tell `reconciling` of what changes, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._source.run(partial(self._hear, reconciling)))
            tasks.create_task(uevent.follow(self.read_again, uevent.is_of_cpu, "CPUs"))
            tasks.create_task(self._read_when_told(reconciling))

    @property
    def known(self) -> bool:
        """True once everything was read. While libvirt is away the last state holds: a setting of a guest
        that ended meanwhile finds no thread."""
        return self.resyncs > 0

    def read_again(self) -> None:
        """Read everything now, the CPUs alone while libvirt does not answer, and then act on it."""
        self._stale.set()

    def set_rules(self, rules: Rules) -> None:
        """Follow these rules from now on; forget undone guests that they do not want."""
        self.rules = rules
        self._forget_undone(self.state)

    def leave_alone(self, guests: Set[str]) -> None:
        """These (UUIDs) are undone; it is for the caller to put them back."""
        self.undone |= guests

    def resume(self, guests: Set[str]) -> None:
        """These (UUIDs) are undone no more."""
        self.undone -= guests

    def about(self, event: str, sentence: str) -> dict[str, str]:
        """The journal's fields of a record that says `sentence`, of the guest it names."""
        return logs.about(event, logs.subject(sentence, self.state.domains.values()))

    async def _read_when_told(self, reconciling: Reconciling) -> None:
        while True:
            await self._stale.wait()
            await asyncio.sleep(SETTLE_SECONDS)
            self._stale.clear()
            await self._source.look()
            reconciling.changed.set()

    def _hear(self, reconciling: Reconciling, event: Event) -> None:
        before, self.state = self.state, reduce(self.state, event)
        self.events += 1
        self.resyncs += isinstance(event, Resynced)
        if isinstance(event, Resynced | CpusSeen):
            reconciling.expire_all()  # what else may have been changed is best looked for now
            reconciling.changed.set()
        logs.connection(log, event)
        if self.state != before:
            if self._matters(event, before):
                reconciling.changed.set()
            if not self.state.connected:  # else there is more to tell once it was acted on
                self._news.set()
            self._forget_undone(before)

    def _matters(self, event: Event, before: State) -> bool:
        """True if there is anything to do. Any user may start machines of KVM's: one that no rule chose waits
        for the next time that everything is looked at."""
        match event:
            case DomainSeen(domain):
                found: tuple[Domain | None, ...] = domain, before.domains.get(domain.uuid)
            case DomainGone(uuid):
                found = (before.domains.get(uuid),)
            case _:
                return True
        return any(one and (one.source != KVM or self.rules.wants(one)) for one in found)

    def _forget_undone(self, before: State) -> None:
        self.undone = frozenset(uuid for uuid in self.undone if self._stays_undone(uuid, before))

    def _stays_undone(self, uuid: str, before: State) -> bool:
        """True unless the guest was marked anew, which any caller may do, or is chosen no longer. libvirt
        forgets a guest without a definition when it ends: it may come back, as the same guest."""
        now, then = self.state.domains.get(uuid), before.domains.get(uuid)
        anew = now is not None and now.mark and then is not None and not then.mark
        return now is None or (self.rules.wants(now) and not anew)


class Measuring:
    """Reads counters of guests, and how backend and probes are, for policies and for whoever asks.

    stats, backend, probes: as they were read last. interval: seconds between two readings that policies see,
    unless one of them wants the next sooner.
    """

    def __init__(self, host: Host, following: Following, interval: float, news: asyncio.Event) -> None:
        self.stats: Mapping[str, DomainStats] = {}
        unasked = (False, False, "not asked yet")
        self.backend, self.probes = Part("sched_ext", *unasked), Part("bpf", *unasked)
        self._host, self._following, self._interval, self._news = host, following, interval, news
        self._history = History()
        self._read_at = self._pause = 0.0  # _pause: seconds to the next reading
        self._reading = asyncio.Lock()
        self._hurry = asyncio.Event()  # that pause is too long now

    async def run(self, reconciling: Reconciling) -> None:
        """Read, have `reconciling` think about it, wait; until cancelled, whoever else reads meanwhile."""
        while True:
            await self.read()
            self._history.read(self.stats, self._read_at)
            self._pause = min(self._interval, await reconciling.think() or inf)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), self._pause)
            self._hurry.clear()

    @property
    def evidence(self) -> Mapping[str, Evidence]:
        """The evidence that policies get of each guest, by UUID."""
        return self._history.evidence

    @property
    def age(self) -> float:
        """Seconds since `stats` were read."""
        return time.monotonic() - self._read_at

    async def read(self) -> None:
        """Read now, unless somebody did a moment ago."""
        async with self._reading:
            if self.age < FRESH_SECONDS:
                return
            guests = self._following.state.domains.values()
            self._read_at, self.stats, *parts = await self._host.sample(guests)
            self._show(*parts)

    async def read_parts(self) -> None:
        """Read how backend and probes are, and no counters."""
        self._show(*await self._host.parts())

    def in_force(self, plan: Plan) -> None:
        """From now on guests are scheduled as `plan` says, and read as often as it wants."""
        self._history.in_force(plan, time.monotonic())
        if plan.again is not None and plan.again < self._pause:
            self._hurry.set()

    def set_interval(self, seconds: float) -> None:
        """Read now, and from then on that often."""
        self._interval = seconds
        self._hurry.set()

    def _show(self, backend: Part, probes: Part) -> None:
        if (backend.news, probes.news) != (self.backend.news, self.probes.news):
            self._news.set()
        self.backend, self.probes = backend, probes


class Reconciling:
    """Makes the host what is wanted of it.

    plan: the one in force; the first is made from what the gangd before `left`. done: the sum of all reports,
    with the last one's troubles. changed: there is something to do. alone: a task that holds it has the host
    to itself; amid a reconcile pins are neither as they were read nor as they will be.
    """

    def __init__(
        self,
        config: Config,
        policies: Mapping[str, Policy],
        host: Host,
        following: Following,
        measuring: Measuring,
        news: asyncio.Event,
        left: Plan | None = None,
    ) -> None:
        self.plan, self.done = left or NOTHING, Report()
        self._is_first = True  # of the plans of this process
        self.changed, self.alone = asyncio.Event(), asyncio.Lock()
        self._config, self._policies, self._news = config, policies, news
        self._host, self._following, self._measuring = host, following, measuring
        self._stale = StaleGuests(config.daemon.interval)
        self._moves, self._pauses = Moves(config.scheduler.moves_per_minute), Pauses()

    async def run(self) -> None:
        """Reconcile when something changed, until cancelled."""
        while True:
            try:
                # libvirt was read in half of that time, unless it hangs, and that was a look at everything
                await asyncio.wait_for(self.changed.wait(), 2 * self._config.daemon.interval)
            except TimeoutError:
                self.expire_all()
                self.changed.set()
            await asyncio.sleep(SETTLE_SECONDS)
            await self.reconcile()

    def expire_all(self) -> None:
        """Settings of any guest may be gone: the next reconcile looks at everything."""
        self._stale.expire_all()

    def set_config(self, config: Config) -> None:
        """Plan by another configuration from now on."""
        self._config = config
        self._stale = StaleGuests(config.daemon.interval)
        self._moves.limit = config.scheduler.moves_per_minute
        self.changed.set()

    def planned(self, state: State, undone: Set[str]) -> Plan:
        """The plan for the host if guests were as in `state`; guests in `undone` (UUIDs) are left alone."""
        moves, strategy = self._moves.left(time.monotonic()), self._config.scheduler.placement
        paused = self._pauses.long(state.domains.values(), time.monotonic())
        standing = Standing(self.plan, moves, self._measuring.backend.roams, strategy, paused)
        state = state.unlimited() if self._host.widens else state
        said, evidence = self._following.rules, self._measuring.evidence
        return make_plan(state, evidence, self._policies, standing, said, undone, self._conditions())

    def _conditions(self) -> Conditions:
        backend, settings = self._measuring.backend, self._config.scheduler
        fair = backend.fair if backend.usable or backend.active else None
        return Conditions(fair, settings.crowded_percent, settings.calm_percent)

    async def think(self) -> float | None:
        """Let policies learn from the last reading; the host is touched only if one wants another mode.

        Returns in how many seconds they want the next one, None: none of them measures.
        """
        if self.plan.again is None:
            return None
        async with self.alone:
            gangs, wanted = self.plan.gangs, self._wanted().gangs
            if list(map(_deed, gangs)) == list(map(_deed, wanted)):
                self.plan = replace(self.plan, gangs=tuple(map(GangPlan.learned, gangs, wanted)))
                self._news.set()
            else:
                self.changed.set()
        return self.plan.again

    async def reconcile(self) -> None:
        """Make the host what is wanted, if anything changed since the last time."""
        if not self._following.known:
            self.changed.clear()
            return
        async with self.alone:
            if not self.changed.is_set():
                return
            self.changed.clear()
            before, self.plan = self.plan, self._wanted()
            for sentence, fields in logs.news(before, self.plan):
                log.info("%s", sentence, extra=fields)
            self._moves.spend(self.plan.moved, time.monotonic())
            guests = self._following.state.domains
            stale = self._stale.take(guests, time.monotonic())
            report = await self._host.reconcile(self.plan, guests, stale)
            self._stale.failed(report.again, time.monotonic())
            self._measuring.in_force(self.plan)
            self._news.set()
            if self._is_first:  # what is there now stays: Python need not look through it for garbage
                gc.freeze()
            self._is_first = False
        self._note(report)

    def _wanted(self) -> Plan:
        return self.planned(self._following.state, self._following.undone)

    def _note(self, report: Report) -> None:
        new = [trouble for trouble in report.troubles if trouble not in self.done.failures]
        for trouble in new:
            log.warning("%s", trouble, extra=self._following.about("failure", trouble))
        for line in self._host.verifier_log.splitlines() if new else ():
            log.debug("%s", line)
        self.done = self.done.then(report)


def _deed(gang: GangPlan) -> tuple[str, Mode]:
    """The parts of a gang's plan for which, if they change, the host has to be touched."""
    return gang.uuid, gang.mode
