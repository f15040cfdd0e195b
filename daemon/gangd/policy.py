# SPDX-License-Identifier: Apache-2.0
"""State and evidence in, plan out: finds the policies and puts their decisions together."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points

from gangd.errors import InvalidArgument
from gangd.model.domain import WEIGHT_DEFAULT, Domain, Mode
from gangd.model.evidence import Evidence
from gangd.model.placement import Request, Seating, Standing, place
from gangd.model.plan import GangPlan, Plan, Refusal
from gangd.model.policy import Decision, Policy, PolicyText
from gangd.model.state import State

GROUP = "gangd.policies"


def load_policies() -> dict[str, Policy]:
    """All installed policies by name, from the entry point group gangd.policies."""
    return {point.name: point.load() for point in entry_points(group=GROUP)}


def policy_texts() -> tuple[PolicyText, ...]:
    """Of all installed policies, by name."""
    return tuple(sorted((_text(point) for point in entry_points(group=GROUP)), key=lambda p: p.name))


def _text(point: EntryPoint) -> PolicyText:
    text = inspect.getdoc(import_module(point.module)) or ""
    summary = text.partition("\n\n")[0].replace("\n", " ").removeprefix(f"{point.name}: ")
    package = f"{point.dist.name} {point.dist.version}" if point.dist else ""
    return PolicyText(point.name, summary.rstrip("."), text, package)


def check_policy(name: str, policies: Mapping[str, Policy]) -> str:
    """`name`, if such a policy is installed. Raises InvalidArgument naming those that are."""
    if name not in policies:
        known = ", ".join(sorted(policies)) or "none"
        raise InvalidArgument(f"no policy is called '{name}' (installed: {known})")
    return name


def make_plan(
    state: State,
    evidence: Mapping[str, Evidence],
    policies: Mapping[str, Policy],
    standing: Standing | None = None,
) -> Plan:
    """What is wanted of the host now, by guests in the order they were started.

    Pure, apart from the policies it is given. standing: what is there already; nobody is moved
    without need beyond what it allows.
    """
    wanted: dict[str, tuple[Domain, Decision]] = {}
    refused = [
        Refusal(d.uuid, d.name, f"its mark cannot be used: {d.mark_error}")
        for d in state.domains.values()
        if d.mark_error
    ]
    for domain in sorted(state.marked(), key=lambda d: (d.id or 0, d.uuid)):
        last = standing.plan.gang(domain.uuid) if standing else None
        match _decide(domain, evidence.get(domain.uuid, Evidence()), policies, last):
            case Decision() as decision:
                wanted[domain.uuid] = (domain, decision)
            case str() as reason:
                refused.append(Refusal(domain.uuid, domain.name, reason))
    requests = [Request(domain, decision.mode is Mode.STRICT) for domain, decision in wanted.values()]
    placed = place(requests, state.topology, standing)
    gangs: list[GangPlan] = []
    for uuid, (domain, decision) in wanted.items():
        match placed.of[uuid]:
            case Seating() as seating:
                gangs.append(_gang(domain, decision, seating))
            case str() as reason:
                refused.append(Refusal(uuid, domain.name, reason))
    used = {gang.gang_domain for gang in gangs}
    domains = tuple(domain for domain in placed.gang_domains if domain.index in used)
    return Plan(domains, tuple(gangs), tuple(refused), placed.moved)


def _decide(
    domain: Domain, evidence: Evidence, policies: Mapping[str, Policy], last: GangPlan | None
) -> Decision | str:
    """What its policy says of a marked guest, or why it is no gang."""
    if domain.mark is None:
        return "it is not marked"
    try:
        policy = policies[check_policy(domain.mark.policy, policies)]
        decision = policy.decide(domain, evidence, last.memory if last else None)
    except InvalidArgument as error:
        return error.cause
    if decision.mode is Mode.OFF:
        return decision.reason
    if not domain.vcpus or any(vcpu.tid is None for vcpu in domain.vcpus):
        return "the threads of its vCPUs were not found"
    return decision


def _gang(domain: Domain, decision: Decision, seating: Seating) -> GangPlan:
    assert domain.mark
    shares = domain.weight or WEIGHT_DEFAULT
    return GangPlan(
        uuid=domain.uuid,
        name=domain.name,
        pid=domain.pid,
        mode=decision.mode,
        gang_domain=seating.gang_domain,
        placements=seating.placements,
        reason=decision.reason,
        weight=domain.mark.weight or shares,
        shares=shares,
        rejected=seating.rejected,
        helpers=seating.helpers,
        memory=decision.memory,
        again=decision.again,
    )
