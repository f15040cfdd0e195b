# SPDX-License-Identifier: Apache-2.0
"""Fakes of a host, its guests and a gangd, for tests of policies and front ends.

snap = snapshot(guest("web", 3, vcpus=2, mark=Mark()), guest("db"))
client = local_client(FakeService(snap))
client.domains()["domains"]
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Set
from dataclasses import replace
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from gangd import __version__
from gangd.control.client import Client
from gangd.control.requests import Requests
from gangd.control.service import Advice, Undone
from gangd.errors import GangError, InvalidArgument, NoLibvirt, NotMarked
from gangd.model.affect import Affect
from gangd.model.counters import GangStats
from gangd.model.domain import WEIGHT_DEFAULT, Domain, Mark, Mode, Vcpu
from gangd.model.event import DomainSeen
from gangd.model.evidence import compare
from gangd.model.mark_change import MarkChange
from gangd.model.plan import Cache, GangPlan, Placement, Plan, Refusal
from gangd.model.policy import PolicyText
from gangd.model.profile import OFF, Rules, rules
from gangd.model.readings import Reading
from gangd.model.smt import Smt
from gangd.model.snapshot import (
    DomainStats,
    Part,
    SelfStats,
    Snapshot,
    VcpuStats,
)
from gangd.model.state import State, reduce
from gangd.model.topology import Cpu, Topology

POLICIES = ("relaxed", "strict")
RULES = rules()
GANG = GangStats(10, 9, 1, 20, 19, 1.0, 0.5, 0.25, 0.0, 0.0, 5, 4, 0.1, 0.01)


def host(packages: int = 1, cores: int = 2, threads: int = 2) -> Topology:
    """A host with one LLC and one node per package, numbered as Linux does: first
    every core's first thread, then the second ones."""
    total = packages * cores
    cpus = [
        Cpu(id=t * total + c, core=c, llc=c - c % cores, package=c // cores, node=c // cores)
        for t in range(threads)
        for c in range(total)
    ]
    return Topology(tuple(cpus))


def guest(
    name: str,
    id: int | None = None,
    vcpus: int = 2,
    mark: Mark | None = None,
    **fields: Any,
) -> Domain:
    """A domain; running when it has an id. Its UUID is made of its name, thread ids of its id."""
    running = id is not None
    threads = tuple(Vcpu(i, (id or 0) * 1000 + i, 5000 + i) for i in range(vcpus)) if running else ()
    given: dict[str, Any] = {
        "uuid": str(uuid5(NAMESPACE_OID, name.encode("utf-8", "replace").decode())),
        "name": name,
        "id": id,
        "pid": (id or 0) * 1000 if running else None,
        "state": "running" if running else "shut off",
        "vcpus": threads,
        "mark": mark,
        "weight": WEIGHT_DEFAULT if running else None,
        "memory_kib": 524288,
    }
    return Domain(**{**given, **fields})


def counters(domain: Domain, seconds: float = 100.0) -> DomainStats:
    """Plausible counters of a running guest after `seconds`; different per vCPU."""
    count = int(seconds * 100)
    vcpus = tuple(
        VcpuStats(
            vcpu=v.index,
            tid=v.tid,
            cpu_seconds=seconds * 0.5,
            run_delay_seconds=seconds * 0.125,
            switches=count + v.index,
            exits={"hlt": count * 2, "pause": count + v.index},
            pause_exits=count + v.index,
            lhp_exits=count // 4,
            cpu=v.index,
        )
        for v in domain.vcpus
    )
    gang = GangStats(
        turns=count,
        whole=count * 9 // 10,
        ended_early=count // 10,
        seats_wanted=count * 2,
        seats_had=count * 19 // 10,
        run_seconds=seconds * 0.5,
        apart_seconds=seconds * 0.25,
        borrowed_seconds=seconds * 0.05,
        throttled_seconds=12.5,  # once: no reading finds it held off since
        forced_idle_seconds=seconds * 0.0625,
        yields=count * 3,
        yields_hit=count * 2,
        skew_seconds=0.5,
        skew_max_seconds=0.004,
    )
    times = (seconds * 0.75, seconds * 0.6, seconds * 0.15)
    return DomainStats(domain.uuid, vcpus, *times, gang if domain.mark else None)


def planned(
    domains: tuple[Domain, ...], topology: Topology, said: Rules = RULES, left_alone: Set[str] = frozenset()
) -> Plan:
    """A plan that puts vCPU i of every running guest that is wanted on the i-th CPU; a
    guest with more vCPUs than CPUs is refused."""
    gangs, refused = [], []
    choices = {domain.uuid: choice for domain in domains if (choice := said.choice(domain))}
    for domain in domains:
        choice = choices.get(domain.uuid)
        if choice is None or choice.policy == OFF or not domain.running or domain.uuid in left_alone:
            continue
        if len(domain.vcpus) > len(topology.ids):
            refused.append(Refusal(domain.uuid, domain.name, "more vCPUs than CPUs in any cache"))
            continue
        places = tuple(
            Placement(v.index, v.tid, cpu, f"column {cpu} of the cache")
            for v, cpu in zip(domain.vcpus, topology.ids, strict=False)
        )
        gangs.append(
            GangPlan(
                domain.uuid,
                domain.name,
                domain.pid,
                Mode(choice.policy) if choice.policy in set(Mode) else Mode.RELAXED,
                0,
                places,
                "adaptive: its vCPUs ran apart for 31% of the last 5 s: a gang"
                if choice.policy == "adaptive"
                else f"marked with policy {choice.policy}",
                choice.weight or WEIGHT_DEFAULT,
                still=domain.stands_still,
            )
        )
    one = Cache(0, topology.ids, "one last-level cache")
    return Plan((one,) if topology.cpus else (), tuple(gangs), tuple(refused), choices=choices)


def snapshot(*domains: Domain, **fields: Any) -> Snapshot:
    """A snapshot of a working gangd with these domains; any field may be replaced.

    `topology=` and `state_fields=` (a dict) go into the state; `stats` defaults
    to `counters()` of every running guest.
    """
    topology: Topology = fields.pop("topology", host())
    known = {"connected": True, "uri": "qemu:///system", "reason": ""} | fields.pop("state_fields", {})
    state = State(topology=topology, domains={d.uuid: d for d in domains}, **known)
    given: dict[str, Any] = {
        "version": __version__,
        "time": 1_000_100.0,
        "read_at": 500.0,
        "kernel": "6.18.15+deb13-amd64",
        "state": state,
        "plan": planned(domains, topology),
        "backend": Part(
            "sched_ext", True, True, "loaded, full switch", {"turns": 5000, "seats": 70, "moves": 3}
        ),
        "probes": Part("kvm", True, True, "attached", {"ns_per_event": 210.5}),
        "own": SelfStats(4242, 1_000_000.0, 0.25, 40 << 20, 2, 30, 12, 1, 0),
        "stats": {d.uuid: counters(d) for d in domains if d.running},
    }
    return Snapshot(**{**given, **fields})


def advice(seen: Snapshot, mode: Mode) -> Advice:
    """Advice of 30 s about the running guests, by which `adaptive` has them in this mode."""
    told = "off" if mode is Mode.OFF else "a gang"
    said = f"adaptive: its vCPUs ran apart for 20% of the last 30 s: {told}"
    running = [d for d in seen.state.domains.values() if d.running]
    plans = {d.uuid: GangPlan(d.uuid, d.name, d.pid, mode, None, (), said) for d in running}
    evidence = {d.uuid: compare(counters(d), counters(d, 130.0), 30.0) for d in running}
    return Advice(plans, evidence)


def reading(seen: Snapshot, domain: Domain, policy: str = "relaxed", before: str | None = None) -> Reading:
    """A reading of a running guest after two hours of its life."""
    at, stats = seen.read_at or 0.0, seen.stats.get(domain.uuid) or DomainStats(domain.uuid)
    return Reading(domain.pid or 0, 7200.0, before, policy, stats, stats, at, seen.time)


class FakeService:
    """A Service over a snapshot that a test can set; `calls` says what was asked of it.

    fail: raised by every method but `snapshot`, when set.
    """

    def __init__(self, initial: Snapshot | None = None) -> None:
        self.now = initial or snapshot()
        self.changes: list[dict[str, str | None]] = []
        self.advice: Advice | None = None
        self.readings: dict[str, Reading] = {}
        self.calls: list[tuple[Any, ...]] = []
        self.fail: Exception | None = None
        self.undo_failures: tuple[str, ...] = ()
        self.smt_now = Smt("on", True, ((0, 2), (1, 3)))

    async def asked(self) -> None:
        """At once."""

    def snapshot(self) -> Snapshot:
        """The snapshot that was set."""
        return self.now

    def policies(self) -> tuple[PolicyText, ...]:
        """POLICIES, which do nothing."""
        self._called("policies")
        return tuple(
            PolicyText(name, f"does as {name} does", f"{name}: does as {name} does.\n\nMore.", "gangd 0")
            for name in POLICIES
        )

    def rules(self) -> Rules:
        """The rules that gangd has without a configuration."""
        self._called("rules")
        return RULES

    async def metrics(self, openmetrics: bool) -> tuple[str, str]:
        """A page of one sample."""
        self._called("metrics", openmetrics)
        return "text/plain", "gangd_plan_gangs 1\n"

    async def overview(self) -> str:
        """A page without a guest."""
        self._called("overview")
        return "<p>gangd</p>"

    def resolve(self, ref: str) -> Domain:
        """By id, UUID or name, in virsh's order."""
        self._called("resolve", ref)
        if self.now.state.connected is not True:
            raise NoLibvirt("libvirt is not reachable")
        return self.now.state.find(ref)

    async def refresh(self) -> None:
        """Move the clock and the counters 10 s on, as a busy host would."""
        self._called("refresh")
        seconds = self.now.time + 10.0 - self.now.own.started
        running = [d for d in self.now.state.domains.values() if d.running]
        stats: Mapping[str, DomainStats] = {d.uuid: counters(d, seconds) for d in running}
        later = {"time": self.now.time + 10.0, "read_at": (self.now.read_at or 0.0) + 10.0}
        self.now = replace(self.now, **later, stats=stats)

    async def mark(self, ref: str, change: MarkChange) -> Domain:
        """Mark and plan again; a mark for the next start only is accepted and forgotten."""
        self._called("mark", ref, *_words(change))
        if change.policy is not None and change.policy not in POLICIES:
            raise InvalidArgument(f"unknown policy '{change.policy}' (known: {', '.join(POLICIES)})")
        return self._marked(self.resolve(ref), Mark(change.policy or "relaxed", change.weight), change.affect)

    async def unmark(self, ref: str, affect: Affect | None = None) -> Domain:
        """Unmark and plan again."""
        self._called("unmark", ref, *([] if affect is None else [affect]))
        return self._marked(self.resolve(ref), None, affect)

    async def change(self, ref: str, change: MarkChange) -> Domain:
        """Change the mark and plan again."""
        self._called("change", ref, *_words(change))
        domain = self.resolve(ref)
        if domain.mark is None:
            raise NotMarked("domain is not marked (gangctl mark)")
        return self._marked(domain, change.applied(domain.mark), change.affect)

    def _marked(self, domain: Domain, mark: Mark | None, affect: Affect | None) -> Domain:
        later = domain.running and affect == Affect(config=True)
        if domain.running and mark and not domain.mark and not later:
            self.readings[domain.uuid] = reading(self.now, domain, mark.policy or "relaxed")
        return domain if later else self._replace(replace(domain, mark=mark))

    async def undo(self, ref: str | None) -> Undone:
        """Count marked domains as undone; report two settings of each domain."""
        self._called("undo", ref)
        known = self.now.state.domains.values()
        left = (self.resolve(ref),) if ref is not None else tuple(d for d in known if d.mark)
        self._leave_alone(self.now.undone | {d.uuid for d in left if d.mark})
        return Undone(left, 2 * len(left), self.undo_failures)

    async def resume(self, ref: str | None) -> tuple[Domain, ...]:
        """The opposite of undo()."""
        self._called("resume", ref)
        known = self.now.state.domains
        left = (
            (self.resolve(ref),)
            if ref is not None
            else tuple(known[uuid] for uuid in sorted(self.now.undone))
        )
        self._leave_alone(self.now.undone - {d.uuid for d in left})
        return left

    def _leave_alone(self, undone: frozenset[str]) -> None:
        state = self.now.state
        plan = planned(tuple(state.domains.values()), state.topology, RULES, undone)
        self.now = replace(self.now, undone=undone, plan=plan)

    async def smt(self, wanted: str | None) -> Smt:
        """Two cores of two threads; switching takes the second ones away and brings them back."""
        self._called("smt", wanted)
        if wanted is not None and wanted != self.smt_now.control:
            cores = ((0, 2), (1, 3)) if wanted == "on" else ((0,), (1,))
            offline = frozenset[int]() if wanted == "on" else frozenset({2, 3})
            prior = None if self.smt_now.prior == wanted else self.smt_now.control
            self.smt_now = Smt(wanted, wanted == "on", cores, offline, prior)
        return self.smt_now

    async def measured(self) -> Snapshot:
        """`now`: a fake has nothing to read."""
        return self.snapshot()

    async def preview(self, ref: str | None) -> tuple[Plan, list[dict[str, str | None]]]:
        """The plan and `changes`, as a test set them."""
        self._called("preview", ref)
        return self.now.plan, self.changes

    async def advise(self, ref: str | None) -> Advice:
        """The advice that a test set; without one, no guest is apart."""
        self._called("advise", ref)
        return self.advice or advice(self.now, Mode.OFF)

    def reading(self, domain: Domain) -> Reading | None:
        """The reading that a test set, or that a mark left."""
        self._called("reading", domain.uuid)
        return self.readings.get(domain.uuid)

    def _replace(self, domain: Domain) -> Domain:
        self.now = replace(self.now, state=reduce(self.now.state, DomainSeen(domain)))
        self._leave_alone(self.now.undone - {domain.uuid})
        return domain

    def _called(self, *call: Any) -> None:
        self.calls.append(call)
        if self.fail is not None:
            raise self.fail


def _words(change: MarkChange) -> list[Any]:
    return [change.policy, change.weight, *([] if change.affect is None else [change.affect])]


def local_client(service: FakeService) -> Client:
    """A client of `service` without a bus; errors arrive as GangErrors, as they do over one."""
    requests = Requests(service)
    methods = {
        "Mark": requests.mark,
        "Set": requests.set,
        "Unmark": requests.unmark,
        "Undo": requests.undo,
        "Resume": requests.resume,
        "List": requests.list,
        "DomainInfo": requests.domain_info,
        "VcpuInfo": requests.vcpu_info,
        "Topology": requests.topology,
        "Plan": requests.plan,
        "Advise": requests.advise,
        "Since": requests.since,
        "Stats": requests.stats,
        "Status": requests.status,
        "Policies": requests.policies,
        "Profiles": requests.profiles,
        "Smt": requests.smt,
        "SetSmt": requests.set_smt,
        "Metrics": requests.metrics,
        "Overview": requests.overview,
        "Refresh": requests.refresh,
    }

    def call(method: str, signature: str, args: tuple[Any, ...]) -> Any:
        handler: Any = methods.get(method)
        if handler is None:
            raise GangError(f"no method {method}")
        return asyncio.run(handler(*args))

    return Client(call)
