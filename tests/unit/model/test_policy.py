# SPDX-License-Identifier: Apache-2.0
"""From marks to a plan: who is a gang, who is refused and in which words."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest

from fakes import guest, host
from gang_policies import balance
from gang_policies.relaxed import POLICY
from gangd.errors import InvalidArgument, InvalidConfig
from gangd.model.domain import Domain, Mark, Mode, Vcpu
from gangd.model.evidence import Evidence
from gangd.model.pauses import LONG, Pauses
from gangd.model.placement import Standing
from gangd.model.plan import Plan
from gangd.model.policy import Decision, Policy
from gangd.model.profile import Profile, Selector, check_choice, check_policy, check_rules, rules
from gangd.model.state import State
from gangd.model.topology import Topology
from gangd.planner import RULES, load_policies, make_plan


class Never:
    """A policy that schedules nobody."""

    name = "never"

    def decide(self, domain: Domain, evidence: Evidence, memory: object = None) -> Decision:
        return Decision(Mode.OFF, f"{domain.name} wins nothing")


class Later:
    """A policy that leaves a guest alone for now."""

    name = "later"

    def decide(self, domain: Domain, evidence: Evidence, memory: object = None) -> Decision:
        return Decision(Mode.OFF, "not yet", "seen", 5.0)


POLICIES: dict[str, Policy] = {
    "balance": balance.POLICY,
    "relaxed": POLICY,
    "never": Never(),
    "later": Later(),
}


def planned(*domains: Domain, topology: Topology | None = None, **evidence: Evidence) -> Plan:
    known = MappingProxyType({d.uuid: d for d in domains})
    return make_plan(State(True, topology=topology or host(), domains=known), evidence, POLICIES)


def refusal(plan: Plan) -> str:
    assert plan.gangs == ()
    (only,) = plan.refused
    return only.reason


def test_the_packaged_policies_are_found() -> None:
    """The entry points name real objects."""
    for name in ("adaptive", "balance", "relaxed", "strict"):
        assert load_policies()[name].name == name


def test_a_host_without_marks_has_an_empty_plan() -> None:
    """An empty plan leaves the host alone."""
    assert planned(guest("web", 1), guest("off", mark=Mark())) == Plan()


def test_a_marked_guest_is_a_gang() -> None:
    """A marked guest is a gang with its process, mode, domain, placements and weight."""
    web = guest("web", 1, mark=Mark())
    plan = planned(web)
    gang = plan.gang(web.uuid)
    assert gang is not None
    assert (gang.pid, gang.mode, gang.cache, gang.weight) == (web.pid, Mode.RELAXED, 0, 100)
    assert [(p.vcpu, p.tid) for p in gang.placements] == [(v.index, v.tid) for v in web.vcpus]
    assert [d.index for d in plan.caches] == [0]


@pytest.mark.parametrize(("roams", "moved"), [(False, 2), (True, 0)])
def test_a_gang_that_roams_keeps_its_place_in_the_plan(roams: bool, moved: int) -> None:
    """The plan of a gang that roams says where it began, so another plan would gain nothing."""
    found = [guest(f"g{number}", number, mark=Mark()) for number in range(1, 5)]
    small = host(packages=2, cores=2, threads=1)

    def planned(domains: list[Domain], standing: Standing | None = None) -> Plan:
        state = State(connected=True, topology=small, domains={d.uuid: d for d in domains})
        return make_plan(state, {}, load_policies(), standing)

    before = planned(found)
    after = planned([found[0], found[2]], Standing(before, moves=10, roams=roams))
    assert after.moved == moved


@pytest.mark.parametrize(("mark", "shares", "weight"), [(300, 50, 300), (None, 50, 50), (None, None, 100)])
def test_weight(mark: int | None, shares: int | None, weight: int) -> None:
    """The mark's, else libvirt's shares, else the default."""
    web = guest("web", 1, mark=Mark("relaxed", mark), weight=shares)
    gang = planned(web).gangs[0]
    assert (gang.weight, gang.asked) == (weight, mark)


def test_places_in_the_order_of_start() -> None:
    """The guest that started first keeps its place, whatever the names are."""
    late, early = guest("a", 9, mark=Mark()), guest("z", 2, mark=Mark())
    assert [gang.name for gang in planned(late, early).gangs] == ["z", "a"]


def test_only_domains_in_use_are_wanted() -> None:
    """A cache without gangs is not a cache of the plan."""
    plan = planned(guest("web", 1, mark=Mark()), topology=host(packages=2))
    assert [d.index for d in plan.caches] == [0]


def test_refusals_say_why() -> None:
    """A policy that says no, one that is not installed, a mark that cannot be read, threads not found."""
    assert refusal(planned(guest("web", 1, mark=Mark("never")))) == "web wins nothing"
    unknown = refusal(planned(guest("web", 1, mark=Mark("magic"))))
    assert unknown == "no policy is called 'magic' (installed: balance, later, never, relaxed)"
    broken = guest("web", 1, mark_error="invalid gang metadata: longer than 4096 bytes")
    assert refusal(planned(broken)) == f"its mark cannot be used: {broken.mark_error}"
    headless = guest("web", 1, mark=Mark(), vcpus=2)
    lost = replace(headless, vcpus=(headless.vcpus[0], Vcpu(1)))
    assert refusal(planned(lost)) == "the threads of its vCPUs were not found"


def test_a_busy_guest_is_not_touched() -> None:
    """A guest that is no gang yet is none until libvirt is done with it, and a gang stays one."""
    web = guest("web", 1, mark=Mark())
    busy = replace(web, busy="it is being saved")
    assert refusal(planned(busy)) == "busy: it is being saved"
    assert planned(replace(busy, mark=Mark("off"))).refused == ()
    before = planned(web)
    domains = MappingProxyType({busy.uuid: busy})
    after = make_plan(State(True, topology=host(), domains=domains), {}, POLICIES, Standing(before))
    assert after.gangs == before.gangs and not after.refused


def test_real_time_vcpus_are_no_gang() -> None:
    """No scheduler of gangs schedules them; policy balance places them. A gang whose members gang.ko has made
    real-time tasks stays one."""
    web = guest("web", 1, mark=Mark())
    fifo = replace(web, vcpus=tuple(replace(vcpu, real_time=True) for vcpu in web.vcpus))
    assert "vcpusched" in refusal(planned(fifo))
    assert [gang.mode for gang in planned(replace(fifo, mark=Mark("balance"))).gangs] == [Mode.BALANCE]
    domains = MappingProxyType({fifo.uuid: fifo})
    after = make_plan(State(True, topology=host(), domains=domains), {}, POLICIES, Standing(planned(web)))
    assert [gang.mode for gang in after.gangs] == [Mode.RELAXED] and not after.refused


@pytest.mark.parametrize("state", ["paused", "crashed", "pmsuspended"])
def test_a_guest_that_stands_still_keeps_its_place_and_has_no_turns(state: str) -> None:
    """A gang that is paused has its turns until that is long: a snapshot must not cost a load."""
    web = guest("web", 1, mark=Mark())
    still = replace(web, state=state)
    running = planned(web)
    pauses, gangs = Pauses(), []
    for before, domain, now in (
        (running, still, 0.0),
        (running, still, LONG - 1.0),
        (running, web, LONG),
        (running, still, LONG + 1.0),
        (running, still, 2 * LONG + 1.0),
        (planned(still), still, 2 * LONG + 2.0),
        (planned(still), web, 2 * LONG + 3.0),
        (planned(still), still, 2 * LONG + 4.0),
    ):
        standing = Standing(before, paused=pauses.long([domain], now))
        domains = MappingProxyType({web.uuid: domain})
        gangs += make_plan(State(True, topology=host(), domains=domains), {}, POLICIES, standing).gangs
    assert {gang.placements for gang in gangs} == {running.gangs[0].placements}
    assert all(gang.needs_scheduler for gang in gangs)
    assert [gang.has_turns for gang in gangs] == [True, True, True, True, False, False, True, False]


def test_a_refusal_hurts_nobody_else() -> None:
    """The guest beside it is a gang all the same."""
    plan = planned(guest("tiny", 1, mark=Mark(), vcpus=1), guest("web", 2, mark=Mark()))
    assert [g.name for g in plan.gangs] == ["web"]
    assert [r.name for r in plan.refused] == ["tiny"]


def test_one_vcpu_has_no_siblings() -> None:
    """relaxed and balance leave it alone and say so."""
    reason = refusal(planned(guest("tiny", 1, mark=Mark(), vcpus=1)))
    assert reason == "a guest with one vCPU has no siblings to run with"
    reason = refusal(planned(guest("tiny", 1, mark=Mark("balance"), vcpus=1)))
    assert reason == "a guest with one vCPU has no siblings to be kept apart from"


def test_balance_is_placement_alone() -> None:
    """A guest marked balance is planned with a CPU for each vCPU and the mode that needs no scheduler."""
    (gang,) = planned(guest("web", 1, mark=Mark("balance"))).gangs
    assert gang.mode is Mode.BALANCE
    assert len({place.cpu for place in gang.placements}) == len(gang.placements)


def test_a_guest_that_is_off_for_now_is_planned_without_a_place() -> None:
    """The policy is asked again and remembers, and no seat is kept for the guest."""
    plan = planned(guest("web", 1, mark=Mark("later")))
    (gang,) = plan.gangs
    assert (gang.mode, gang.cache, gang.placements, gang.memory) == (Mode.OFF, None, (), "seen")
    assert (plan.again, plan.caches, plan.scheduled, gang.needs_scheduler) == (5.0, (), (), False)


def test_the_plan_of_a_guest_that_did_not_change_is_the_same_object() -> None:
    """The plan is the same object whatever was measured and whichever guest came: plans compare at once."""
    web, db = guest("web", 1, mark=Mark()), guest("db", 2, mark=Mark())
    first = planned(web)
    standing = Standing(first)
    seen = {web.uuid: Evidence(10.0, pause_per_second=120.4, lhp_per_second=7.6)}
    state = State(True, topology=host(), domains={web.uuid: replace(web), db.uuid: db})
    later = make_plan(state, seen, POLICIES, standing)
    assert later.gangs[0] is first.gangs[0]
    for changed in (
        replace(web, weight=300),
        replace(web, mark=Mark(weight=200)),
        replace(web, allowed=frozenset({0, 1})),
        replace(web, vcpus=(replace(web.vcpus[0], tid=7), *web.vcpus[1:])),
    ):
        one = replace(state, domains={web.uuid: changed})
        assert make_plan(one, seen, POLICIES, standing) == make_plan(one, seen, POLICIES)
        assert make_plan(one, seen, POLICIES, standing).gangs[0] is not first.gangs[0]


SAID = rules([], [Selector("off", "f:1", name="old"), Selector("latency", "f:4", name="w*")])


def test_a_selected_guest_is_a_gang_without_a_mark() -> None:
    """A selected guest has its profile's policy and weight; others are no gangs, and `off` is no refusal."""
    web, old, other = guest("web", 1), guest("old", 2, mark=Mark(None)), guest("other", 3)
    state = State(True, topology=host(), domains={d.uuid: d for d in (web, old, other)})
    plan = make_plan(state, {}, POLICIES, said=SAID)
    assert [(g.name, g.weight, g.asked, g.policy) for g in plan.gangs] == [("web", 400, 400, "relaxed")]
    assert plan.refused == ()
    sources = {uuid: choice.source for uuid, choice in plan.choices.items()}
    assert sources == {web.uuid: "f:4", old.uuid: "f:1"}


