# SPDX-License-Identifier: Apache-2.0
"""The host's side of the daemon: everything that blocks, run one call at a time on one thread.

Actuators, probes and sampler share kernel handles and keep no locks. They are
therefore only ever touched from this thread; the event loop awaits it. systemd's
watchdog asks both, and waits longer while a scheduler is loaded.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from gangd import handover, systemd
from gangd.actuate import affinity, gang_ko, sched_ext, smt
from gangd.actuate.affinity import Affinity
from gangd.actuate.backend import Backend, Loaded
from gangd.actuate.base import Actuator, Change, Report, Toggle
from gangd.actuate.cgroup import Cgroup
from gangd.actuate.executor import Executor, Pass, next_step
from gangd.actuate.gang import Gangs
from gangd.actuate.journal import Journal, claim, hand_over
from gangd.actuate.limits import V1_CPUSET, Limits
from gangd.actuate.sched_ext import Predecessor
from gangd.actuate.scope import Scope
from gangd.actuate.smt import SmtControl
from gangd.config import Config, Scheduler
from gangd.errors import GangError
from gangd.events import kvm_reader
from gangd.events.threads import guest_cgroups, thread_groups
from gangd.measure.probes import Probes
from gangd.measure.sampler import Sampler
from gangd.model.counters import GangStats
from gangd.model.cpulist import format_cpulist, parse_cpulist
from gangd.model.domain import KVM, Domain, Mode, ThreadGroup
from gangd.model.plan import GangPlan, Plan
from gangd.model.refused import Refused, by_guest
from gangd.model.smt import Smt
from gangd.model.snapshot import DomainStats, Part
from gangd.notify import patience
from gangd.trouble import Trouble

T = TypeVar("T")

OTHERS_MAX = 128  # guests that are measured though nobody chose them and libvirt has them not
# A verifier takes 20 s of CPU in an emulator, and has taken more than a minute beside a load.
LOAD_SECONDS = 600.0


class Host:
    """`loading`: a scheduler is being loaded now. before: descriptors of a scheduler that the gangd before
    left, which runs until ours is loaded or none is wanted.

    One at a time per state directory: raises GangError while another has it.
    """

    def __init__(self, config: Config, root: Path = Path("/"), before: Sequence[int] = ()) -> None:
        self._claim = claim(Path(config.daemon.state_dir))
        self._thread = ThreadPoolExecutor(1, "host")
        self.loading = False
        self._before = Predecessor(before)
        backends = [
            replace(backend, load=partial(self._load, backend))
            for backend in _backends(config.scheduler, root, self._before)
        ]
        self._gangs = Gangs(config.scheduler.turn_us, backends) if backends else None
        self._ejections = 0
        self._unmeasured: Set[str] = frozenset()  # UUIDs
        self._looking = Trouble("ask the kernel whether it ejected the scheduler")
        self._counting = Trouble("read the counters of the scheduler")
        self._probes = Probes(root)
        self._sampler = Sampler(self._probes, self._gang_stats, root)
        self.journal = Journal(Path(config.daemon.state_dir) / "journal")
        self._smt = SmtControl(root)
        may = config.actuate
        # Room for a guest is room for its threads with v2 alone: with v1 their groups have sets of their own.
        self.widens = may.allowed_cpus == "widen" and not (root / V1_CPUSET).exists()
        limits = Limits(self.widens, may.cpu_weight, self._weighs, self._roams)
        # Undone in reverse: pins when the CPUs that SMT took are back, and the room for them after that.
        actuators: list[Toggle] = [
            _group_limits(limits, root),
            Affinity(partial(_thread_groups, root=root), root, self._roams),
            self._smt,
        ]
        if self._gangs:
            actuators.append(self._gangs)
        self._executor = Executor(actuators, self.journal)

    def unpinned(self, key: str, now: frozenset[int]) -> frozenset[int]:
        """The CPUs that threads could run on before gangd pinned them, empty = all; those they may run on
        `now` where that is not gangd's pin. key: the journal's. From any thread."""
        entry = self.journal.entries.get((Affinity.name, key))
        if entry is None or not entry.ours(format_cpulist(now)):
            return now
        return frozenset() if entry.prior == affinity.ALL else parse_cpulist(entry.prior)

    async def call(self, work: Callable[[], T]) -> T:
        """Run `work` on the host thread, after whatever it is doing."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def set_turn(self, turn_us: int) -> None:
        """The next reconcile gives gangs turns or slots of that length."""
        if self._gangs:
            self._gangs.turn_us = turn_us

    async def reconcile(self, plan: Plan, domains: Mapping[str, Domain], stale: Set[str] | None) -> Report:
        """Make the host what `plan` wants and watch the running `domains` (by UUID); the rest as in Executor.
        A guest has one refusal at most."""

        measured = _measured(domains.values(), plan)
        self._unmeasured = domains.keys() - {domain.uuid for domain in measured}
        await self.call(lambda: self._probes.sync(measured))
        report = await self._in_steps(self._executor.reconciling(plan, stale))

        def in_force() -> tuple[Refused, ...]:
            refused = by_guest(report.refused).values()
            return tuple(replace(one, mode=self._in_force(plan, one)) for one in refused)

        await self.call(lambda: self._end_before(plan))
        return replace(report, refused=await self.call(in_force))

    def _end_before(self, plan: Plan) -> None:
        """End the scheduler of the gangd before, but while it stands in for one that the kernel refused."""
        waits = self._gangs is not None and not self._gangs.active
        if not (waits and any(gang.has_turns for gang in plan.gangs)):
            self._before.end()

    async def _in_steps(self, steps: Pass) -> Report:
        """Make a pass; between two steps the thread is for whoever waits."""
        while (report := await self.call(partial(next_step, steps))) is None:
            pass
        return report

    def _in_force(self, plan: Plan, refused: Refused) -> Mode | None:
        """How a guest is scheduled of which something was refused."""
        gang = plan.gang(refused.uuid)
        if gang is None or gang.mode.has_slots:
            return self._gangs.mode(refused.uuid) if self._gangs else None
        return None if refused.actuator == Affinity.name else gang.mode

    async def changes(self, plan: Plan) -> list[Change]:
        """The changes that `reconcile` would write now."""
        return await self.call(lambda: self._executor.changes(plan))

    async def undo(self, uuid: str | None = None) -> Report:
        """Put everything back as it was found, or what was changed of one domain."""

        return await self._in_steps(self._executor.undoing(uuid))

    async def set_smt(self, wanted: str) -> None:
        """Switch SMT "on" or "off". Raises GangError, InvalidArgument."""

        def work() -> None:
            if not self._smt.needed(wanted):
                return
            if self._gangs:  # the kernel ejects a scheduler when a CPU comes or goes: better unloaded
                self._gangs.close()
            self._executor.set(self._smt.name, smt.KEY, wanted)

        await self.call(work)

    async def smt(self) -> Smt:
        """SMT as it is now. Raises GangError."""

        def work() -> Smt:
            entry = self.journal.entries.get((self._smt.name, smt.KEY))
            return self._smt.state(entry.prior if entry else None)

        return await self.call(work)

    async def sample(self, domains: Iterable[Domain]) -> tuple[float, Mapping[str, DomainStats], Part, Part]:
        """When (seconds, monotonic), what was counted, and how backend and probes are."""
        watched = [domain for domain in domains if domain.uuid not in self._unmeasured]
        return await self.call(
            lambda: (time.monotonic(), self._sampler.sample(watched), self._backend(), self._probed())
        )

    async def parts(self) -> tuple[Part, Part]:
        """How backend and probes are."""
        return await self.call(lambda: (self._backend(), self._probed()))

    async def ejected(self) -> tuple[str, ...]:
        """The report, when the kernel ejected the scheduler since it was asked last; cheap."""

        def look() -> tuple[str, ...]:
            if not self._gangs:
                return ()
            self._look(self._gangs)
            seen, self._ejections = self._ejections, self._gangs.ejections.total()
            last = self._gangs.last_ejection
            return last.report if last and self._ejections > seen else ()

        return await self.call(look)

    async def close(self) -> None:
        """Unload everything of ours from the kernel, end the thread."""
        await self.call(self._unload)
        self._thread.shutdown()
        self._claim.close()

    async def hand_over(self, plan: Plan) -> tuple[int, ...]:
        """End the thread and leave the host as it is, as `plan` has it, for the gangd that comes next.

        Returns the descriptors that keep the scheduler loaded; none: there is none, or none that can be kept.
        Raises GangError, and then nothing is handed over.
        """
        kept = await self.call(lambda: self._leave(plan))
        self._thread.shutdown()
        self._claim.close()
        return kept

    def _leave(self, plan: Plan) -> tuple[int, ...]:
        folder = self.journal.path.parent
        if self._gangs:  # its settings end with this process, or are set anew by the next
            self._executor.forget(self._gangs.name)
        try:
            handover.leave(folder, plan)
            hand_over(folder)
        except OSError as error:
            handover.forget(folder)
            raise GangError(f"cannot write to {folder}: {error.strerror}") from error
        self._probes.close("gangd is restarting")
        return (self._gangs.descriptors if self._gangs else ()) or self._before.descriptors

    def _unload(self) -> None:
        self._before.end()
        self._probes.close("gangd is stopping")
        if self._gangs:
            self._gangs.close()

    def _load(self, backend: Backend) -> Loaded:
        """A slow load is no reason to be killed."""
        self.loading = True
        try:
            with patience(LOAD_SECONDS):
                return backend.load()
        finally:
            self.loading = False

    def _roams(self, gang: GangPlan) -> bool:
        """True if the scheduler that this gang gets chooses CPUs for its members."""
        return self._gangs is not None and gang.needs_scheduler and self._gangs.roams

    def _weighs(self) -> bool:
        """True if the scheduler that gangs get here weighs them itself, whatever their groups weigh."""
        return self._gangs is not None and self._gangs.probe() is None and not self._gangs.backend.roams

    def _gang_stats(self, uuid: str) -> GangStats | None:
        return self._gangs.stats(uuid) if self._gangs else None

    def _backend(self) -> Part:
        if self._gangs is None:
            return Part("none", False, False, "switched off in the configuration (scheduler.backend)")
        self._look(self._gangs)
        missing = self._gangs.probe()
        detail: dict[str, int] = {"ejections": self._gangs.ejections.total()}
        detail |= {f"ejections_{kind}": count for kind, count in self._gangs.ejections.items()}
        histograms: dict[str, list[int]] = {}
        with self._counting.catching():
            detail |= self._gangs.counters()
            histograms = self._gangs.histograms()
        if self._gangs.active:
            reason = self._gangs.backend.in_use()
        else:
            missing = missing or self._gangs.refusal
            reason = missing or "not loaded: no guest is a gang"
        stands_in = bool(self._before.descriptors)
        if stands_in:
            reason += "; the scheduler of the gangd before is still loaded, with the gangs that it had"
        if self._gangs.last_ejection:
            reason += f"; ejected by the kernel before: {self._gangs.last_ejection.sentence}"
        failing = (self._looking.reason, self._counting.reason, self._sampler.gangs.reason)
        reason = "; ".join(filter(None, (reason, *failing)))
        name, active = self._gangs.backend.name, self._gangs.active
        fair = self._gangs.backend.fair
        usable = missing is None or stands_in
        return Part(name, active, usable, reason, detail, histograms, self._gangs.roams, fair)

    def _look(self, gangs: Gangs) -> None:
        with self._looking.catching():
            gangs.look()

    def _probed(self) -> Part:
        failing = self._probes.failing
        active = self._probes.active and not failing
        usable = active or (self._probes.reason == "no guest runs" and not failing)
        cost = "" if self._probes.by_kvm else ", at every context switch of the host: KVM tells of none"
        reason = failing or self._probes.reason or f"VM exits and co-run time are counted{cost}"
        return Part("bpf", active, usable, reason)

    @property
    def verifier_log(self) -> str:
        """The kernel's log of the programs it refused last, "" when it refused none."""
        return "\n".join(filter(None, (self._gangs.log if self._gangs else "", self._probes.log)))


