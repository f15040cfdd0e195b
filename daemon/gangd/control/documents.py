# SPDX-License-Identifier: Apache-2.0
"""A Snapshot as documents (gangd.control.structs), one function per command. Pure.

docs/json.md says what the keys mean. Rules: snake_case keys that never change their meaning
within a `schema` number, base units with a suffix (`_seconds`, `_bytes`, `_ratio`),
unknown is null and never 0, every key is always there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import NamedTuple

from msgspec.structs import asdict as fields

from gangd.control import structs
from gangd.control.schema import UNASKED, finite, ratio, shares
from gangd.model.counters import GangStats
from gangd.model.domain import Domain, Vcpu
from gangd.model.plan import Cache, GangPlan, Placement, Plan, Refusal
from gangd.model.policy import PolicyText
from gangd.model.profile import OFF
from gangd.model.snapshot import DomainStats, Part, Snapshot, VcpuStats

# The one thing gangd knows about other kernels than this one; docs/kernels.md has the table.
HINT = "Debian's 6.16 to 7.3 (trixie-backports) can schedule gangs, 7.1 not; the rest of gangd works here too"
ROAMS = "the scheduler chooses its CPU"
STILL = "the guest is paused or has crashed: it has turns again when it runs"
UNDONE = "an operator had it put back (gangctl undo); gangctl mark or undo --resume schedules it again"


def domains(snapshot: Snapshot, all: bool = False) -> structs.List:
    """`gangctl list`: running domains by id, then with `all` the others by name."""
    found = [d for d in snapshot.state.domains.values() if all or d.running]
    found.sort(key=lambda d: (d.id is None, d.id or 0, d.name, d.uuid))
    return structs.List(domains=[summary(snapshot, d) for d in found])


def dominfo(snapshot: Snapshot, domain: Domain) -> structs.DomainInfo:
    """`gangctl dominfo`: one domain in full."""
    gang = snapshot.plan.gang(domain.uuid)
    stats = snapshot.stats.get(domain.uuid)
    full = structs.Domain(
        **fields(summary(snapshot, domain)),
        pid=domain.pid,
        memory_bytes=None if domain.memory_kib is None else domain.memory_kib * 1024,
        cpu_weight=domain.weight,
        gang_weight=gang.weight if gang else None,
        gang=_gang_stats(stats.gang if stats else None),
    )
    return structs.DomainInfo(domain=full)


def undone(
    snapshot: Snapshot, domains: Iterable[Domain], count: int, failures: Iterable[str]
) -> structs.Undo:
    """`gangctl undo`: the domains it was about, how many settings were put back, what could not be."""
    found = [summary(snapshot, d) for d in domains]
    return structs.Undo(domains=found, undone=count, failures=list(failures))


def vcpuinfo(snapshot: Snapshot, domain: Domain) -> structs.VcpuInfo:
    """`gangctl vcpuinfo`: the threads of one domain, where they may run and where they belong."""
    stats = _by_vcpu(snapshot.stats.get(domain.uuid))
    places = _places(snapshot, domain.uuid)
    rows = [_vcpu(snapshot.plan, v, stats.get(v.index), places.get(v.index)) for v in domain.vcpus]
    host = snapshot.state.topology
    host_cpus = max((*host.ids, *host.offline), default=-1) + 1 or None
    return structs.VcpuInfo(uuid=domain.uuid, name=domain.name, host_cpus=host_cpus, vcpus=rows)


def topology(snapshot: Snapshot) -> structs.Topology:
    """`gangctl topology`: the host's CPUs and who is placed on each."""
    host = snapshot.state.topology
    columns = {cpu: d.index for d in snapshot.plan.caches for cpu in d.cpus}
    placed: dict[int, list[structs.Member]] = {}
    for gang in snapshot.plan.gangs:
        for place in () if snapshot.roams(gang) else gang.placements:
            member = structs.Member(uuid=gang.uuid, name=gang.name, vcpu=place.vcpu)
            placed.setdefault(place.cpu, []).append(member)
    return structs.Topology(
        cpus=[
            structs.Cpu(
                cpu=cpu.id,
                core=cpu.core,
                llc=cpu.llc,
                package=cpu.package,
                node=cpu.node,
                die=cpu.die,
                kind=cpu.kind or None,
                isolated=cpu.id in host.isolated,
                taken=cpu.id in host.taken,
                gang_domain=columns.get(cpu.id),
                placed=placed.get(cpu.id, []),
            )
            for cpu in host.cpus
        ],
        offline=sorted(host.offline),
        nodes=[
            structs.Node(node=node.id, memory_kib=node.memory_kib, distances=list(node.distances))
            for node in host.nodes
        ],
        gang_domains=[_cache(d) for d in snapshot.plan.caches],
    )


