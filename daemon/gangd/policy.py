# SPDX-License-Identifier: Apache-2.0
"""State and evidence in, plan out: finds the policies and puts their decisions together."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points

from gangd.errors import InvalidArgument
from gangd.model.domain import WEIGHT_DEFAULT, Domain, Mode
from gangd.model.evidence import Evidence
from gangd.model.placement import Crowd, gang_domains, place
from gangd.model.plan import GangDomain, GangPlan, Plan, Refusal
from gangd.model.policy import Policy
from gangd.model.state import State
from gangd.model.topology import Topology

GROUP = "gangd.policies"


def load_policies() -> dict[str, Policy]:
    """All installed policies by name, from the entry point group gangd.policies."""
    return {point.name: point.load() for point in entry_points(group=GROUP)}


def check_policy(name: str, policies: Mapping[str, Policy]) -> str:
    """`name`, if such a policy is installed. Raises InvalidArgument naming those that are."""
    if name not in policies:
        known = ", ".join(sorted(policies)) or "none"
        raise InvalidArgument(f"no policy is called '{name}' (installed: {known})")
    return name


def make_plan(state: State, evidence: Mapping[str, Evidence], policies: Mapping[str, Policy]) -> Plan:
    """What is wanted of the host now. Pure, apart from the policies it is given.

    Guests are placed in the order they were started, so that a newcomer moves nobody.
    """
    domains = gang_domains(state.topology)
    crowd = Crowd()
    gangs: list[GangPlan] = []
    refused: list[Refusal] = [
        Refusal(d.uuid, d.name, f"its mark cannot be used: {d.mark_error}")
        for d in state.domains.values()
        if d.mark_error
    ]
    for domain in sorted(state.marked(), key=lambda d: (d.id or 0, d.uuid)):
        known = evidence.get(domain.uuid, Evidence())
        match _plan_one(domain, known, policies, state.topology, domains, crowd):
            case GangPlan() as gang:
                gangs.append(gang)
            case str() as reason:
                refused.append(Refusal(domain.uuid, domain.name, reason))
    used = {gang.gang_domain for gang in gangs}
    return Plan(tuple(d for d in domains if d.index in used), tuple(gangs), tuple(refused))


def _plan_one(
    domain: Domain,
    evidence: Evidence,
    policies: Mapping[str, Policy],
    topology: Topology,
    domains: tuple[GangDomain, ...],
    crowd: Crowd,
) -> GangPlan | str:
    if domain.mark is None:
        return "it is not marked"
    try:
        decision = policies[check_policy(domain.mark.policy, policies)].decide(domain, evidence)
    except InvalidArgument as error:
        return error.cause
    if decision.mode is Mode.OFF:
        return decision.reason
    if any(vcpu.tid is None for vcpu in domain.vcpus):
        return "the threads of its vCPUs were not found"
    placed = place(domain, topology, domains, crowd)
    if isinstance(placed, str):
        return placed
    where, placements = placed
    shares = domain.weight or WEIGHT_DEFAULT
    return GangPlan(
        uuid=domain.uuid,
        name=domain.name,
        pid=domain.pid,
        mode=decision.mode,
        gang_domain=where.index,
        placements=placements,
        reason=decision.reason,
        weight=domain.mark.weight or shares,
        shares=shares,
    )
