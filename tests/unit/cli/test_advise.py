# SPDX-License-Identifier: Apache-2.0
"""gangctl advise: a verdict on each running domain, its reason, and the exit status."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from fakes import FakeService, guest, local_client, snapshot
from gang_policies.adaptive import POLICY
from gangd.cli.advise import HEADERS
from gangd.cli.main import main
from gangd.control import client as control
from gangd.control import structs
from gangd.control.service import Advice
from gangd.model.domain import Domain, Mark, Vcpu
from gangd.model.evidence import Conditions, Evidence
from gangd.model.plan import Plan
from gangd.model.snapshot import Part, Snapshot
from gangd.model.state import State
from gangd.planner import REAL_TIME, make_plan
from unit.cli.conftest import EVIL

FAIR = Part("sched_ext", False, True, "", fair=True)
UNFAIR = Part("module", False, True, "")
NONE = Part("sched_ext", False, False, "this kernel has no sched_ext")
LOST = Evidence(
    seconds=30.0,
    pause_per_second=1200.0,
    lhp_per_second=900.0,
    corun_ratio=0.69,
    cpu_per_second=1.0,
    time=100.0,
    delay_per_second=0.62,
    run_per_second=0.9,
)
TOGETHER = replace(LOST, corun_ratio=1.0)
CALM = replace(LOST, delay_per_second=0.0)
IDLE = replace(LOST, cpu_per_second=0.0, delay_per_second=0.0, run_per_second=0.001)
NO_PROBES = replace(LOST, pause_per_second=None, lhp_per_second=None, corun_ratio=None)
BLIND = replace(NO_PROBES, delay_per_second=None)
SHORT = replace(LOST, seconds=1.0)


def planned(domain: Domain, seen: Snapshot, evidence: Evidence, fair: bool | None) -> Plan:
    """The plan of gangd's own planner and policy for one guest."""
    state = State(topology=seen.state.topology, connected=True, domains={domain.uuid: domain})
    return make_plan(state, {domain.uuid: evidence}, {"adaptive": POLICY}, conditions=Conditions(fair))


def service(evidence: Evidence, backend: Part, *domains: Domain, undone: bool = False) -> FakeService:
    """A gangd with these guests, all of which have the same evidence."""
    left = frozenset(d.uuid for d in domains) if undone else frozenset()
    made = FakeService(snapshot(*domains, backend=backend, undone=left))
    fair = backend.fair if backend.usable or backend.active else None
    found: dict[str, Any] = {}
    unread = set()
    for domain in domains:
        plan = planned(replace(domain, mark=Mark("adaptive")), made.now, evidence, fair)
        found[domain.uuid] = plan.gang(domain.uuid) or plan.refusal(domain.uuid)
        if evidence.seconds < 4.0:
            unread.add(domain.uuid)
    made.advice = Advice(found, {d.uuid: evidence for d in domains}, frozenset(unread))
    return made