def test_memory_is_handed_to_the_policy_that_had_it() -> None:
    """Another policy would not know what to make of it."""
    seen = []

    class Learns:
        name = "learns"

        def decide(self, domain: Domain, evidence: Evidence, memory: object = None) -> Decision:
            seen.append(memory)
            return Decision(Mode.BALANCE, "learning", self.name)

    known = {"learns": Learns(), "other": Learns()}
    plan = None
    for name in ("learns", "learns", "other"):
        web = guest("web", 1, mark=Mark(name))
        standing = Standing(plan) if plan else None
        plan = make_plan(State(True, topology=host(), domains={web.uuid: web}), {}, known, standing)
    assert seen == [None, "learns", None]


def test_a_guest_that_is_left_alone_is_still_chosen() -> None:
    """A marked or selected guest is no gang and not refused; the choice for it stays known."""
    domains = [guest("web", 1, mark=Mark()), guest("db", 2), guest("other", 3)]
    state = State(True, topology=host(), domains={d.uuid: d for d in domains})
    said = rules(selectors=[Selector("relaxed", "f:1", name="*")])
    left = {d.uuid for d in domains[:2]}
    plan = make_plan(state, {}, {"relaxed": POLICY}, None, said, left)
    assert ([gang.name for gang in plan.gangs], plan.refused) == (["other"], ())
    assert plan.choices.keys() == state.domains.keys()


def test_rules_name_policies_that_are_installed() -> None:
    """Else the place is told where one is named that is not; profiles and `off` may be named everywhere."""
    policies = {"relaxed": POLICY, "adaptive": POLICY}
    for name in ("relaxed", "dense", "off"):
        assert check_choice(name, RULES, policies) == name
    check_rules(rules(selectors=[Selector("dense", "f:1")], default="latency"), policies)
    for said, start in (
        (rules([Profile("x", "magic", source="f:1")]), "f:1: no policy is called 'magic'"),
        (rules(selectors=[Selector("magic", "f:2")]), "f:2: no policy is called 'magic'"),
        (rules(default="magic"), "scheduler.policy: no policy is called 'magic'"),
    ):
        with pytest.raises(InvalidConfig, match=start):
            check_rules(said, policies)


def test_check_policy_without_any() -> None:
    """An installation without policies is told apart from a wrong name."""
    with pytest.raises(InvalidArgument, match=r"installed: none"):
        check_policy("relaxed", {})
