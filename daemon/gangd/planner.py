# SPDX-License-Identifier: Apache-2.0
"""State and evidence in, plan out: finds the policies and puts their decisions together."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, NamedTuple, cast

from gangd.errors import GangError
from gangd.guard import Guarded
from gangd.model.domain import WEIGHT_DEFAULT, Domain, Mode
from gangd.model.evidence import Conditions, Evidence
from gangd.model.placement import Request, Seating, Standing, place
from gangd.model.plan import GangPlan, Plan, Refusal
from gangd.model.policy import Decision, Policy, PolicyText
from gangd.model.profile import OFF, Choice, Rules, check_policy, rules
from gangd.model.state import State

log = logging.getLogger(__name__)

GROUP = "gangd.policies"
PACKAGE = "gangd"
NAME = re.compile(r"[a-z][a-z0-9-]{0,31}")
RULES = rules()
CONDITIONS = Conditions()
UNSEEN = Evidence()
NO_PLACE = Seating(None, ())
REAL_TIME = "its vCPUs are real-time tasks (vcpusched), which go before every gang: only balance places them"


def load_policies() -> dict[str, Policy]:
    """All installed policies by name, from the entry point group gangd.policies, each guarded.

    One that cannot be loaded is there, too: it refuses its guests and says why.
    """
    return {name: Guarded(name, point.load) for name, point in _installed().items()}


def policy_texts() -> tuple[PolicyText, ...]:
    """The texts of all installed policies, sorted by name."""
    return tuple(_text(point) for _, point in sorted(_installed().items()))


def _installed() -> dict[str, EntryPoint]:
    """By name; of two with one name gangd's own, else the package that comes first by its name."""
    found: dict[str, EntryPoint] = {}
    for point in sorted(entry_points(group=GROUP), key=lambda p: (_package(p) != PACKAGE, _package(p))):
        if not NAME.fullmatch(point.name) or point.name == OFF:
            log.warning("package %r: %r cannot be the name of a policy", _package(point), point.name)
        else:
            found.setdefault(point.name, point)
    return found


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else ""


def _text(point: EntryPoint) -> PolicyText:
    package = f"{point.dist.name} {point.dist.version}" if point.dist else ""
    try:
        text = inspect.getdoc(import_module(point.module)) or ""
    except (Exception, SystemExit) as error:  # a stranger's module; Guarded has logged it
        text = f"cannot be loaded: {type(error).__name__}"
    summary = text.partition("\n\n")[0].replace("\n", " ").removeprefix(f"{point.name}: ")
    return PolicyText(point.name, summary.rstrip("."), text, package)


