# SPDX-License-Identifier: Apache-2.0
"""The documents of gangd and gangctl as types: each key, and what its value may be.

docs/json.md says what the keys mean; docs/gangd.schema.json is generated from this file. A document is named
after its D-Bus method, or the command of gangctl that prints it.
"""

from __future__ import annotations

import json
from typing import Annotated, Any

from msgspec import Meta, Struct, to_builtins

from gangd.control.schema import EVENTS, SCHEMA, VERDICTS, Document

Count = int | float  # a float is what `gangctl stats --interval` makes of a count: its growth per second
Kind = Annotated[str, Meta(extra_json_schema={"enum": list(EVENTS)})]
Verdict = Annotated[str, Meta(extra_json_schema={"enum": list(VERDICTS)})]


def plain(value: Struct) -> Document:
    """Return a document, or an object in one, as dicts, lists and scalars."""
    made: Document = to_builtins(value)
    return made


def text(document: Whole) -> str:
    """Return a document as JSON on one line, in ASCII: no lone surrogate of a name breaks a message."""
    return json.dumps(plain(document), allow_nan=False, separators=(",", ":"))


class Part(Struct):
    """An object within a document."""


class Whole(Struct, tag_field="schema", tag=SCHEMA):
    """A document."""


class Chosen(Part):
    """The policy of a domain, and the source of the choice."""

    policy: str
    profile: str | None
    weight: int | None
    source: str


class Summary(Part):
    """A domain in a list."""

    uuid: str
    name: str
    source: str
    id: int | None
    state: str
    busy: str | None
    vcpus: int | None
    marked: bool
    policy: str | None
    weight: int | None
    tag: str | None
    chosen: Chosen | None
    schedule: str | None
    schedule_reason: str | None
    schedule_code: str | None
    gang_domain: int | None
    cpus: list[int] | None
    run_seconds: float | None
    corun_seconds: float | None
    corun_ratio: float | None
    costop_seconds: float | None
    pause_exits: int | None
    lhp_exits: int | None


class Gang(Part):
    """The counters of a domain's turns."""

    turns: Count | None
    whole: Count | None
    ended_early: Count | None
    seats_wanted: Count | None
    seats_had: Count | None
    run_seconds: float | None
    apart_seconds: float | None
    borrowed_seconds: float | None
    throttled_seconds: float | None
    forced_idle_seconds: float | None
    yields: Count | None
    yields_hit: Count | None
    skew_seconds: float | None
    skew_max_seconds: float | None
    whole_ratio: float | None
    seats_ratio: float | None
    apart_ratio: float | None
    borrowed_ratio: float | None
    skew_mean_seconds: float | None


class Domain(Summary):
    """A domain in full."""

    pid: int | None
    memory_bytes: int | None
    cpu_weight: int | None
    gang_weight: int | None
    gang: Gang | None


class Counters(Part):
    """The counters of a vCPU."""

    vcpu: int
    tid: int | None
    cpu_seconds: float | None
    run_delay_seconds: float | None
    switches: Count | None
    exits: dict[str, Count | None] | None
    exits_total: Count | None
    pause_exits: Count | None
    lhp_exits: Count | None


class Vcpu(Counters):
    """The counters of a vCPU, and its place."""

    cpu: int | None
    affinity: list[int] | None
    placed_cpu: int | None
    placed_reason: str | None


class GangDomain(Part):
    """A set of CPUs to which gangs are assigned."""

    gang_domain: int
    cpus: list[int]
    reason: str


class Member(Part):
    """A vCPU that is placed on a CPU."""

    uuid: str
    name: str
    vcpu: int


class Cpu(Part):
    """A CPU of the host."""

    cpu: int
    core: int | None
    llc: int | None
    package: int | None
    node: int | None
    die: int | None
    kind: str | None
    isolated: bool
    taken: bool
    gang_domain: int | None
    placed: list[Member]


class Node(Part):
    """A NUMA node of the host."""

    node: int
    memory_kib: int | None
    distances: list[int]


class Placement(Part):
    """The CPU that is planned for a vCPU."""

    vcpu: int
    tid: int | None
    cpu: int | None
    reason: str


class Helper(Part):
    """The CPUs that are planned for emulator or I/O threads."""

    threads: str
    cpus: list[int]
    reason: str


class Offer(Part):
    """A place that was not taken."""

    gang_domain: int
    cpus: list[int]
    reason: str


class GangPlan(Part):
    """The plan for one gang."""

    uuid: str
    name: str
    mode: str
    gang_domain: int | None
    gang_weight: int
    reason: str
    placements: list[Placement]
    helpers: list[Helper]
    rejected: list[Offer]


class Refusal(Part):
    """A domain for which nothing is planned."""

    uuid: str
    name: str
    reason: str


class Change(Part):
    """A change of the host that is planned and not made yet."""

    actuator: str | None = None
    key: str | None = None
    now: str | None = None
    wanted: str | None = None
    reason: str | None = None
    text: str | None = None


class DomainStats(Part):
    """The counters of a domain."""

    uuid: str
    name: str
    policy: str | None
    run_seconds: float | None
    corun_seconds: float | None
    corun_ratio: float | None
    costop_seconds: float | None
    gang: Gang | None
    vcpus: list[Counters]


