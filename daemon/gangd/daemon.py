# SPDX-License-Identifier: Apache-2.0
"""Wires the stages together. No policy and no kernel in here.

    libvirt ─▶ source ─▶ reduce ─▶ State ─▶ make_plan ─▶ Plan ─▶ host.reconcile
                                                ▲
                            host.sample ─▶ Evidence, Snapshot ─▶ D-Bus, /metrics

Level-triggered: an event only makes the loop run. Each turn compares what is
wanted with what is, so a lost event costs an interval, never truth.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Mapping, Set
from dataclasses import asdict, replace
from pathlib import Path

from gangd import __version__, logs
from gangd.actuate.base import Report
from gangd.config import Config, merged
from gangd.control.service import Undone
from gangd.errors import GangError, NoLibvirt
from gangd.events import uevent
from gangd.events.libvirt import LibvirtSource
from gangd.export.page import render
from gangd.host import Host
from gangd.measure.proc import own_usage
from gangd.model.affect import Affect
from gangd.model.domain import Domain, Mark
from gangd.model.doubt import Doubt
from gangd.model.event import Event, Resynced
from gangd.model.history import History
from gangd.model.moves import Moves
from gangd.model.placement import Standing
from gangd.model.plan import GangPlan, Plan
from gangd.model.policy import PolicyText
from gangd.model.profile import Rules, check_choice, check_rules
from gangd.model.refused import by_guest
from gangd.model.smt import Smt
from gangd.model.snapshot import DomainStats, Part, SelfStats, Snapshot
from gangd.model.state import State, reduce
from gangd.policy import load_policies, make_plan, policy_texts

log = logging.getLogger("gangd")

FRESH_SECONDS = 0.2  # a sample this young is not taken again for the next reader
SETTLE_SECONDS = 0.005  # events come in bursts: one reconcile for all of them


class Daemon:
    """Implements `gangd.control.service.Service`."""

    def __init__(self, config: Config, root: Path = Path("/")) -> None:
        self.config = config
        self.source = LibvirtSource(config.daemon.libvirt_uri, root, config.daemon.interval)
        self.host = Host(config, root)
        self._policies, self._policy_texts = load_policies(), policy_texts()
        check_rules(config.rules, self._policies)
        self.state, self.plan, self._moves = State(), Plan(), Moves(config.scheduler.moves_per_minute)
        self.changed = asyncio.Event()
        self._reread = asyncio.Event()  # read everything now: CPUs may have come or gone
        self.news = asyncio.Event()  # there is something to show; whoever shows it clears it
        self._hurry = asyncio.Event()  # measure now: how often is another question than a moment ago
        self._stopping = False
        self._reconciling, self._sampling = asyncio.Lock(), asyncio.Lock()
        self._sampled_at = self._pause = 0.0  # _pause: seconds between two readings now
        self._stats: Mapping[str, DomainStats] = {}
        self._history = History()
        unasked = (False, False, "not asked yet")
        self.backend, self._probes = Part("sched_ext", *unasked), Part("bpf", *unasked)
        self._started, self._totals = time.time(), Report()
        self._undone: frozenset[str] = frozenset()  # marked, and left alone until they are resumed
        self._resyncs = self._events = 0
        self._doubt = Doubt(config.daemon.interval)
        self._read = False  # everything was, and it is not acted on yet

    # ---- the loops -------------------------------------------------------------

    async def follow(self) -> None:
        """Turn events into changes of the host, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.source.run(self._on_event))
            tasks.create_task(uevent.follow(self._reread.set))
            tasks.create_task(self._read_when_told())
            tasks.create_task(self._reconcile_when_changed())
            tasks.create_task(self._measure())

    async def stop(self) -> None:
        """Put the host back as it was found and unload everything."""
        self._stopping = True  # undoing raises events, too: nothing may be done about them any more
        async with self._reconciling:
            report = await self.host.undo()
        for failure in report.failures:
            log.error("while stopping: %s", failure, extra=self._about("failure", failure))
        await self.host.close()

    def reload(self, found: Config) -> None:
        """Take up what a running gangd can of another configuration, and say what it cannot.

        Raises InvalidConfig, and then nothing is taken up.
        """
        settings, taken, kept = merged(self.config, found)
        check_rules(settings.rules, self._policies)
        self.config = settings
        self.source.set_interval(settings.daemon.interval)
        self._doubt = Doubt(settings.daemon.interval)
        self.host.set_slot(settings.scheduler.slot_us)
        self._moves.limit = settings.scheduler.moves_per_minute
        self._undone = frozenset(uuid for uuid in self._undone if self._stays_undone(uuid, self.state))
        self._hurry.set()
        self.changed.set()
        logs.reloaded(log, taken, kept)

    async def alive(self) -> None:
        """Returns when the host thread has answered: the watchdog's proof of life.

        Asks on the way whether the kernel ejected the scheduler, and has it loaded again: for the CPUs that
        there are then, as it does so when one comes or goes.
        """
        if report := await self.host.ejected():
            await self._sample()
            for line in (self.backend.reason, *report):
                log.warning("%s", line, extra=logs.about("ejected"))
            self._doubt.of_all()
            self._reread.set()

    async def _read_when_told(self) -> None:
        while True:
            await self._reread.wait()
            await asyncio.sleep(SETTLE_SECONDS)
            self._reread.clear()
            with contextlib.suppress(GangError):
                await self.source.resync()
            self.changed.set()

    def _on_event(self, event: Event) -> None:
        before, self.state = self.state, reduce(self.state, event)
        self._events += 1
        if isinstance(event, Resynced):
            self._resyncs += 1
            self._read = True
            self.changed.set()  # what else may have been changed is best looked for now
        logs.connection(log, event)
        if self.state != before:
            self.changed.set()
            if not self.state.connected:  # else there is more to tell once it was acted on
                self.news.set()
            self._undone = frozenset(uuid for uuid in self._undone if self._stays_undone(uuid, before))

    def _stays_undone(self, uuid: str, before: State) -> bool:
        """One that is marked anew, whoever does it, is wanted again."""
        now, then = self.state.domains.get(uuid), before.domains.get(uuid)
        anew = now is not None and now.mark and then is not None and not then.mark
        return now is not None and self.config.rules.wants(now) and not anew

    async def _reconcile_when_changed(self) -> None:
        while True:
            try:
                # libvirt was read in half of that time, unless it hangs, and that was a look at everything
                await asyncio.wait_for(self.changed.wait(), 2 * self.config.daemon.interval)
                due = False
            except TimeoutError:
                due = True
            await asyncio.sleep(SETTLE_SECONDS)
            await self._reconcile(due)

    async def _reconcile(self, due: bool = False) -> None:
        """Make the host what is wanted, if anything changed since the last time or it is `due`."""
        if not (self.state.connected and self._resyncs):  # nothing is known to be wrong
            self.changed.clear()
            return
        async with self._reconciling:
            if self._stopping or not (due or self.changed.is_set()):
                return
            self.changed.clear()
            before, self.plan = self.plan, self._planned(self.state, self._undone)
            for sentence, fields in logs.news(before, self.plan):
                log.info("%s", sentence, extra=fields)
            self._moves.spend(self.plan.moved, time.monotonic())
            known, read, self._read = self.state.domains, self._read, False
            doubtful = self._doubt.take(known, due or read, time.monotonic())
            report = await self.host.reconcile(self.plan, known, doubtful)
            self._doubt.failed(report.again, time.monotonic())
            self._history.in_force(self.plan, time.monotonic())
            if self.plan.again is not None and self.plan.again < self._pause:
                self._hurry.set()
            self.news.set()
        new = [trouble for trouble in report.troubles if trouble not in self._totals.failures]
        for trouble in new:
            log.warning("%s", trouble, extra=self._about("failure", trouble))
        for line in self.host.verifier_log.splitlines() if new else ():
            log.debug("%s", line)
        self._totals = self._totals.then(report)

    def _planned(self, state: State, undone: Set[str]) -> Plan:
        moves, strategy = self._moves.left(time.monotonic()), self.config.scheduler.placement
        standing = Standing(self.plan, moves, self.backend.roams, strategy)
        state = state.unlimited() if self.config.actuate.allowed_cpus == "widen" else state
        return make_plan(state, self._history.evidence, self._policies, standing, self.config.rules, undone)

    def _about(self, event: str, sentence: str) -> dict[str, str]:
        return logs.about(event, logs.subject(sentence, self.state.domains.values()))

    async def _measure(self) -> None:
        """The readings that policies see: one interval after the other, whoever else reads meanwhile."""
        while True:
            await self._sample()
            self._history.read(self._stats, self._sampled_at)
            if self.plan.again is not None:
                async with self._reconciling:  # amid one, pins are neither as read nor as written
                    self._think()
            self._pause = min(self.config.daemon.measure_interval, self.plan.again or float("inf"))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), self._pause)
            self._hurry.clear()

    def _think(self) -> None:
        """Let policies learn from the last reading; the host is touched only if one wants another mode."""
        plan = self._planned(self.state, self._undone)
        if [(gang.uuid, gang.mode) for gang in plan.gangs] == [(g.uuid, g.mode) for g in self.plan.gangs]:
            self.plan = replace(self.plan, gangs=tuple(map(GangPlan.learned, self.plan.gangs, plan.gangs)))
            self.news.set()
        else:
            self.changed.set()

    async def _sample(self) -> None:
        async with self._sampling:
            if time.monotonic() - self._sampled_at < FRESH_SECONDS:
                return
            self._sampled_at, self._stats, *parts = await self.host.sample(self.state.domains.values())
            self._show(*parts)

    def _show(self, backend: Part, probes: Part) -> None:
        if (backend.news, probes.news) != (self.backend.news, self._probes.news):
            self.news.set()
        self.backend, self._probes = backend, probes

    # ---- the service -----------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Everything there is to show, as of the last measurement."""
        cpu, rss = own_usage()
        return Snapshot(
            version=__version__,
            time=time.time(),
            kernel=os.uname().release,
            state=self.state,
            plan=self.plan,
            backend=self.backend,
            probes=self._probes,
            own=SelfStats(
                os.getpid(), self._started, cpu, rss, self._resyncs, self._events, **self._totals.counted
            ),
            stats=self._stats,
            failures=(*self.source.troubles, *self._totals.failures),
            undone=self._undone,
            refused=by_guest(self._totals.refused),
        )

    async def measured(self) -> Snapshot:
        """The same with counters read now."""
        await self._sample()
        return self.snapshot()

    async def metrics(self, openmetrics: bool) -> tuple[str, str]:
        """Content type and text of /metrics, with counters read now."""
        return render(await self.measured(), openmetrics)

    async def asked(self) -> None:
        """Returns when libvirt was read once, or could not be."""
        await self.source.asked()

    def resolve(self, ref: str) -> Domain:
        """The domain called `ref`, in virsh's order: id, UUID, name."""
        return self.state.find(ref)

    def policies(self) -> tuple[PolicyText, ...]:
        """As they were installed when gangd started."""
        return self._policy_texts

    def rules(self) -> Rules:
        """As the configuration has them."""
        return self.config.rules

    async def refresh(self) -> None:
        """Read libvirt and the kernel now."""
        await self.source.resync()
        await self._reconcile()
        await self._sample()

    async def mark(
        self, ref: str, policy: str | None, weight: int | None, affect: Affect | None = None
    ) -> Domain:
        """Store the mark and act on it before returning."""
        name = check_choice(policy or self.config.scheduler.policy, self.config.rules, self._policies)
        domain = await self.source.find(ref)
        tag = domain.mark.tag if domain.mark else None
        marked = await self._set_mark(domain, Mark(name, weight, tag), affect)
        if domain.uuid in self._undone and affect != Affect(config=True):
            await self.resume(domain.uuid)
        return marked

    async def unmark(self, ref: str, affect: Affect | None = None) -> Domain:
        """Take the mark away and put the guest back as it was found."""
        return await self._set_mark(await self.source.find(ref), None, affect)

    async def change(
        self, ref: str, policy: str | None, weight: int | None, affect: Affect | None = None
    ) -> Domain:
        """Change what is given of the marks there are, and act on it."""
        if policy is not None:
            check_choice(policy, self.config.rules, self._policies)

        def changed(mark: Mark) -> Mark:
            return Mark(policy or mark.policy, mark.weight if weight is None else weight, mark.tag)

        domain = await self.source.find(ref)
        found = await self.source.change_mark(domain.uuid, changed, affect)
        event = logs.about("changed", domain)
        log.info("domain '%s': mark changed to %s", domain.name, found.mark, extra=event)
        await self._act()
        return found

    async def _set_mark(self, domain: Domain, mark: Mark | None, affect: Affect | None) -> Domain:
        marked = await self.source.set_mark(domain.uuid, mark, affect)
        kind, news = ("marked", f"marked, policy {mark.policy}") if mark else ("unmarked", "mark taken away")
        log.info("domain '%s': %s", domain.name, news, extra=logs.about(kind, domain))
        await self._act()
        return marked

    async def _act(self) -> None:
        """Make the host what is wanted before somebody is answered."""
        self.changed.set()
        await self._reconcile()
        self._show(*await self.host.parts())

    async def undo(self, ref: str | None) -> Undone:
        """Put back what was changed of one domain or of all, and leave them alone (decision 22)."""
        named = None if ref is None else self.resolve(ref)
        wanted = [d for d in self.state.domains.values() if self.config.rules.wants(d)]
        left = wanted if named is None else [named]
        self._undone |= {domain.uuid for domain in left if domain in wanted}
        async with self._reconciling:
            report = await self.host.undo(named.uuid if named else None)
        if named is None:  # CPUs may have come back
            with contextlib.suppress(NoLibvirt):
                await self.source.resync()
        for domain in left:
            log.info("domain '%s' is left alone now", domain.name, extra=logs.about("undone", domain))
        log.info("undo: %d settings put back", report.undone)
        for failure in report.failures:
            log.warning("while undoing: %s", failure, extra=self._about("failure", failure))
        await self._act()
        return Undone(tuple(left), report.undone, report.failures)

    async def resume(self, ref: str | None) -> tuple[Domain, ...]:
        """Schedule again what undo() left alone."""
        known = self.state.domains
        waiting = [known[uuid] for uuid in sorted(self._undone) if uuid in known]
        left = waiting if ref is None else [self.resolve(ref)]
        self._undone -= {domain.uuid for domain in left}
        for domain in left:
            log.info("domain '%s' is resumed", domain.name, extra=logs.about("resumed", domain))
        await self._act()
        return tuple(left)

    async def smt(self, wanted: str | None) -> Smt:
        """SMT of the host, after switching it "on" or "off" if that is wanted."""
        if wanted is not None:
            try:
                async with self._reconciling:
                    if self._stopping:  # nobody would put it back
                        raise GangError("gangd is stopping")
                    await self.host.set_smt(wanted)
            finally:  # the scheduler was unloaded for it
                self._doubt.of_all()
                self.changed.set()
            log.info("SMT: %s", wanted, extra=logs.about("smt"))
            with contextlib.suppress(NoLibvirt):  # who is not connected plans nothing either
                await self.refresh()
        return await self.host.smt()

    async def preview(self, ref: str | None) -> tuple[Plan, list[dict[str, str | None]]]:
        """The plan, as if `ref` were marked unless it was chosen already, and what it would change now."""
        state, undone = self.state, self._undone
        if ref is not None:
            domain = self.resolve(ref)
            if not self.config.rules.choice(domain):
                marked = replace(domain, mark=Mark(self.config.scheduler.policy), mark_error=None)
                state = replace(state, domains={**state.domains, domain.uuid: marked})
            undone -= {domain.uuid}
        async with self._reconciling:
            plan = self._planned(state, undone)
            changes = await self.host.changes(plan)
        return plan, [asdict(change) for change in changes]