def _thread_groups(pid: int, uuid: str, root: Path) -> Mapping[str, ThreadGroup] | None:
    """The threads of a guest, whoever tells of it; None when the process is not that guest. KVM goes first: a
    command line may name its own guest's UUID."""
    found = kvm_reader.thread_groups(pid, uuid, root)
    return thread_groups(pid, uuid, root) if found is None else found


def _measured(domains: Iterable[Domain], plan: Plan) -> list[Domain]:
    """The guests to measure, the most important first, should there be too many for the probes: gangs, those
    of libvirt, and OTHERS_MAX more, for anybody may start machines of KVM's without end."""
    gangs, ours, others = list[Domain](), list[Domain](), list[Domain]()
    for domain in domains:
        (gangs if plan.gang(domain.uuid) else others if domain.source == KVM else ours).append(domain)
    return [*gangs, *ours, *sorted(others, key=lambda one: one.id or 0)[:OTHERS_MAX]]


def _group_limits(limits: Limits, root: Path) -> Actuator:
    """The actuator of guests' cgroups, through their owner: systemd where it runs, else the kernel."""
    groups = partial(guest_cgroups, root=root)
    return Scope(systemd.Systemd(), groups, limits, root) if systemd.booted(root) else Cgroup(groups, limits)


def _backends(wanted: Scheduler, root: Path, before: Predecessor) -> list[Backend]:
    """The backends that `scheduler.backend` allows, in the order they are tried."""
    known = (sched_ext.backend(root, wanted.help == "unmarked", before), gang_ko.backend(root))
    return [backend for backend in known if wanted.backend in ("auto", backend.name)]