class Policy(Part):
    """An installed policy."""

    policy: str
    summary: str
    text: str
    package: str | None
    domains: int


class Profile(Part):
    """A configured profile."""

    profile: str
    policy: str
    weight: int | None
    source: str
    domains: int


class Selector(Part):
    """A configured selector."""

    source: str
    name: str | None
    cgroup: str | None
    tag: str | None
    marked: bool | None
    text: str
    chooses: str
    domains: int


class Core(Part):
    """A core that is online."""

    core: int
    cpus: list[int]


class Piece(Part):
    """A part of gangd: whether it works."""

    name: str
    active: bool
    usable: bool
    reason: str | None
    detail: dict[str, Any]


class Backend(Piece):
    """The part of gangd that schedules gangs."""

    hint: str | None


class Libvirt(Part):
    """The connection to libvirt."""

    connected: bool | None
    uri: str | None
    reason: str | None


class DomainCounts(Part):
    """The numbers of domains."""

    known: int
    running: int
    marked: int
    busy: int


class PlanCounts(Part):
    """The numbers of domains that are planned and refused."""

    gangs: int
    refused: int


class Own(Part):
    """The cost and the counters of gangd itself."""

    pid: int
    started_seconds: float | None
    uptime_seconds: float | None
    cpu_seconds: float | None
    cpu_ratio: float | None
    resident_bytes: int
    resyncs: int
    events: int
    writes: int
    write_failures: int
    undone: int


class Advised(Part):
    """A running domain: what it loses, per second, and whether a mark would make it a gang."""

    uuid: str
    name: str
    marked: bool
    chosen: Chosen | None
    verdict: Verdict | None
    code: str | None
    reason: str | None
    interval_seconds: float | None
    corun_ratio: float | None
    costop_ratio: float | None
    run_delay_seconds: float | None
    pause_exits: float | None
    lhp_exits: float | None


class Measures(Part):
    """The ratios of one domain over one time."""

    seconds: float | None
    corun_ratio: float | None
    costop_ratio: float | None
    run_delay_ratio: float | None
    lhp_per_cpu_second: float | None
    pause_per_cpu_second: float | None
    switches_per_cpu_second: float | None
    cpus: float | None
    apart_ratio: float | None


class NotScheduled(Part):
    """A running domain that is not scheduled as it is to be."""

    uuid: str
    name: str
    schedule: str | None
    code: str
    reason: str | None


class List(Whole):
    """`gangctl list`, List()"""

    domains: list[Summary]


class DomainInfo(Whole):
    """`gangctl dominfo`, `mark`, `set` and `unmark`; DomainInfo(), Mark(), Set() and Unmark()"""

    domain: Domain


class Undo(Whole):
    """`gangctl undo`; Undo() and Resume()"""

    domains: list[Summary]
    undone: int
    failures: list[str]


class VcpuInfo(Whole):
    """`gangctl vcpuinfo`, VcpuInfo()"""

    uuid: str
    name: str
    host_cpus: int | None
    vcpus: list[Vcpu]


class Topology(Whole):
    """`gangctl topology`, Topology()"""

    cpus: list[Cpu]
    offline: list[int]
    nodes: list[Node]
    gang_domains: list[GangDomain]


class Plan(Whole):
    """`gangctl plan`, Plan()"""

    uuid: str | None
    name: str | None
    gang_domains: list[GangDomain]
    gangs: list[GangPlan]
    refused: list[Refusal]
    changes: list[Change]


class Stats(Whole):
    """`gangctl stats`, Stats()"""

    time_seconds: float | None
    monotonic_seconds: float | None
    domains: list[DomainStats]


class Top(Stats):
    """`gangctl top` and `gangctl stats --interval`: growth per second"""

    interval_seconds: float


class Since(Whole):
    """`gangctl stats --since mark`, Since()"""

    uuid: str
    name: str
    policy: str
    policy_before: str | None
    time_seconds: float | None
    mark_time_seconds: float | None
    before: Measures
    since: Measures


class Advise(Whole):
    """`gangctl advise`, Advise()"""

    domains: list[Advised]


class Policies(Whole):
    """`gangctl policy-list` and `policy-show`, Policies()"""

    policies: list[Policy]


class Profiles(Whole):
    """`gangctl profile-list`, Profiles()"""

    profiles: list[Profile]
    selectors: list[Selector]
    default: str


class Smt(Whole):
    """`gangctl smt`; Smt() and SetSmt()"""

    control: str | None
    active: bool | None
    prior: str | None
    cores: list[Core]
    offline: list[int]


class Status(Whole):
    """`gangctl status`, Status()"""

    version: str
    time_seconds: float | None
    kernel: str
    backend: Backend
    probes: Piece
    libvirt: Libvirt
    domains: DomainCounts
    plan: PlanCounts
    own: Own
    not_scheduled: list[NotScheduled]
    failures: list[str]


class Event(Whole):
    """`gangctl event`, the signal Event"""

    event: Kind
    time_seconds: float | None = None
    uuid: str | None = None
    name: str | None = None
    policy: str | None = None
    weight: int | None = None
    schedule: str | None = None
    backend: str | None = None
    uri: str | None = None
    reason: str | None = None
