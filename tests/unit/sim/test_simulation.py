# SPDX-License-Identifier: Apache-2.0
"""The simulator against what is known without it: laws, limits, and orders of who beats whom."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from gangsim import placement
from gangsim.__main__ import simulate
from gangsim.catalogue import standard
from gangsim.costs import Costs
from gangsim.engine import Engine, Run
from gangsim.errors import Ejected, ScenarioError
from gangsim.figures import Figures
from gangsim.scenario import DOMAIN_GANGS, LOADS, SCHEDULERS, Group, Guest, Host, Scenario, Task
from unit.sim.conftest import shared_core_us

LAB = Host(cpus=2, threads=1, llc_cpus=2)
many = settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])


def scenario(*guests: Guest, host: Host = LAB, seconds: float = 5, **other: object) -> Scenario:
    return replace(Scenario("test", host, guests, seconds), **other)  # type: ignore[arg-type]


def figures(engine: Engine, wanted: Scenario, seeds: int = 1) -> dict[str, Figures]:
    return {one.scheduler: one for one in simulate(engine, wanted, seeds)}


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    """Hosts of up to 24 CPUs with up to 20 guests of any load."""
    threads = draw(st.sampled_from([1, 2, 4]))
    llc = threads * draw(st.integers(1, 3))
    host = Host(llc * draw(st.integers(1, 2)), threads, llc)
    widest = st.integers(2 if llc > 1 else 1, llc)
    loads = st.sampled_from(LOADS if llc > 1 else ("spin", "barrier", "duty"))
    guest = st.builds(Guest, loads, widest, st.sampled_from([50, 100, 300]))
    guests = draw(st.lists(guest, min_size=1, max_size=20))
    return scenario(*guests, host=host, seconds=0.4, seed=draw(st.integers(0, 2**32)))


@pytest.mark.parametrize("scheduler", ["gang", "default"])
def test_the_interrupt_of_a_wakeup_costs_its_sender(engine: Engine, scheduler: str) -> None:
    """Two vCPUs wake each other: each wakeup is an interrupt, counted, and as late as sending takes."""
    cheap, dear = (
        engine.run(scenario(Guest("sleep", 2), seconds=2, costs=Costs(send_us=us)), scheduler)
        for us in (0, 50)
    )
    for run in (cheap, dear):
        assert run.host["kicks"] == pytest.approx(2 * run.guests[0]["rounds"], rel=0.02)
    first, second = (run.seconds * 1e6 / run.host["kicks"] for run in (cheap, dear))
    assert second - first == pytest.approx(50, rel=0.02)


def test_a_kernel_that_loses_preemption_is_kicked(engine: Engine) -> None:
    """Turns open as well on 6.18 as on 7.0: where a move brings no interrupt the scheduler sends one."""
    wanted = scenario(*[Guest("barrier", 4)] * 3, host=Host(4, 1, 4), seconds=2)
    for forgets in (True, False):
        run = engine.run(replace(wanted, forgets=forgets), "gang")
        assert sum(guest["corun_ns"] for guest in run.guests) > 0.99 * 2e9


@many
@given(wanted=scenarios(), scheduler=st.sampled_from(SCHEDULERS))
def test_cpu_time_is_conserved(engine: Engine, wanted: Scenario, scheduler: str) -> None:
    """Run, switch and idle time add up to CPUs times time; what guests got is what CPUs gave."""
    run = engine.run(wanted, scheduler)
    host, total = run.host, round(wanted.seconds * 1e9) * wanted.host.cpus
    assert host["run_ns"] + host["switch_ns"] + host["idle_ns"] == total
    assert sum(guest["run_ns"] for guest in run.guests) == host["run_ns"]
    for guest, got in zip(wanted.guests, run.guests, strict=True):
        assert got["corun_ns"] <= got["some_ns"] <= wanted.seconds * 1e9
        assert got["run_ns"] + got["wait_ns"] <= guest.vcpus * wanted.seconds * 1e9
        assert got["whole"] <= got["starts"]
        assert got["seats_had"] <= got["seats_wanted"]
        assert got["apart_ns"] + got["borrowed_ns"] <= got["member_ns"] <= wanted.seconds * 1e9 * guest.vcpus


@many
@given(wanted=scenarios(), scheduler=st.sampled_from(SCHEDULERS))
def test_no_guest_is_faster_than_its_cpu_time(engine: Engine, wanted: Scenario, scheduler: str) -> None:
    """Every round costs its work: rounds times work is at most the CPU time of the workers."""
    for guest, got in zip(wanted.guests, engine.run(wanted, scheduler).guests, strict=True):
        workers = {"barrier": guest.vcpus, "sleep": 2}.get(guest.load, 1)
        assert got["rounds"] * workers * guest.work_ns <= got["run_ns"] + workers * guest.work_ns


@many
@given(wanted=scenarios(), scheduler=st.sampled_from(SCHEDULERS))
def test_a_run_can_be_repeated(engine: Engine, wanted: Scenario, scheduler: str) -> None:
    """A scenario and seed give the same figures to the last digit."""
    first, second = engine.run(wanted, scheduler), engine.run(wanted, scheduler)
    assert (first.host, first.guests) == (second.host, second.guests)


@many
@given(wanted=scenarios())
def test_no_cpu_runs_two_and_no_guest_two_places(engine: Engine, wanted: Scenario) -> None:
    """In what was written down no CPU has two guests at once, under any scheduler."""
    for scheduler in SCHEDULERS:
        last: dict[int, int] = {}
        for start, end, cpu, _ in engine.run(wanted, scheduler, (0, 10**12)).trace:
            assert last.get(cpu, 0) <= start <= end
            last[cpu] = end


@pytest.mark.parametrize(
    ("host", "guests"),
    [
        (Host(4, 2, 4), [Guest("spin", 4)] * 3),
        (Host(4, 2, 4), [Guest("sleep", 4)] * 3),
        (Host(8, 2, 8), [Guest("barrier", 1), Guest("spin", 3), Guest("duty", 4), Guest("ipi", 4)]),
    ],
)
def test_strict_gangs_have_their_cores_to_themselves(engine: Engine, host: Host, guests: list[Guest]) -> None:
    """No two guests are on the CPUs of one core at once for longer than a kick takes on its way."""
    scenario = Scenario("strict", host, tuple(guests), 1, mode="strict")
    run = engine.run(scenario, "gang", (0, 10**12))
    assert sum(shared_core_us(run, host.threads)) < 1


@many
@given(wanted=scenarios())
def test_no_host_of_two_threads_a_core_mixes_strict_gangs(engine: Engine, wanted: Scenario) -> None:
    """Two that come to a core at once both begin, and a kick sends one away. Cores of four threads are none
    that a strict gang is kept on."""
    assume(wanted.host.threads <= 2)
    run = engine.run(replace(wanted, mode="strict"), "gang", (0, 10**12))
    assert max(shared_core_us(run, wanted.host.threads), default=0) <= Costs().kick_us


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_a_guest_alone_reaches_its_limit(engine: Engine, load: str, scheduler: str) -> None:
    """A round takes what it costs on a host of its own, plus switches where it halts."""
    guest = Guest(load, 2)
    got = engine.run(scenario(guest), scheduler).guests[0]["rounds"] / 5
    switches = 2 * (Costs().switch_us + Costs().kick_us) * 1e-6
    work, extra = guest.work_ns / 1e9, guest.extra_ns / 1e9
    least = {
        "spin": 2 / work,
        "barrier": 1 / work,
        "ipi": 1 / (work + extra),
        "sleep": 1 / (2 * work + 2 * switches),
        "duty": 2 / (work + extra + switches),
    }[load]
    assert 0.99 * least <= got <= 1.02 * least


def test_two_gangs_of_equal_weight_share_evenly(engine: Engine) -> None:
    """50:50."""
    first, second = (guest["run_ns"] for guest in gangs(engine, Guest(), Guest()).guests)
    assert first / second == pytest.approx(1, rel=0.01)


def test_weights_divide_the_cpu(engine: Engine) -> None:
    """1:2:4 in weight is 1:2:4 in CPU time and in rounds, within 2 %."""
    found = gangs(engine, *(Guest(weight=weight) for weight in (100, 200, 400))).guests
    for name in ("run_ns", "rounds"):
        one, two, four = (guest[name] for guest in found)
        assert two / one == pytest.approx(2, rel=0.02) and four / one == pytest.approx(4, rel=0.02)


def gangs(engine: Engine, *guests: Guest) -> Run:
    return engine.run(scenario(*guests, seconds=60), "gang")


def test_gangs_beat_all_else_at_barriers(engine: Engine) -> None:
    """4 guests of 2 vCPUs that spin at barriers on 2 CPUs: the gang is at the limit, the rest far below."""
    found = figures(engine, scenario(*[Guest("barrier")] * 4), seeds=5)
    assert found["gang"].efficiency > 0.99
    assert found["gang"].whole == 1.0
    assert all(found[other].efficiency < 0.33 for other in ("default", "pinned", "balance"))


@pytest.mark.parametrize("mode", ["relaxed", "strict"])
def test_the_counters_of_gangs_agree_with_their_run_time(engine: Engine, mode: str) -> None:
    """Gangs that share all CPUs have their seats; a lone gang below cpu.max waits only while throttled."""
    first, second = engine.run(scenario(Guest("spin"), Guest("spin"), seconds=10, mode=mode), "gang").guests
    for got in (first, second):
        assert got["whole"] >= 0.9 * got["starts"] > 10
        assert got["seats_wanted"] >= got["seats_had"] >= 0.9 * got["seats_wanted"] > 10
        assert got["member_ns"] == pytest.approx(got["run_ns"], rel=0.01)
        assert got["apart_ns"] < 0.2 * got["member_ns"]
        assert got["throttled_ns"] == 0
    (held,) = engine.run(scenario(Guest("spin", cpus=0.5), seconds=10), "gang").guests
    assert held["throttled_ns"] == pytest.approx(held["wait_ns"], rel=0.02)


def test_chance_alone_brings_siblings_together(engine: Engine) -> None:
    """n guests whose vCPUs take turns on two CPUs, out of step, co-run 1/n² of the time each."""
    for guests in (2, 4):
        found = figures(engine, scenario(*[Guest("barrier")] * guests, seconds=20), seeds=5)
        assert found["pinned"].efficiency == pytest.approx(1 / guests, rel=0.2)


def test_work_of_its_own_loses_nothing_to_anybody(engine: Engine) -> None:
    """Independent spinners get the same of every scheduler: all but the switches."""
    for one in figures(engine, scenario(*[Guest("spin")] * 4)).values():
        assert one.efficiency == pytest.approx(1, abs=0.005)


def test_balance_never_stacks(engine: Engine) -> None:
    """Siblings of a guest as wide as the host are each on a CPU of their own: none has more than a CPU."""
    wanted = scenario(*[Guest("spin", 4)] * 3, host=Host(4, 1, 4))
    for guest in engine.run(wanted, "balance").guests:
        assert guest["vcpu_max_ns"] <= 1.1 * guest["vcpu_min_ns"]


def test_a_wide_gang_is_served_in_every_cache(engine: Engine) -> None:
    """The vCPU that runs alone of a guest wider than a cache may come to one without a seat of its gang."""
    hogs = [Task("hog", 8, cpus=tuple(range(8)), group="heavy")]
    hogs += [
        Task("hog", n, cpus=tuple(range(8, 16)), start_ms=at, group="heavy") for n, at in ((7, 0), (3, 600))
    ]
    groups = (Group("heavy", weight=3000, parent="machine"),)
    wide = Guest("duty", 6, busy=1, work_us=400_000, extra_us=2000)
    run = engine.run(Scenario("wide", Host(16, 1, 4), (wide,), 16, tasks=tuple(hogs), groups=groups), "gang")
    assert run.tasks[0]["longest_wait_ns"] < 200e6


@pytest.mark.parametrize(("cpus", "quota"), [(16, 0.01), (64, 0.01), (64, 0.05), (64, 0.1)])
def test_a_small_limit_holds_on_many_cpus(engine: Engine, cpus: int, quota: float) -> None:
    """A tick is longer than what each CPU has of it: tasks near the end of the quota have short slices."""
    groups, tasks = (Group("q", cpus=quota),), (Task("hog", cpus, group="q"), Task("hog", cpus))
    wanted = Scenario("quota", Host(cpus, 1, cpus), (), 10, groups=groups, tasks=tasks)
    run = engine.run(wanted, "gang")
    had = sum(task["share"] for task in run.tasks[:cpus])
    assert had < 1.15 * quota


def test_a_gang_too_many_is_refused(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache lists so many gangs; its scheduler refuses another instead of never serving it."""
    monkeypatch.setattr(placement, "DOMAIN_GANGS", DOMAIN_GANGS + 1)
    wanted = Scenario("many", Host(64, 1, 64), (Guest("duty", 2),) * DOMAIN_GANGS, 0.1)
    assert engine.run(wanted, "gang").host["ops"]
    with pytest.raises(Ejected, match="an order of the daemon was refused"):
        engine.run(replace(wanted, guests=(*wanted.guests, Guest("duty", 2))), "gang")