@pytest.fixture
def talk(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Have gangctl talk to a service, and time pass while it sleeps only."""
    now = [0.0]

    def to(made: FakeService) -> FakeService:
        monkeypatch.setattr(control, "connect", lambda bus=None, timeout=0, **others: local_client(made))
        return made

    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr("time.sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    return to


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(words)
    out, err = capsys.readouterr()
    return code, out, err


WEB = guest("web", 3)
REAL = replace(WEB, vcpus=tuple(replace(vcpu, real_time=True) for vcpu in WEB.vcpus))
GONE = replace(WEB, vcpus=(Vcpu(0), Vcpu(1)))
PINNED = replace(WEB, vcpus=tuple(replace(vcpu, affinity=frozenset({77})) for vcpu in WEB.vcpus))
BUSY = replace(WEB, busy="libvirt saves it")
INVALID = replace(WEB, mark_error="weight is not a number")
RAN = "adaptive: its vCPUs ran apart for"


@pytest.mark.parametrize(
    ("domain", "evidence", "backend", "verdict", "code", "because", "status"),
    [
        (WEB, LOST, FAIR, "would gain", None, f"{RAN} 31% of the last 30 s: a gang", 3),
        (WEB, NO_PROBES, FAIR, "would gain", None, "waited for CPUs for 38% of the last 30 s: a gang", 3),
        (WEB, TOGETHER, FAIR, "would not", None, f"{RAN} 0% of the last 30 s: off", 0),
        (WEB, CALM, FAIR, "would not", None, "and waited 0% of the time that they could run: off", 0),
        (WEB, IDLE, FAIR, "would not", None, f"{RAN} 0% of the last 30 s: off", 0),
        (guest("web", 3, 1), LOST, FAIR, "would not", None, "one vCPU has no siblings", 0),
        (guest("web", 3, 1), LOST, NONE, "would not", None, "one vCPU has no siblings", 0),
        (WEB, LOST, NONE, "cannot", "NoBackend", "this kernel has no sched_ext", 0),
        (WEB, LOST, UNFAIR, "cannot", "NotSupported", "may take CPU time from its neighbours", 0),
        (REAL, LOST, FAIR, "cannot", "NotPlanned", REAL_TIME, 0),
        (GONE, LOST, FAIR, "cannot", "NotPlanned", "the threads of its vCPUs were not found", 0),
        (BUSY, LOST, FAIR, "cannot", "Busy", "busy: libvirt saves it", 0),
        (INVALID, LOST, FAIR, "cannot", "InvalidMark", "weight is not a number", 0),
        (PINNED, LOST, FAIR, "cannot", "NotPlanned", "its vCPUs are pinned by hand to CPU 77", 0),
        (WEB, BLIND, FAIR, None, None, "its run delay is not measured here: off", 0),
        (WEB, SHORT, FAIR, None, None, "not measured yet", 0),
        (WEB, Evidence(), FAIR, None, None, "not measured yet", 0),
        (guest("web", 3, mark=Mark()), LOST, replace(FAIR, active=True), "is a gang", None, "marked", 0),
        (guest("web", 3, mark=Mark()), LOST, NONE, "cannot", "NoBackend", "has no sched_ext", 0),
        (guest("web", 3, mark=Mark("off")), LOST, FAIR, "would gain", None, "31%", 0),
    ],
)
def test_a_verdict(
    talk: Any,
    capsys: pytest.CaptureFixture[str],
    domain: Domain,
    evidence: Evidence,
    backend: Part,
    verdict: str | None,
    code: str | None,
    because: str,
    status: int,
) -> None:
    """Each follows from the planner and the policy; scripts learn of a gain by the status."""
    talk(service(evidence, backend, domain))
    found, out, err = run(capsys, "--json", "advise", "web")
    assert (found, err) == (status, "")
    (row,) = json.loads(out)["domains"]
    assert (row["verdict"], row["code"]) == (verdict, code)
    assert because in row["reason"]
    msgspec.convert(json.loads(out), structs.Advise)


def test_advise_leaves_a_guest_that_an_operator_undid(talk: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """The verdict is `cannot`, with the code that dominfo has for it."""
    talk(service(LOST, FAIR, guest("web", 3, mark=Mark()), undone=True))
    (row,) = json.loads(run(capsys, "--json", "advise")[1])["domains"]
    assert (row["verdict"], row["code"]) == ("cannot", "Undone")


def test_a_guest_that_is_off_for_now(talk: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """A marked guest that its policy leaves alone says why; the document names what was chosen."""
    marked = guest("web", 3, mark=Mark("adaptive"))
    made = talk(service(TOGETHER, FAIR, marked))
    plan = planned(marked, made.now, TOGETHER, True)
    made.now = replace(made.now, plan=plan)
    (row,) = json.loads(run(capsys, "--json", "advise")[1])["domains"]
    assert (row["verdict"], row["chosen"]["policy"]) == ("would not", "adaptive")
    assert "ran apart for 0%" in row["reason"] and row["chosen"]["source"] == "mark"


def test_the_table(talk: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """The domain that loses most is first; a name is hostile text, an unknown counter has a name."""
    gang = guest("gang", 4, mark=Mark())
    one, evil, big, off = guest("one", 5, 1), guest(EVIL, 6), guest("big", 7), guest("off")
    made = talk(service(LOST, replace(FAIR, active=True), one, gang, evil, big, off))
    worse = replace(NO_PROBES, corun_ratio=0.5)
    made.advice = replace(made.advice, evidence={**made.advice.evidence, big.uuid: worse})
    code, out, err = run(capsys, "advise")
    assert (code, err) == (3, "")
    header, _, *rows = out.splitlines()
    assert re.split(" {3,}", header.strip()) == list(HEADERS)
    assert [row.split()[0] for row in rows] == ["big", "evil\\x1b[31m\\x0d\\xe2\\x80\\xae", "one", "gang"]
    assert "would gain   50.0 %    620.0 ms      -         -       adaptive" in rows[0]
    assert rows[0].endswith(": a gang; unknown: PAUSE exits, LHP exits")
    assert "would gain   31.0 %    620.0 ms      1,200.0   900.0   adaptive" in rows[1]
    assert "is a gang" in rows[3] and "co-run 69.0 %; marked with policy relaxed" in rows[3]


def test_domains_are_chosen_by_name(talk: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Each is named in either spelling, and shown once, in the order of the names. One that does not run, or
    is none, is an error."""
    talk(service(LOST, FAIR, WEB, guest("db", 4), guest("x", 5), guest("off")))
    out = run(capsys, "-q", "advise", "db", "3", "--domain", "web")[1]
    assert [line.split()[0] for line in out.splitlines()] == ["db", "web"]
    assert run(capsys, "advise", "off")[::2] == (
        1,
        "error: failed to advise on domain 'off'\nerror: domain is not running\n",
    )
    code, out, err = run(capsys, "advise", "web", "no\x1bpe")
    assert (code, out) == (1, "") and err.startswith("error: failed to advise on domain")
    assert "\x1b" not in err and "no\\x1bpe" in err


def test_no_domain_runs(talk: Any, capsys: pytest.CaptureFixture[str]) -> None:
    talk(service(LOST, FAIR, guest("off")))
    assert run(capsys, "advise") == (0, " no domain is running\n", "")
    assert run(capsys, "advise", "-q") == (0, "", "")


def test_it_waits_for_what_is_not_measured_yet(talk: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """The wait is told once, on stderr, and ends with the reading or with the time."""
    made = talk(service(Evidence(), FAIR, WEB))
    later = service(LOST, FAIR, WEB).advice
    asked = made.advise
    calls = 0

    async def advise(ref: str | None) -> Advice:
        nonlocal calls
        calls += 1
        if calls == 4:
            made.advice = later
        return await asked(ref)  # type: ignore[no-any-return]

    made.advise = advise
    code, out, err = run(capsys, "advise")
    assert (code, calls) == (3, 4) and "would gain" in out
    assert err == "gangd has not measured 1 domain yet: waiting\n"
    made.advice, calls = Advice(), 10
    code, out, err = run(capsys, "advise", "--wait", "5", "--quiet")
    assert (code, err) == (0, "") and out.endswith("not measured yet\n")
    assert calls == 10 + 1 + 5