def make_plan(
    state: State,
    evidence: Mapping[str, Evidence],
    policies: Mapping[str, Policy],
    standing: Standing | None = None,
    said: Rules = RULES,
    left_alone: AbstractSet[str] = frozenset(),
    conditions: Conditions = CONDITIONS,
) -> Plan:
    """The plan for the host now; guests are placed in the order they were started.

    Pure, apart from the policies it is given. standing: the last plan, and how many vCPUs may be moved
    without need. said: the rules that choose a policy for a guest; a guest for which they choose none
    is not touched, nor is one that is `left_alone` (UUIDs), whatever the rules say. conditions: for policies.
    """
    standing = standing or Standing()
    before = standing.plan
    wanted: dict[str, tuple[Domain, Choice, Asked]] = {}
    refused = [
        Refusal(d.uuid, d.name, f"its mark cannot be used: {d.mark_error}")
        for d in state.domains.values()
        if d.mark_error
    ]
    choices = {uuid: choice for uuid, d in state.domains.items() if (choice := said.choice(d))}
    chosen = [state.domains[uuid] for uuid in choices.keys() - left_alone if state.domains[uuid].running]
    for domain in sorted(chosen, key=lambda d: (d.id or 0, d.uuid)):
        choice = choices[domain.uuid]
        if choice.policy == OFF:
            continue
        if domain.busy and before.gang(domain.uuid) is None:  # a guest that was a gang stays one
            refused.append(Refusal(domain.uuid, domain.name, f"busy: {domain.busy}"))
            continue
        match _ask(domain, choice, evidence.get(domain.uuid, UNSEEN), conditions, policies, before):
            case Asked() as asked:
                wanted[domain.uuid] = (domain, choice, asked)
            case str() as reason:
                refused.append(Refusal(domain.uuid, domain.name, reason))
    requests = [
        Request(domain, mode is Mode.STRICT, standing.roams and mode.has_slots)
        for domain, _, asked in wanted.values()
        if (mode := asked.decision.mode) is not Mode.OFF
    ]
    placed = place(requests, state.topology, standing)
    gangs: list[GangPlan] = []
    for uuid, (domain, choice, asked) in wanted.items():
        match placed.of[uuid] if asked.decision.mode is not Mode.OFF else NO_PLACE:
            case Seating() as seating:
                gangs.append(_gang(domain, choice, asked.decision, seating, standing))
            case str() as reason:
                refused.append(Refusal(uuid, domain.name, reason))
    used = {gang.cache for gang in gangs}
    caches = tuple(cache for cache in placed.caches if cache.index in used)
    asked_of = {uuid: asked for uuid, (_, _, asked) in wanted.items()}
    return Plan(caches, tuple(gangs), tuple(refused), placed.moved, choices, placed.rows, asked_of)


class Asked(NamedTuple):
    """The decision of a policy, and all that it was told: it is pure, so nobody asks it the same twice."""

    told: tuple[str, Domain, Evidence, Conditions, object]
    decision: Decision


def _ask(
    domain: Domain,
    choice: Choice,
    evidence: Evidence,
    conditions: Conditions,
    policies: Mapping[str, Policy],
    before: Plan,
) -> Asked | str:
    """The policy's decision on a guest, or the reason why it is no gang."""
    last = before.gang(domain.uuid)
    memory = last.memory if last and last.policy == choice.policy else None
    told = (choice.policy, domain, evidence, conditions, memory)
    known = before.asked.get(domain.uuid)
    if known and known.told == told:
        return cast(Asked, known)
    try:
        policy = policies[check_policy(choice.policy, policies)]
        decision = policy.decide(domain, replace(evidence, conditions=conditions), memory)
    except GangError as error:
        return error.cause
    if decision.mode is Mode.OFF and decision.again is None:
        return decision.reason
    if not domain.vcpus or any(vcpu.tid is None for vcpu in domain.vcpus):
        return domain.hidden or "the threads of its vCPUs were not found"
    boosted = last and last.needs_scheduler  # gang.ko makes the members of its gangs real-time tasks, too
    if decision.mode.has_slots and not boosted and any(vcpu.real_time for vcpu in domain.vcpus):
        return REAL_TIME
    return Asked(told, decision)


def _gang(
    domain: Domain, choice: Choice, decision: Decision, seating: Seating, standing: Standing
) -> GangPlan:
    """The plan of a gang: the very object of the last time where nothing is different, so that whoever
    compares plans is done with it. A pause takes turns away when it is long, and gives none before."""
    last = standing.plan.gang(domain.uuid)
    keeps_turns = last is not None and last.has_turns and domain.uuid not in standing.paused
    said: dict[str, Any] = {
        "uuid": domain.uuid,
        "name": domain.name,
        "pid": domain.pid,
        "mode": decision.mode,
        "cache": seating.cache,
        "placements": seating.placements,
        "reason": decision.reason,
        "weight": choice.weight or domain.weight or WEIGHT_DEFAULT,
        "rejected": seating.rejected,
        "helpers": seating.helpers,
        "policy": choice.policy,
        "memory": decision.memory,
        "again": decision.again,
        "asked": choice.weight,
        "still": domain.stands_still and not keeps_turns,
        "basis": seating.basis,
    }
    if last and all(was is said[name] or was == said[name] for name, was in vars(last).items()):
        return last
    return GangPlan(**said)