def test_strict_costs_what_halted_members_leave_idle(engine: Engine) -> None:
    """Guests of which half always halts fill each other's gaps when relaxed, and not all when strict."""
    wanted = scenario(*[Guest("sleep", 4)] * 3, host=Host(4, 2, 4), schedulers=("gang",))
    relaxed = figures(engine, wanted)["gang"]
    strict = figures(engine, replace(wanted, mode="strict"))["gang"]
    assert relaxed.cpu_share > 0.98 > 0.96 > strict.cpu_share
    assert strict.costop > 0.03 and relaxed.costop < 0.01, (strict, relaxed)


def test_the_scheduler_counts_what_it_does(engine: Engine) -> None:
    """Each CPU times the first of 64 calls of a kind; a gang's starts are its turns."""
    run = gangs(engine, Guest("barrier"), Guest("duty"))
    found = run.counters
    for calls, kind in (("enqueues", "enqueue"), ("dispatches", "dispatch"), ("stops", "stop")):
        assert 64 < found[calls] <= 64 * found[f"{kind}_samples"] < found[calls] + 64 * LAB.cpus
    assert found["turns"] == sum(guest["starts"] for guest in run.guests) > 1000


@pytest.mark.parametrize("wanted", [wanted for wanted, _ in standard()], ids=lambda wanted: wanted.name)
def test_every_scenario_of_make_sim_begins(engine: Engine, wanted: Scenario) -> None:
    """No scenario of the catalogue is too large for the simulator: the last has groups by the thousand."""
    assert engine.run(replace(wanted, seconds=0.02), "gang").host["ops"]


