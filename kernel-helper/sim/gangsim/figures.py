# SPDX-License-Identifier: Apache-2.0
"""From what was counted to what is shown: throughput against the limit, skew, fairness. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass

from gangsim import loss
from gangsim.engine import Run
from gangsim.loss import Loss
from gangsim.scenario import Guest, Scenario


@dataclass(frozen=True)
class Alone:
    """A guest that has the host to itself: rounds a second, CPUs it keeps busy."""

    rate: float
    cpus: float


@dataclass(frozen=True)
class Figures:
    """The figures of a scheduler on a scenario; medians where there were several seeds.

    rate: rounds a second, all guests. efficiency: against the limit, 1 = each guest alone, time-shared
        without loss; guests count by the CPUs the limit gives them.
    against_alone: rate over that of one guest that is alone; None unless all guests are alike.
    corun: share of the guests' running time in which no runnable vCPU waited.
    whole: share of starts (turns; without gangs: a guest comes on CPU) in which all runnable
        vCPUs came to run at once. skew_us: mean from first to last of them; skew_max_us: the most.
        None: there was no such start.
    costop: share of the host's time in which a CPU idled while a vCPU waited for it.
    jain, worst: fairness by CPU time against the fair share: Jain's index (1 = all alike), and the
        guest that got least of its share.
    decisions, switches, kicks: a second of host time, whole host.
    wall, cpu_share: seconds to simulate; CPU time given to guests, of all there was.
    loss: the causes of what efficiency lacks.
    """

    scheduler: str
    rate: float
    rates: tuple[float, ...]
    efficiency: float
    against_alone: float | None
    corun: float
    whole: float | None
    skew_us: float | None
    skew_max_us: float | None
    costop: float
    jain: float
    worst: float
    decisions: float
    switches: float
    kicks: float
    wall: float
    cpu_share: float
    loss: Loss


@dataclass(frozen=True)
class Party:
    """A guest, or ordinary tasks of one kind, in one run.

    cpus: CPUs it had; rate: rounds a second; corun, skew_us: as in Figures, None for ordinary tasks and where
    there is none; p50_us: from being woken to running, of the task in the middle; p99_us: of the worst;
    longest_ms: the longest that one of them was runnable and had no CPU; migrations a second.
    """

    name: str
    cpus: float
    rate: float
    corun: float | None
    skew_us: float | None
    p50_us: float
    p99_us: float
    longest_ms: float
    migrations: float


def parties(run: Run) -> list[Party]:
    """Everybody in a run: guests, then ordinary tasks, in the scenario's order."""
    names = list(dict.fromkeys(task["name"].split("/")[0] for task in run.tasks))
    found = []
    for at, name in enumerate(names):
        mine = run.of(name)
        guest = run.guests[at] if at < len(run.guests) else None
        rounds = guest["rounds"] if guest else sum(task["rounds"] for task in mine)
        woken = [task for task in mine if task["wakeups"]] or mine
        together = guest["whole"] if guest else 0
        found.append(
            Party(
                name,
                run.share(name),
                rounds / run.seconds,
                guest["corun_ns"] / guest["some_ns"] if guest and guest["some_ns"] else None,
                guest["skew_ns"] / together / 1e3 if guest and together else None,
                statistics.median(task["latency_p50_ns"] for task in woken) / 1e3,
                max(task["latency_p99_ns"] for task in woken) / 1e3,
                max(task["longest_wait_ns"] for task in mine) / 1e6,
                sum(task["migrations"] for task in mine) / run.seconds,
            )
        )
    return found


def fair_shares(scenario: Scenario, demand: Sequence[float]) -> list[float]:
    """CPUs for each guest: by weight and width, nobody more than its demand, nothing left over."""
    shares = [0.0] * len(demand)
    hungry = set(range(len(demand)))
    free = float(scenario.host.cpus)
    claim = [guest.weight * guest.vcpus for guest in scenario.guests]
    while hungry:
        unit = free / sum(claim[i] for i in hungry)
        full = {i for i in hungry if demand[i] <= claim[i] * unit}
        for i in full or hungry:
            shares[i] = demand[i] if full else claim[i] * unit
        free -= sum(shares[i] for i in full)
        hungry = hungry - full if full else set()
    return shares


def jain(values: Sequence[float]) -> float:
    """Jain's fairness index (1984): 1 when all are equal, 1/n when one has everything."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


def of_run(scenario: Scenario, run: Run, alone: Mapping[Guest, Alone]) -> Figures:
    """The figures of one run."""
    base = [alone[guest] for guest in scenario.guests]
    shares = fair_shares(scenario, [one.cpus for one in base])
    rates = [guest["rounds"] / run.seconds for guest in run.guests]
    reached = [rate / one.rate * one.cpus for rate, one in zip(rates, base, strict=True)]
    got = [g["run_ns"] / 1e9 / run.seconds / share for g, share in zip(run.guests, shares, strict=True)]
    total = {name: sum(guest[name] for guest in run.guests) for name in run.guests[0]}
    together, host_ns = total["whole"], run.seconds * 1e9 * scenario.host.cpus
    return Figures(
        scheduler=run.scheduler,
        rate=sum(rates),
        rates=(sum(rates),),
        efficiency=sum(reached) / sum(shares),
        against_alone=sum(rates) / base[0].rate if len(set(scenario.guests)) == 1 else None,
        corun=total["corun_ns"] / total["some_ns"] if total["some_ns"] else 1.0,
        whole=together / total["starts"] if total["starts"] else None,
        skew_us=total["skew_ns"] / together / 1e3 if together else None,
        skew_max_us=max(g["skew_max_ns"] for g in run.guests) / 1e3 if together else None,
        costop=run.host["costop_ns"] / host_ns,
        jain=jain(got),
        worst=min(got),
        decisions=run.host["decisions"] / run.seconds,
        switches=run.host["switches"] / run.seconds,
        kicks=run.host["kicks"] / run.seconds,
        wall=run.wall,
        cpu_share=run.host["run_ns"] / host_ns,
        loss=_loss(scenario, run, sum(shares), sum(reached)),
    )


def _loss(scenario: Scenario, run: Run, limit: float, reached: float) -> Loss:
    ns = run.seconds * 1e9
    host = {name: value / ns for name, value in run.host.items()}
    had = sum(guest["run_ns"] for guest in run.guests) / ns
    # while vCPUs come one after the other, half of them wait in the mean
    skew = sum(
        result["skew_ns"] * guest.members / 2
        for guest, result in zip(scenario.guests, run.guests, strict=True)
    )
    return loss.divide(host, scenario.host.cpus, limit, reached, had, skew / ns)


def median(found: Sequence[Figures]) -> Figures:
    """The medians of several seeds, figure by figure; `rates` keeps each, `wall` adds up."""

    def middle(name: str) -> float | None:
        values = [value for one in found if (value := getattr(one, name)) is not None]
        return statistics.median(values) if values else None

    names = set(Figures.__annotations__) - {"scheduler", "rates", "wall", "loss"}
    return Figures(
        scheduler=found[0].scheduler,
        rates=tuple(one.rate for one in found),
        wall=sum(one.wall for one in found),
        loss=Loss(
            *(statistics.median(parts) for parts in zip(*(astuple(one.loss) for one in found), strict=True))
        ),
        **{name: middle(name) for name in names},  # type: ignore[arg-type]
    )
