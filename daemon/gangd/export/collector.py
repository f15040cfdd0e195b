# SPDX-License-Identifier: Apache-2.0
"""A Snapshot as Prometheus metric families. Pure: no registry, no clock, no thread.

docs/metrics.md lists every family. Base units, counters end in `_total`; a value
that is not known has no sample, because a 0 would be a claim. Labels are the
domain's name and the vCPU's number: thread ids and UUIDs would make a new series
at every start of a guest, so the UUID is in one info metric only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

from prometheus_client import Metric
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from gangd.control.documents import schedule
from gangd.model import counters
from gangd.model.counters import GangStats
from gangd.model.domain import KVM, Domain
from gangd.model.snapshot import DomainStats, Snapshot, VcpuStats

Sample = tuple[tuple[str, ...], float | None]

# gang.ko tells these counters of its own, the kernel only that it ejected the scheduler.
SCHEDULER = {
    **counters.SCHEDULER,
    **{name: counters.MODULE[name] for name in ("slots", "other_slots", "kicks", "ways")},
    "ejections": "times the kernel ejected the scheduler",
}
# These counters of a gang have a longer name in metrics; a maximum is no counter.
LONGER = {"whole": "turns_whole", "ended_early": "turns_ended_early"}
GANG = {
    LONGER.get(name, name): (name, text)
    for name, text in counters.GANG.items()
    if not name.endswith("_max_seconds")
}
# The scheduler samples what these operations of its own take: sums and samples.
COSTS = ("enqueue", "dispatch", "stop")
HISTOGRAMS = {"start_skew": "Time from the start of a turn to its last member on CPU."}
EJECTIONS = "ejections_"
# VcpuTotals adds these up over all vCPUs of a guest.
TOTALS = {
    "cpu_seconds": ("cpu_seconds", "CPU time of the vCPUs, added up."),
    "run_delay_seconds": (
        "run_delay_seconds",
        "Time that vCPUs were runnable and off-CPU, added up (CPU ready).",
    ),
    "ready_seconds": ("run_delay_seconds", "Old name of gangd_domain_run_delay_seconds, gone in gangd 0.2."),
    "switches": ("switches", "Times a vCPU was switched to."),
    "pause_exits": ("pause_exits", "PAUSE exits."),
    "lhp_exits": ("lhp_exits", "PAUSE exits taken while a runnable sibling was off-CPU."),
}
VCPU_FAMILIES = 5  # besides the exits by reason
VCPU_SERIES = 2000  # of all vCPUs together, unless the configuration says otherwise


def families(snapshot: Snapshot, vcpu_series: int = VCPU_SERIES) -> Iterable[Metric]:
    """Every metric family; one without a known value has no samples.

    vcpu_series: so many samples of single vCPUs at most; the guests that do not fit are left out whole.
    """
    guests = list(_guests(snapshot))
    shown, dropped = _affordable([(name, stats) for name, _, stats in guests], vcpu_series)
    yield from _gangd(snapshot)
    yield from _own(snapshot)
    yield from _scheduler(snapshot)
    yield _gauge(
        "gangd_domain_info",
        "A domain and who tells of it; its policy is empty when none was chosen for it.",
        ("domain", "uuid", "policy", "source"),
        [((name, d.uuid, _policy(snapshot, d), d.source), 1) for name, d, _ in guests],
    )
    scheduled = [(name, schedule(snapshot, domain)) for name, domain, _ in guests]
    yield _gauge(
        "gangd_domain_schedule",
        "How a domain is scheduled now; its code is empty when that is as it is to be.",
        ("domain", "schedule", "code"),
        [((name, one.now, one.code or ""), 1) for name, one in scheduled if one.now],
    )
    yield _gauge(
        "gangd_vcpu_series_dropped",
        "Series of single vCPUs that exporter.vcpu_series leaves out.",
        (),
        [((), dropped)],
    )
    yield from _vcpus([(name, v) for name, stats in shown for v in stats.vcpus])
    yield from _domains([(name, stats) for name, _, stats in guests])
    yield from _gangs([(name, stats.gang) for name, _, stats in guests if stats.gang])


def _policy(snapshot: Snapshot, domain: Domain) -> str:
    choice = snapshot.plan.choices.get(domain.uuid)
    return choice.policy if choice else ""


def _guests(snapshot: Snapshot) -> Iterator[tuple[str, Domain, DomainStats]]:
    """Every domain with a `domain` label that no other one has.

    libvirt's names are unique, but one snapshot may hold a domain that was
    deleted and the one that got its name: a series twice would void the scrape.
    Of guests that KVM tells of those are left out that are not measured: anybody may start them without end.
    """
    used: set[str] = set()
    shown = (d for d in snapshot.state.domains.values() if d.source != KVM or d.uuid in snapshot.stats)
    for domain in sorted(shown, key=lambda d: (d.name, d.uuid)):
        label = _label(domain.name)
        while label in used:
            label += f" ({domain.uuid})"
        used.add(label)
        yield label, domain, snapshot.stats.get(domain.uuid, DomainStats(domain.uuid))


def _affordable(
    guests: Sequence[tuple[str, DomainStats]], most: int
) -> tuple[list[tuple[str, DomainStats]], int]:
    """The guests whose vCPUs have `most` series together, gangs first; how many series the others have."""
    shown, dropped = [], 0
    for name, stats in sorted(guests, key=lambda guest: (guest[1].gang is None, guest[0])):
        series = sum(VCPU_FAMILIES + len(vcpu.exits or ()) for vcpu in stats.vcpus)
        if series <= most:
            shown.append((name, stats))
            most -= series
        else:
            dropped += series
    return sorted(shown, key=lambda guest: guest[0]), dropped


def _gangd(snapshot: Snapshot) -> Iterator[Metric]:
    version = (snapshot.version, snapshot.kernel)
    connected, backend = snapshot.state.connected, snapshot.backend
    yield _gauge("gangd_build_info", "Version and kernel.", ("version", "kernel"), [(version, 1)])
    yield _gauge("gangd_libvirt_connected", "Whether libvirt answers.", (), [((), connected)])
    yield _gauge(
        "gangd_backend_active",
        "Whether gangs are scheduled in the kernel, and by what.",
        ("backend",),
        [((backend.name,), backend.active)],
    )
    probes = snapshot.probes.active
    yield _gauge("gangd_probes_active", "Whether the kernel probes are attached.", (), [((), probes)])
    yield _gauge("gangd_plan_gangs", "Guests planned as gangs.", (), [((), len(snapshot.plan.gangs))])
    refused = len(snapshot.plan.refused)
    yield _gauge(
        "gangd_plan_refused", "Guests that are marked or selected and cannot be gangs.", (), [((), refused)]
    )
    unmade = len(snapshot.refused)
    yield _gauge("gangd_domains_refused", "Planned guests that a setting was refused of.", (), [((), unmade)])
    failures = len(snapshot.failures)
    yield _gauge("gangd_failures", "What gangd cannot do now, as status lists it.", (), [((), failures)])
    cpus = len(snapshot.state.topology.ids) or None
    yield _gauge("gangd_host_cpus", "CPUs of the host that are online.", (), [((), cpus)])
    busy = sum(bool(domain.busy) for domain in snapshot.state.domains.values())
    yield _gauge("gangd_domains_busy", "Guests that are observed and not touched now.", (), [((), busy)])


def _own(snapshot: Snapshot) -> Iterator[Metric]:
    own = snapshot.own
    yield _counter(
        "gangd_process_cpu_seconds_total", "CPU time of gangd itself.", (), [((), own.cpu_seconds)]
    )
    yield _gauge(
        "gangd_process_resident_memory_bytes", "Resident memory of gangd.", (), [((), own.rss_bytes)]
    )
    yield _gauge(
        "gangd_process_start_time_seconds", "Start of gangd since the epoch.", (), [((), own.started)]
    )
    yield _counter("gangd_writes_total", "Settings of the host written.", (), [((), own.writes)])
    yield _counter(
        "gangd_write_failures_total",
        "Settings that could not be written or read back different.",
        (),
        [((), own.write_failures)],
    )


def _scheduler(snapshot: Snapshot) -> Iterator[Metric]:
    detail: Mapping[str, object] = snapshot.backend.detail
    for key, text in SCHEDULER.items():
        value = detail.get(key)
        known = value if isinstance(value, (int, float)) else None
        yield _counter(f"gangd_scheduler_{key}_total", _sentence(text), (), [((), known)])
    kinds = [
        (key.removeprefix(EJECTIONS), value) for key, value in detail.items() if key.startswith(EJECTIONS)
    ]
    yield _counter(
        "gangd_scheduler_ejections_by_kind_total",
        "The same by why.",
        ("kind",),
        [((kind,), value) for kind, value in kinds if isinstance(value, int)],
    )
    yield from _costs(detail)
    for name, text in HISTOGRAMS.items():
        yield _histogram(f"gangd_scheduler_{name}_seconds", text, snapshot.backend.histograms.get(name))


def _costs(detail: Mapping[str, object]) -> Iterator[Metric]:
    def of(suffix: str, scale: float) -> list[Sample]:
        values = [(operation, detail.get(f"{operation}_{suffix}")) for operation in COSTS]
        return [((name,), value * scale) for name, value in values if isinstance(value, (int, float))]

    yield _counter(
        "gangd_scheduler_cost_seconds_total",
        "Time the scheduler itself took in the operations that were sampled.",
        ("operation",),
        of("ns", 1e-9),
    )
    yield _counter(
        "gangd_scheduler_cost_samples_total",
        "Operations that were sampled, one in 64.",
        ("operation",),
        of("samples", 1),
    )


def _histogram(name: str, text: str, counts: Sequence[int] | None) -> Metric:
    """Buckets are powers of two microseconds; the sum is not known, so there is none."""
    family = HistogramMetricFamily(name, text)
    if counts:
        totals = list(accumulate(counts))
        bounds = [f"{2.0**bucket / 1e6:g}" for bucket in range(len(counts) - 1)]
        family.add_metric([], list(zip([*bounds, "+Inf"], totals, strict=True)), None)
    return family


def _vcpus(vcpus: list[tuple[str, VcpuStats]]) -> Iterator[Metric]:
    labels = ("domain", "vcpu")
    yield _counter(
        "gangd_kvm_exits_total",
        "Exits from the guest to KVM.",
        (*labels, "reason"),
        [((n, str(v.vcpu), r), c) for n, v in vcpus for r, c in sorted((v.exits or {}).items())],
    )

    def one(name: str, text: str, field: str) -> Metric:
        return _counter(name, text, labels, [((n, str(v.vcpu)), getattr(v, field)) for n, v in vcpus])

    yield one("gangd_kvm_pause_exits_total", "PAUSE exits.", "pause_exits")
    yield one(
        "gangd_kvm_lhp_exits_total",
        "PAUSE exits taken while a runnable sibling was off-CPU.",
        "lhp_exits",
    )
    yield one("gangd_vcpu_cpu_seconds_total", "CPU time of the vCPU's thread.", "cpu_seconds")
    yield one(
        "gangd_vcpu_run_delay_seconds_total", "Time runnable and waiting for a CPU.", "run_delay_seconds"
    )
    yield one("gangd_vcpu_switches_total", "Times the vCPU was switched to.", "switches")


def _domains(domains: list[tuple[str, DomainStats]]) -> Iterator[Metric]:
    yield _gauge(
        "gangd_domain_vcpus",
        "vCPUs of a running guest.",
        ("domain",),
        [((name,), len(stats.vcpus) or None) for name, stats in domains],
    )
    for name, (field, text) in TOTALS.items():
        samples = [((domain,), getattr(stats.total, field)) for domain, stats in domains]
        yield _counter(f"gangd_domain_{name}_total", text, ("domain",), samples)
    yield _counter(
        "gangd_domain_exits_total",
        "Exits from the guest to KVM.",
        ("domain", "reason"),
        [((n, r), c) for n, stats in domains for r, c in sorted((stats.total.exits or {}).items())],
    )
    yield _counter(
        "gangd_domain_run_seconds_total",
        "Time with at least one vCPU on a CPU.",
        ("domain",),
        [((name,), stats.run_seconds) for name, stats in domains],
    )
    yield _counter(
        "gangd_domain_corun_seconds_total",
        "Part of the run time in which no runnable vCPU was off-CPU.",
        ("domain",),
        [((name,), stats.corun_seconds) for name, stats in domains],
    )
    yield _counter(
        "gangd_domain_costop_seconds_total",
        "Part of the run time in which a runnable vCPU was off-CPU.",
        ("domain",),
        [((name,), stats.costop_seconds) for name, stats in domains],
    )


def _gangs(gangs: list[tuple[str, GangStats]]) -> Iterator[Metric]:
    for name, (field, text) in GANG.items():
        samples = [((domain,), getattr(gang, field)) for domain, gang in gangs]
        yield _counter(f"gangd_gang_{name}_total", _sentence(text), ("domain",), samples)


def _counter(name: str, text: str, labels: Iterable[str], samples: Iterable[Sample]) -> Metric:
    return _filled(CounterMetricFamily(name, text, labels=tuple(labels)), samples)


def _gauge(name: str, text: str, labels: Iterable[str], samples: Iterable[Sample]) -> Metric:
    return _filled(GaugeMetricFamily(name, text, labels=tuple(labels)), samples)


def _filled(
    family: CounterMetricFamily | GaugeMetricFamily, samples: Iterable[Sample]
) -> CounterMetricFamily | GaugeMetricFamily:
    for labels, value in samples:
        if value is not None:
            family.add_metric([_label(label) for label in labels], float(value))
    return family


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _label(text: str) -> str:
    """Label values are UTF-8; a lone surrogate in one would break the whole page."""
    return text.encode("utf-8", "replace").decode()