def test_a_dearer_switch_costs_more(engine: Engine) -> None:
    """Turns of 1 ms with switches of 100 µs lose about a tenth, turns of 30 ms next to nothing."""
    costs = Costs(turn_us=1000, switch_us=100)
    wanted = scenario(Guest("spin"), Guest("spin"), schedulers=("gang",), costs=costs)
    assert 0.85 < figures(engine, wanted)["gang"].efficiency < 0.95
    slow = replace(wanted, costs=replace(costs, turn_us=30_000))
    assert figures(engine, slow)["gang"].efficiency > 0.99


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        (scenario(Guest(vcpus=3)), "a guest of 3 vCPUs, from 1 to 2 fit the host"),
        (scenario(Guest("sleep", 1)), "a guest of one vCPU with load sleep"),
        (scenario(Guest("disk")), "a load 'disk'"),
        (scenario(Guest(), host=Host(1025, 1, 64)), "1025 CPUs"),
        (scenario(Guest(), host=Host(3, 2, 3)), "whole cores"),
        (scenario(Guest(), seconds=0), "no time to simulate"),
        (scenario(Guest(), schedulers=("cfs",)), "a scheduler that is none of"),
        (scenario(), "0 guests"),
    ],
)
def test_an_impossible_scenario_is_refused(engine: Engine, wanted: Scenario, reason: str) -> None:
    """The error names scenario and reason."""
    with pytest.raises(ScenarioError, match="cannot simulate 'test'") as error:
        engine.run(wanted, "gang")
    assert reason in str(error.value)