def plan(
    snapshot: Snapshot, changes: Iterable[Mapping[str, str | None]], domain: Domain | None = None
) -> structs.Plan:
    """`gangctl plan`: what is wanted and why, and the `changes` still to be made (Service.preview).

    With `domain` only what concerns it is listed; the changes are taken as they are.
    """

    def concerns(item: GangPlan | Refusal) -> bool:
        return domain is None or item.uuid == domain.uuid

    return structs.Plan(
        uuid=domain.uuid if domain else None,
        name=domain.name if domain else None,
        gang_domains=[_cache(d) for d in snapshot.plan.caches],
        gangs=[_gang(snapshot.plan, g, snapshot.roams(g)) for g in snapshot.plan.gangs if concerns(g)],
        refused=[
            structs.Refusal(uuid=r.uuid, name=r.name, reason=r.reason)
            for r in snapshot.plan.refused
            if concerns(r)
        ],
        changes=[
            structs.Change(**{key: change.get(key) for key in structs.Change.__struct_fields__})
            for change in changes
        ],
    )


def stats(snapshot: Snapshot, uuid: str | None = None) -> structs.Stats:
    """`gangctl stats`: counters of one domain, or of all running ones."""
    found = [d for d in snapshot.state.domains.values() if d.uuid == uuid or (uuid is None and d.running)]
    found.sort(key=lambda d: (d.name, d.uuid))
    return structs.Stats(
        time_seconds=finite(snapshot.time - snapshot.age),
        monotonic_seconds=finite(snapshot.read_at),
        domains=[_domain_stats(d, snapshot.stats.get(d.uuid)) for d in found],
    )


def policies(snapshot: Snapshot, installed: Iterable[PolicyText]) -> structs.Policies:
    """`gangctl policy-list`, `policy-show`: what can be asked for with a mark, and by whom it is."""
    used = Counter(choice.policy for choice in snapshot.plan.choices.values())
    return structs.Policies(
        policies=[
            structs.Policy(
                policy=policy.name,
                summary=policy.summary,
                text=policy.text,
                package=policy.package or None,
                domains=used[policy.name],
            )
            for policy in installed
        ]
    )


def status(snapshot: Snapshot) -> structs.Status:
    """`gangctl status`: which parts of gangd work, and what it costs."""
    state, backend = snapshot.state, snapshot.backend
    return structs.Status(
        version=snapshot.version,
        time_seconds=finite(snapshot.time),
        kernel=snapshot.kernel,
        backend=structs.Backend(
            **fields(_part(backend)),
            hint=None if backend.active or backend.usable or backend.reason == UNASKED else HINT,
        ),
        probes=_part(snapshot.probes),
        libvirt=structs.Libvirt(
            connected=state.connected, uri=state.uri or None, reason=state.reason or None
        ),
        domains=structs.DomainCounts(
            known=len(state.domains),
            running=sum(d.running for d in state.domains.values()),
            marked=sum(d.mark is not None for d in state.domains.values()),
            busy=sum(bool(d.busy) for d in state.domains.values()),
        ),
        plan=structs.PlanCounts(gangs=len(snapshot.plan.scheduled), refused=len(snapshot.plan.refused)),
        own=_own(snapshot),
        not_scheduled=_not_scheduled(snapshot),
        failures=list(snapshot.failures),
    )


def _not_scheduled(snapshot: Snapshot) -> list[structs.NotScheduled]:
    """Running domains that are not scheduled as they are to be, by name."""
    running = sorted(
        (d for d in snapshot.state.domains.values() if d.running), key=lambda d: (d.name, d.uuid)
    )
    found = [(domain, schedule(snapshot, domain)) for domain in running]
    return [
        structs.NotScheduled(uuid=domain.uuid, name=domain.name, schedule=now, code=code, reason=reason)
        for domain, (now, reason, code) in found
        if code
    ]


