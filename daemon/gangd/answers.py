# SPDX-License-Identifier: Apache-2.0
"""The daemon's answers to its clients: snapshots to show, and the changes that an operator asks for.

The daemon acts on a change before it answers.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from gangd import __version__, logs, loops
from gangd.config import RUNTIME, Config
from gangd.control.service import Advice, Undone
from gangd.errors import NoSuchDomain, TimedOut
from gangd.events.proc import start_time
from gangd.events.sources import Source
from gangd.export.overview import overview
from gangd.export.page import render
from gangd.host_thread import Host
from gangd.loops import Following, Measuring, Reconciling
from gangd.measure.proc import own_usage
from gangd.model.affect import Affect
from gangd.model.domain import Domain, Mark
from gangd.model.mark_change import MarkChange
from gangd.model.policy import Policy, PolicyText
from gangd.model.profile import Rules, check_choice
from gangd.model.readings import Reading, Readings
from gangd.model.refused import by_guest
from gangd.model.smt import Smt
from gangd.model.snapshot import SelfStats, Snapshot
from gangd.planner import policy_texts
from gangd.previews import Preview, Previews
from gangd.trace.kept import kept

log = logging.getLogger("gangd")

AGAIN_SECONDS = 1.0  # from one look whether libvirt was read to the next


class Answers:
    """Implements `gangd.control.service.Service`."""

    def __init__(
        self,
        source: Source,
        host: Host,
        policies: Mapping[str, Policy],
        following: Following,
        measuring: Measuring,
        reconciling: Reconciling,
        config: Callable[[], Config],
    ) -> None:
        self._source, self._host, self._policies = source, host, policies
        self._following, self._measuring, self._reconciling = following, measuring, reconciling
        self._config = config
        self._texts, self._started = policy_texts(), _started()
        self._readings = Readings()
        self._previews = Previews(host, following, measuring, reconciling)

    def snapshot(self) -> Snapshot:
        """Everything there is to show, as of the last measurement."""
        cpu, rss = own_usage()
        age = self._measuring.age
        return Snapshot(
            version=__version__,
            time=time.time(),
            kernel=os.uname().release,
            state=self._following.state,
            plan=self._reconciling.plan,
            backend=self._measuring.backend,
            probes=self._measuring.probes,
            own=SelfStats(
                os.getpid(),
                self._started,
                cpu,
                rss,
                self._following.resyncs,
                self._following.events,
                **self._reconciling.done.counted,
            ),
            stats=self._measuring.stats,
            failures=(*self._source.troubles, *self._reconciling.done.failures),
            undone=self._following.undone,
            refused=by_guest(self._reconciling.done.refused),
            age=age,
            read_at=time.monotonic() - age,
        )

    async def measured(self) -> Snapshot:
        """Return the snapshot with counters read now."""
        await self._measuring.read()
        return self.snapshot()

    async def metrics(self, openmetrics: bool) -> tuple[str, str]:
        """Content type and text of /metrics, with counters read now."""
        series = self._config().exporter.vcpu_series
        return await asyncio.to_thread(render, await self.measured(), openmetrics, series)

    async def overview(self) -> str:
        """The page of host, guests and last trace, as HTML, with counters read now."""
        measured = await self.measured()
        return await asyncio.to_thread(lambda: overview(measured, kept(RUNTIME)))

    async def asked(self) -> None:
        """Returns when libvirt was read once, or could not be."""
        await self._source.asked()

    def resolve(self, ref: str) -> Domain:
        """The domain called `ref`, in virsh's order: id, UUID, name."""
        try:
            return self._following.state.find(ref)
        except NoSuchDomain:
            if self._following.resyncs:
                raise
            raise TimedOut("libvirt has not listed its domains yet")

    def policies(self) -> tuple[PolicyText, ...]:
        """Return the policies that were installed when gangd started."""
        return self._texts

    def rules(self) -> Rules:
        """Return the rules that the configuration has."""
        return self._following.rules

    async def refresh(self) -> None:
        """Read libvirt and the kernel now."""
        await self._source.resync()
        await self._catch_up()

    async def _catch_up(self) -> None:
        """Act on what the source read, and measure."""
        await self._reconciling.reconcile()
        await self._measuring.read()

    async def mark(self, ref: str, change: MarkChange) -> Domain:
        """Store the mark and act on it before returning."""
        rules = self._following.rules
        name = check_choice(change.policy or rules.default, rules, self._policies)
        domain = await self._source.find(ref)
        mark = Mark(name, change.weight, domain.mark.tag if domain.mark else None)
        reading = await self._reading(domain, mark, change.affect)
        marked = await self._set_mark(domain, mark, change.affect)
        await self._keep(domain.uuid, reading)
        if domain.uuid in self._following.undone and change.affect != Affect(config=True):
            await self.resume(domain.uuid)
        return marked

    async def unmark(self, ref: str, affect: Affect | None = None) -> Domain:
        """Take the mark away and put the guest back as it was found."""
        domain = await self._set_mark(await self._source.find(ref), None, affect)
        if affect != Affect(config=True):
            self._readings.forget(domain.uuid)
        return domain

    async def change(self, ref: str, change: MarkChange) -> Domain:
        """Change what is given of the marks there are, and act on it."""
        if change.policy is not None:
            check_choice(change.policy, self._following.rules, self._policies)
        domain = await self._source.find(ref)
        mark = change.applied(domain.mark) if domain.mark else None
        reading = await self._reading(domain, mark, change.affect)
        found = await self._source.change_mark(domain.uuid, change.applied, change.affect)
        event = logs.about("changed", domain)
        log.info("domain '%s': mark changed to %s", domain.name, found.mark, extra=event)
        await self._act()
        await self._keep(domain.uuid, reading)
        return found

    async def _set_mark(self, domain: Domain, mark: Mark | None, affect: Affect | None) -> Domain:
        marked = await self._source.set_mark(domain.uuid, mark, affect)
        kind, news = ("marked", f"marked, policy {mark.policy}") if mark else ("unmarked", "mark taken away")
        log.info("domain '%s': %s", domain.name, news, extra=logs.about(kind, domain))
        await self._act()
        return marked

    async def watch(self) -> None:
        """Read the guests that ran before this gangd did, once the probes count them: exits since then are
        compared with CPU time since then."""
        while not self._following.known:
            await asyncio.sleep(AGAIN_SECONDS)
        await self._reconciling.reconcile()
        await asyncio.sleep(loops.FRESH_SECONDS)  # the reading before was made without them
        await self._measuring.read()
        self._readings.begin(self._following.state.domains, self._measuring.stats)

    def reading(self, domain: Domain) -> Reading | None:
        """The reading of a guest from before its mark was in force; none, if somebody else changed its policy
        since."""
        kept, choice = self._readings.of(domain), self._following.rules.choice(domain)
        return kept if kept and choice and choice.policy == kept.policy else None

    async def _reading(self, domain: Domain, mark: Mark | None, affect: Affect | None) -> Reading | None:
        """Read a running guest before a mark is in force; None: it is not, or its policy stays as it is."""
        uuid, rules = domain.uuid, self._following.rules
        known = self._following.state.domains.get(uuid)
        wanted = rules.choice(replace(domain, mark=mark, mark_error=None)) if mark else None
        if affect == Affect(config=True) or known is None or known.pid is None or wanted is None:
            return None
        found = None if uuid in self._following.undone else rules.choice(domain)
        if found and found.policy == wanted.policy:
            return None
        await self._measuring.read()
        stats, age = self._measuring.stats.get(uuid), self._measuring.age
        if stats is None:
            return None
        return Reading(
            pid=known.pid,
            life_seconds=_life_seconds(known, age),
            before=found.policy if found else None,
            policy=wanted.policy,
            stats=stats,
            began=stats,
            read_at=time.monotonic() - age,
            time=time.time() - age,
            watched=self._readings.watched(known),
        )

    async def _keep(self, uuid: str, reading: Reading | None) -> None:
        """Keep a reading from before a mark that is in force, with one of now."""
        if reading is None:
            return
        await self._measuring.read()
        age = self._measuring.age
        began = self._measuring.stats.get(uuid, reading.began)
        reading = replace(reading, began=began, read_at=time.monotonic() - age, time=time.time() - age)
        self._readings.keep(uuid, reading, self._following.state.domains)

    async def _act(self) -> None:
        """Make the host what is wanted before somebody is answered."""
        self._reconciling.changed.set()
        await self._reconciling.reconcile()
        await self._measuring.read_parts()

    async def undo(self, ref: str | None) -> Undone:
        """Put back what was changed of one domain or of all, and leave them alone (decision 22)."""
        named = None if ref is None else self.resolve(ref)
        wanted = [d for d in self._following.state.domains.values() if self._following.rules.wants(d)]
        left = wanted if named is None else [named]
        self._following.leave_alone({domain.uuid for domain in left if domain in wanted})
        async with self._reconciling.alone:
            report = await self._host.undo(named.uuid if named else None)
        if named is None:  # CPUs may have come back
            await self._source.look()
        for domain in left:
            self._readings.forget(domain.uuid)
            log.info("domain '%s' is left alone now", domain.name, extra=logs.about("undone", domain))
        log.info("undo: %d settings put back", report.undone)
        for failure in report.failures:
            log.warning("while undoing: %s", failure, extra=self._following.about("failure", failure))
        await self._act()
        return Undone(tuple(left), report.undone, report.failures)

    async def resume(self, ref: str | None) -> tuple[Domain, ...]:
        """Schedule again what undo() left alone."""
        known = self._following.state.domains
        waiting = [known[uuid] for uuid in sorted(self._following.undone) if uuid in known]
        left = waiting if ref is None else [self.resolve(ref)]
        self._following.resume({domain.uuid for domain in left})
        for domain in left:
            log.info("domain '%s' is resumed", domain.name, extra=logs.about("resumed", domain))
        await self._act()
        return tuple(left)

    async def smt(self, wanted: str | None) -> Smt:
        """SMT of the host, after switching it "on" or "off" if that is wanted."""
        if wanted is not None:
            try:
                async with self._reconciling.alone:
                    await self._host.set_smt(wanted)
            finally:  # the scheduler was unloaded for it
                self._reconciling.expire_all()
                self._reconciling.changed.set()
            log.info("SMT: %s", wanted, extra=logs.about("smt"))
            await self._source.look()
            await self._catch_up()
        return await self._host.smt()

    async def preview(self, ref: str | None) -> Preview:
        """The plan, as if `ref` were marked unless it was chosen already, and what it would change now."""
        return await self._previews.plan(self.resolve(ref) if ref else None)

    async def advise(self, ref: str | None) -> Advice:
        """The plan for `ref`, or for each running guest, as if a mark named `adaptive`."""
        return await self._previews.advise(self.resolve(ref) if ref else None)


def _started() -> float:
    """Return when this process started, in seconds since the epoch."""
    return time.time() - _age(start_time(os.getpid(), os.getpid()) or 0)


def _age(starttime: int) -> float:
    """Return the seconds since a thread started, of which proc_pid_stat(5) has the clock ticks since boot."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - starttime / os.sysconf("SC_CLK_TCK")


def _life_seconds(domain: Domain, age: float) -> float | None:
    """The time from the start of a guest's first vCPU to a reading that is `age` seconds old."""
    started = [vcpu.starttime for vcpu in domain.vcpus if vcpu.starttime is not None]
    if not started:
        return None
    return max(_age(min(started)) - age, 0.0)
