# SPDX-License-Identifier: Apache-2.0
"""Documents: unknown is null, every key is there, anything in a snapshot becomes JSON."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes import guest, host, snapshot
from gangd.control import documents
from gangd.control.schema import ratio
from gangd.control.smt import smt
from gangd.control.structs import Change, Member, NotScheduled, Whole, plain, text
from gangd.model.domain import Domain, Mark, Mode
from gangd.model.plan import Plan
from gangd.model.refused import Refused
from gangd.model.smt import Smt
from gangd.model.snapshot import DomainStats, Part, Snapshot, VcpuStats

WEB = guest("web", 3, mark=Mark("strict", 200))
BIG = guest("big", 5, vcpus=9, mark=Mark())
OFF = guest("off")
SNAP = snapshot(OFF, BIG, WEB)
NO_BACKEND = Part("sched_ext", False, False, "kernel lacks sched_ext")


def every(snap: Snapshot) -> list[Whole]:
    """Each kind of document, of each domain where there is a choice."""
    made: list[Whole] = [documents.domains(snap, True), documents.topology(snap), documents.plan(snap, [])]
    made += [documents.stats(snap), documents.status(snap)]
    made += [smt(Smt()), smt(Smt("off", False, ((0,), (1,)), frozenset({2, 3}), "on"))]
    made += [documents.undone(snap, snap.state.domains.values(), 3, ["no"])]
    for domain in snap.state.domains.values():
        made += [documents.dominfo(snap, domain), documents.vcpuinfo(snap, domain)]
        made += [documents.stats(snap, domain.uuid), documents.plan(snap, [], domain)]
    return made


def test_list_is_in_virsh_order() -> None:
    """Running domains by id; the others only on request, by name."""
    assert [d.name for d in documents.domains(SNAP).domains] == ["web", "big"]
    everyone = documents.domains(SNAP, True).domains
    assert [d.name for d in everyone] == ["web", "big", "off"]
    assert everyone[2].vcpus is None and everyone[2].corun_ratio is None


REFUSED = Refused(WEB.uuid, "gang", "NotSupported", "no kick")


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({}, ("strict", "marked with policy strict", None)),
        ({"backend": NO_BACKEND}, ("waiting", "kernel lacks sched_ext", "NoBackend")),
        ({"refused": {WEB.uuid: REFUSED}}, ("refused", "no kick", "NotSupported")),
        (
            {"refused": {WEB.uuid: replace(REFUSED, mode=Mode.RELAXED)}},
            ("relaxed", "no kick", "NotSupported"),
        ),
        (
            {"refused": {WEB.uuid: REFUSED}, "backend": replace(NO_BACKEND, usable=True)},
            ("refused", "no kick", "NotSupported"),
        ),
        (
            {"refused": {WEB.uuid: REFUSED}, "backend": NO_BACKEND},
            ("waiting", "kernel lacks sched_ext", "NoBackend"),
        ),
        ({"undone": frozenset({WEB.uuid})}, ("undone", documents.UNDONE, "Undone")),
    ],
)
def test_schedule_says_what_is_in_force_and_why(fields: dict[str, Any], found: tuple[str, str, str]) -> None:
    """Planned, waiting for a backend, refused by what was to do it, left alone; status lists all of them."""
    snap = replace(SNAP, **fields)
    assert documents.schedule(snap, WEB) == found
    now, reason, code = found
    listed = NotScheduled(WEB.uuid, "web", now, code or "", reason)
    others = documents.status(snap).not_scheduled
    assert others.pop(0).name == "big"
    assert others == ([listed] if code else [])


def test_schedule_of_others() -> None:
    """A mode that needs no scheduler, no place, a bad mark, no mark."""
    balance = guest("bal", 8, mark=Mark("balance"))
    alone = replace(snapshot(balance), backend=NO_BACKEND)
    assert documents.schedule(alone, balance)[0] == "balance"
    assert documents.schedule(SNAP, BIG)[::2] == ("refused", "NotPlanned")
    busy = replace(BIG, busy="it is being saved")
    assert documents.schedule(SNAP, busy)[::2] == ("refused", "Busy")
    still = replace(WEB, state="paused")
    assert documents.schedule(snapshot(still), still) == ("waiting", documents.STILL, "Still")
    bad = guest("bad", 9, mark_error="weight 'x' is not a number")
    assert documents.schedule(SNAP, bad) == ("invalid mark", "weight 'x' is not a number", "InvalidMark")
    assert documents.schedule(SNAP, OFF) == (None, None, None)


def test_unknown_is_null_everywhere() -> None:
    """A running guest without any measurement has no zero in its documents."""
    snap = snapshot(guest("new", 1), stats={})
    row = documents.stats(snap).domains[0]
    assert row.run_seconds is None and row.gang is None
    measured = ("exits", "exits_total", "pause_exits", "lhp_exits", "switches", "cpu_seconds")
    assert [getattr(v, key) for v in row.vcpus for key in measured] == [None] * 12
    assert documents.domains(snap).domains[0].pause_exits is None


def test_a_total_with_an_unknown_part_is_unknown() -> None:
    parts = DomainStats(WEB.uuid, (VcpuStats(0, pause_exits=5), VcpuStats(1)))
    snap = replace(SNAP, stats={WEB.uuid: parts})
    assert documents.domains(snap).domains[0].pause_exits is None


def test_stats_of_one_domain_and_of_a_stopped_one() -> None:
    assert [d.name for d in documents.stats(SNAP, WEB.uuid).domains] == ["web"]
    assert documents.stats(SNAP, OFF.uuid).domains[0].vcpus == []


def test_plan_of_one_domain() -> None:
    """Only what concerns the domain, and the changes with exactly their documented keys."""
    change: dict[str, str | None] = {"actuator": "a", "key": "k", "now": None, "wanted": "1", "more": "x"}
    made = documents.plan(SNAP, [change], BIG)
    assert (made.gangs, [r.name for r in made.refused]) == ([], ["big"])
    assert made.changes == [Change("a", "k", wanted="1")]


def test_topology_names_who_is_placed() -> None:
    snap = snapshot(WEB, topology=host(packages=2, cores=2))
    cpus = {c.cpu: c for c in documents.topology(snap).cpus}
    assert cpus[1].placed == [Member(WEB.uuid, "web", 1)]
    assert (cpus[7].package, cpus[7].core, cpus[7].placed) == (1, 3, [])


def test_a_gang_that_roams_has_no_placed_cpu() -> None:
    """The scheduler chooses CPUs itself: the documents say where a vCPU ran last, not where it will run."""
    roaming = replace(SNAP, backend=replace(SNAP.backend, roams=True))
    summary = documents.dominfo(roaming, WEB).domain
    assert (summary.cpus, summary.gang_domain) == (None, 0)
    vcpus = documents.vcpuinfo(roaming, WEB).vcpus
    assert [(v.placed_cpu, v.cpu) for v in vcpus] == [(None, v.index) for v in WEB.vcpus]
    gang = documents.plan(roaming, [], WEB).gangs[0]
    assert {(p.cpu, p.reason) for p in gang.placements} == {(None, documents.ROAMS)}
    assert not any(cpu.placed for cpu in documents.topology(roaming).cpus)
    pinned = guest("bal", 8, mark=Mark("balance"))
    alone = replace(snapshot(pinned), backend=roaming.backend)
    assert documents.dominfo(alone, pinned).domain.cpus == [0, 1]


def test_status_hints_at_other_kernels_only_when_needed() -> None:
    assert documents.status(SNAP).backend.hint is None
    broken = replace(SNAP, backend=Part("sched_ext", False, False, "no"))
    assert "6.16 to 7.3" in documents.status(broken).backend.hint


@given(
    st.text(),
    st.one_of(st.none(), st.floats()),
    st.one_of(st.none(), st.floats()),
    st.dictionaries(st.text(), st.integers(0)),
)
def test_anything_becomes_json(
    name: str, run: float | None, corun: float | None, exits: dict[str, int]
) -> None:
    """Strict JSON, whatever a guest is called and whatever was measured."""
    domain = guest(name, 1, vcpus=1, mark=Mark(name))
    stats = {domain.uuid: DomainStats(domain.uuid, (VcpuStats(0, exits=exits),), run, corun)}
    for document in every(snapshot(domain, stats=stats)):
        made = json.loads(text(document))
        assert made == plain(document)
        assert msgspec.convert(made, type(document)) == document


def test_no_infinity_and_no_nan() -> None:
    assert ratio(1.0, 0.0) is None
    assert ratio(math.inf, 1.0) is None
    assert ratio(1e308, 1e-308) is None


@pytest.mark.parametrize("state", [{"connected": None}, {"connected": False, "reason": "refused"}])
def test_an_empty_gangd_still_has_documents(state: dict[str, Any]) -> None:
    for document in every(snapshot(state_fields=state, plan=Plan())):
        assert plain(document)["schema"] == 1


def test_memory_is_in_bytes() -> None:
    domain = Domain("u", "n", memory_kib=2)
    assert documents.dominfo(SNAP, domain).domain.memory_bytes == 2048