def made_of(snapshot: Snapshot, domain: Domain) -> tuple[object, ...]:
    """All that a domain's schedule and its CPUs follow from: as long as it is the same, so are they."""
    plan, backend, uuid = snapshot.plan, snapshot.backend, domain.uuid
    decided = plan.gang(uuid), plan.refusal(uuid), plan.choices.get(uuid)
    ours = backend.active, backend.usable, backend.reason, backend.roams
    return domain, *decided, snapshot.refused.get(uuid), uuid in snapshot.undone, *ours


class Scheduled(NamedTuple):
    """now: a mode, "waiting", "refused", "undone", "invalid mark", or None for one that gangd leaves alone.

    reason: a sentence; code: of a domain that is not scheduled as it is to be, why in a word (docs/json.md).
    """

    now: str | None = None
    reason: str | None = None
    code: str | None = None


def schedule(snapshot: Snapshot, domain: Domain) -> Scheduled:
    """The schedule in force; it differs from the plan's where that was refused."""
    uuid = domain.uuid
    if domain.mark_error is not None:
        return Scheduled("invalid mark", domain.mark_error, "InvalidMark")
    if uuid in snapshot.undone:
        return Scheduled("undone", UNDONE, "Undone")
    if gang := snapshot.plan.gang(uuid):
        return _in_force(snapshot, gang)
    if refusal := snapshot.plan.refusal(uuid):
        return Scheduled("refused", refusal.reason, "Busy" if domain.busy else "NotPlanned")
    choice = snapshot.plan.choices.get(uuid)
    return (
        Scheduled("off", f"left alone: {choice.source}") if choice and choice.policy == OFF else Scheduled()
    )


def _in_force(snapshot: Snapshot, gang: GangPlan) -> Scheduled:
    backend, refused = snapshot.backend, snapshot.refused.get(gang.uuid)
    if gang.mode.has_slots and gang.still:
        return Scheduled("waiting", STILL, "Still")
    if gang.mode.has_slots and not backend.active and not (refused and backend.usable):
        return Scheduled("waiting", backend.reason, "NoBackend")
    if refused is None:
        return Scheduled(gang.mode.value, gang.reason)
    return Scheduled(refused.mode.value if refused.mode else "refused", refused.reason, refused.code)


def chosen(snapshot: Snapshot, uuid: str) -> structs.Chosen | None:
    """The policy chosen for a domain, and the source of the choice; None if nothing chose one."""
    choice = snapshot.plan.choices.get(uuid)
    if choice is None:
        return None
    return structs.Chosen(
        policy=choice.policy,
        profile=choice.profile,
        weight=choice.weight,
        source=choice.source,
    )


def summary(snapshot: Snapshot, domain: Domain) -> structs.Summary:
    """A domain in a line."""
    now, reason, code = schedule(snapshot, domain)
    gang = snapshot.plan.gang(domain.uuid)
    stats = snapshot.stats.get(domain.uuid) or DomainStats(domain.uuid)
    return structs.Summary(
        uuid=domain.uuid,
        name=domain.name,
        source=domain.source,
        id=domain.id,
        state=domain.state,
        busy=domain.busy or None,
        vcpus=len(domain.vcpus) if domain.running or domain.vcpus else None,
        marked=domain.mark is not None,
        policy=domain.mark.policy if domain.mark else None,
        weight=domain.mark.weight if domain.mark else None,
        tag=domain.mark.tag if domain.mark else None,
        chosen=chosen(snapshot, domain.uuid),
        schedule=now,
        schedule_reason=reason,
        schedule_code=code,
        gang_domain=gang.cache if gang else None,
        cpus=sorted({p.cpu for p in gang.placements}) if gang and not snapshot.roams(gang) else None,
        run_seconds=finite(stats.run_seconds),
        corun_seconds=finite(stats.corun_seconds),
        corun_ratio=ratio(stats.corun_seconds, stats.run_seconds),
        costop_seconds=finite(stats.costop_seconds),
        pause_exits=stats.total.pause_exits,
        lhp_exits=stats.total.lhp_exits,
    )


def _by_vcpu(stats: DomainStats | None) -> dict[int, VcpuStats]:
    return {v.vcpu: v for v in stats.vcpus} if stats else {}


