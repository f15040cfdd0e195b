# SPDX-License-Identifier: Apache-2.0
"""What is simulated: a host, its guests, what things cost. Plain values."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from gangsim.errors import ScenarioError

MAX_CPUS = 1024  # GANG_MAX_CPUS
DOMAIN_CPUS = 64  # GANG_DOMAIN_CPUS
DOMAIN_GANGS = 256  # GANG_DOMAIN_GANGS
MAX_GUESTS = 1023  # GANG_MAX_GANGS without "no gang"
MAX_LLCS = 64  # GANG_MAX_DOMAINS

SCHEDULERS = ("gang", "default", "pinned", "balance")  # enum sim_scheduler, in its order
LOADS = ("spin", "barrier", "ipi", "sleep", "duty")  # enum sim_load, in its order
MODES = ("off", "balance", "relaxed", "strict")  # enum gang_mode, in its order

# microseconds of work a round, and of what follows it (load.c says what that is)
DEFAULT_WORK = {
    "spin": (100.0, 0.0),
    "barrier": (20.0, 0.0),
    "ipi": (20.0, 2.0),
    "sleep": (500.0, 0.0),
    "duty": (2000.0, 2000.0),
}


@dataclass(frozen=True)
class Guest:
    """A guest: its load (one of LOADS), its width, its cgroup weight, microseconds of a round."""

    load: str = "barrier"
    vcpus: int = 2
    weight: int = 100
    work_us: float | None = None
    extra_us: float | None = None

    @property
    def work_ns(self) -> int:
        """Work of one round."""
        return round(1000 * (DEFAULT_WORK[self.load][0] if self.work_us is None else self.work_us))

    @property
    def extra_ns(self) -> int:
        """ipi: what an interrupt costs its receiver; duty: how long a vCPU sleeps."""
        return round(1000 * (DEFAULT_WORK[self.load][1] if self.extra_us is None else self.extra_us))


@dataclass(frozen=True)
class Host:
    """CPUs in cores of `threads` hardware threads and last-level caches of `llc_cpus` CPUs."""

    cpus: int = 8
    threads: int = 2
    llc_cpus: int = 64

    def domains(self) -> list[range]:
        """The CPUs of each gang domain: a cache, cut at 64 CPUs (gangd.model.placement)."""
        width = min(self.llc_cpus, DOMAIN_CPUS // self.threads * self.threads)
        found = []
        for start in range(0, self.cpus, self.llc_cpus):
            past = min(start + self.llc_cpus, self.cpus)
            found += [range(at, min(at + width, past)) for at in range(start, past, width)]
        return found


@dataclass(frozen=True)
class Costs:
    """Microseconds. slot: of gangs; slice: of EEVDF; jitter: how late a slice may end; others: sim.h."""

    slot_us: float = 30_000
    slice_us: float = 3_000
    switch_us: float = 2
    kick_us: float = 3
    jitter_us: float = 300
    balance_us: float = 32_000


@dataclass(frozen=True)
class Scenario:
    """One thing to simulate under several schedulers."""

    name: str
    host: Host
    guests: tuple[Guest, ...]
    seconds: float = 10
    seed: int = 1
    mode: str = "relaxed"
    costs: Costs = field(default_factory=Costs)
    schedulers: tuple[str, ...] = SCHEDULERS

    @property
    def vcpus(self) -> int:
        """Of all guests."""
        return sum(guest.vcpus for guest in self.guests)

    def alone(self, guest: Guest, seconds: float = 10) -> Scenario:
        """`guest` with a host of this kind to itself."""
        return replace(self, guests=(guest,), seconds=seconds)


def check(scenario: Scenario) -> None:
    """Raise ScenarioError with one sentence if the simulator cannot run it."""
    host = scenario.host
    whole = host.cpus % host.threads == 0 and host.llc_cpus % host.threads == 0
    faults = {
        f"{host.cpus} CPUs, from 1 to {MAX_CPUS} can be": not 1 <= host.cpus <= MAX_CPUS,
        f"cores of {host.threads} threads, from 1 to 8 can be": not 1 <= host.threads <= 8,
        "CPUs that do not make whole cores": not whole,
        f"more than {MAX_LLCS} caches": -(-host.cpus // max(host.llc_cpus, 1)) > MAX_LLCS,
        f"{len(scenario.guests)} guests, from 1 to {MAX_GUESTS} can be": not 1
        <= len(scenario.guests)
        <= MAX_GUESTS,
        f"no time to simulate: {scenario.seconds} s": scenario.seconds <= 0,
        f"a scheduler that is none of {', '.join(SCHEDULERS)}": not set(scenario.schedulers)
        <= set(SCHEDULERS),
        f"a mode that is none of {', '.join(MODES[2:])}": scenario.mode not in MODES[2:],
        "a time that is not positive": min(vars(scenario.costs).values()) <= 0,
        **{fault: True for guest in scenario.guests for fault in _faults(guest, host)},
    }
    for fault, found in faults.items():
        if found:
            raise ScenarioError(f"cannot simulate '{scenario.name}': it has {fault}")


def _faults(guest: Guest, host: Host) -> list[str]:
    if guest.load not in LOADS:
        return [f"a load '{guest.load}', which is none of {', '.join(LOADS)}"]
    widest = max(len(domain) for domain in host.domains())
    faults = []
    if not 1 <= guest.vcpus <= widest:
        faults.append(f"a guest of {guest.vcpus} vCPUs, from 1 to {widest} fit a gang domain")
    if guest.load in ("ipi", "sleep") and guest.vcpus < 2:
        faults.append(f"a guest of one vCPU with load {guest.load}, which needs two")
    if guest.work_ns <= 0 or (guest.load in ("ipi", "duty") and guest.extra_ns <= 0):
        faults.append("a round of no time")
    if not 1 <= guest.weight <= 10000:
        faults.append(f"a weight of {guest.weight}, from 1 to 10000 can be")
    return faults