def _places(snapshot: Snapshot, uuid: str) -> dict[int, Placement]:
    gang = snapshot.plan.gang(uuid)
    return {p.vcpu: p for p in gang.placements} if gang and not snapshot.roams(gang) else {}


def _vcpu(plan: Plan, vcpu: Vcpu, stats: VcpuStats | None, place: Placement | None) -> structs.Vcpu:
    counters = _vcpu_stats((stats or VcpuStats(vcpu.index))._replace(tid=vcpu.tid))
    return structs.Vcpu(
        **fields(counters),
        cpu=stats.cpu if stats else None,
        affinity=sorted(vcpu.affinity) or None,
        placed_cpu=place.cpu if place else None,
        placed_reason=plan.why(place) if place else None,
    )


def _vcpu_stats(stats: VcpuStats) -> structs.Counters:
    return structs.Counters(
        vcpu=stats.vcpu,
        tid=stats.tid,
        cpu_seconds=finite(stats.cpu_seconds),
        run_delay_seconds=finite(stats.run_delay_seconds),
        switches=stats.switches,
        exits=None if stats.exits is None else dict(sorted(stats.exits.items())),
        exits_total=None if stats.exits is None else sum(stats.exits.values()),
        pause_exits=stats.pause_exits,
        lhp_exits=stats.lhp_exits,
    )


def _domain_stats(domain: Domain, stats: DomainStats | None) -> structs.DomainStats:
    stats = stats or DomainStats(domain.uuid)
    known = _by_vcpu(stats)
    indexes = sorted({v.index for v in domain.vcpus} | set(known))
    return structs.DomainStats(
        uuid=domain.uuid,
        name=domain.name,
        policy=domain.mark.policy if domain.mark else None,
        run_seconds=finite(stats.run_seconds),
        corun_seconds=finite(stats.corun_seconds),
        corun_ratio=ratio(stats.corun_seconds, stats.run_seconds),
        costop_seconds=finite(stats.costop_seconds),
        gang=_gang_stats(stats.gang),
        vcpus=[_vcpu_stats(known.get(i, VcpuStats(i))) for i in indexes],
    )


def _gang_stats(gang: GangStats | None) -> structs.Gang | None:
    if gang is None:
        return None
    counted = {name: finite(value) for name, value in asdict(gang).items()}
    return structs.Gang(**counted, **shares(counted))


def _cache(cache: Cache) -> structs.GangDomain:
    return structs.GangDomain(gang_domain=cache.index, cpus=list(cache.cpus), reason=cache.reason)


def _gang(plan: Plan, gang: GangPlan, roams: bool) -> structs.GangPlan:
    return structs.GangPlan(
        uuid=gang.uuid,
        name=gang.name,
        mode=gang.mode.value,
        gang_domain=gang.cache,
        gang_weight=gang.weight,
        reason=gang.reason,
        placements=[
            structs.Placement(
                vcpu=p.vcpu,
                tid=p.tid,
                cpu=None if roams else p.cpu,
                reason=ROAMS if roams else plan.why(p),
            )
            for p in gang.placements
        ],
        helpers=[
            structs.Helper(threads=helper.name, cpus=sorted(helper.cpus), reason=helper.reason)
            for helper in (() if roams else gang.helpers)
        ],
        rejected=[
            structs.Offer(gang_domain=offer.cache, cpus=list(offer.cpus), reason=offer.why_not)
            for offer in gang.rejected
        ],
    )


def _part(part: Part) -> structs.Piece:
    detail = {k: finite(v) if isinstance(v, float) else v for k, v in sorted(part.detail.items())}
    return structs.Piece(
        name=part.name,
        active=part.active,
        usable=part.usable,
        reason=part.reason or None,
        detail=detail,
    )


def _own(snapshot: Snapshot) -> structs.Own:
    own = snapshot.own
    uptime = max(snapshot.time - own.started, 0.0)
    return structs.Own(
        pid=own.pid,
        started_seconds=finite(own.started),
        uptime_seconds=finite(uptime),
        cpu_seconds=finite(own.cpu_seconds),
        cpu_ratio=ratio(own.cpu_seconds, uptime),
        resident_bytes=own.rss_bytes,
        resyncs=own.resyncs,
        events=own.events,
        writes=own.writes,
        write_failures=own.write_failures,
        undone=own.undone,
    )
