# SPDX-License-Identifier: Apache-2.0
"""A session from its first phase to its last, on a host that is made up."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("libvirt")

from bench.demo import phases, report
from bench.demo.phases import PHASES, Run, Session
from bench.demo.settings import Settings
from lab.guests.domains import Guest, GuestDied
from lab.observe.metrics import Scrape
from lab.observe.service import Call, Cost, Daemon
from lab.observe.timeline import Stretch

STATUS = {
    "backend": {"name": "sched_ext", "active": True, "reason": None},
    "probes": {"active": True, "reason": None},
    "own": {"pid": 77},
    "failures": [],
}


class Host:
    """The host as gangctl changes it. A second passes with every look at the clock."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.now = 0.0
        self.policies: dict[str, str] = {}
        self.commands: list[tuple[str, ...]] = []
        self.dies_with: tuple[str, ...] | None = None
        self.leftover = False
        self.state.write_text("disabled\n")

    @property
    def phase(self) -> str:
        policies = set(self.policies.values())
        return "pinned" if "balance" in policies else "gang" if policies else "default"

    def gangctl(self, *words: str) -> Call:
        """Run a command."""
        self.commands.append(words)
        if words[0] in ("mark", "set"):
            self.policies[words[1]] = words[3]
        elif words[0] == "unmark":
            del self.policies[words[1]]
        self.state.write_text("enabled\n" if self.phase == "gang" else "disabled\n")
        return Call(words, 1.5, 0.5, json.dumps(STATUS) if words[0] == "--json" else "done")

    def gangctls(self, commands: Sequence[Sequence[str]]) -> list[Call]:
        """Several."""
        return [self.gangctl(*words) for words in commands]

    def account(self, _: object) -> dict[str, str]:
        """The host's settings."""
        return {"policies": str(self.policies), "other": str(self.leftover and bool(self.commands))}


class FakeGuest(Guest):
    """A guest that counts more under a gang."""

    def __init__(self, host: Host, name: str, number: int) -> None:
        self.name, self.uuid, self.pid = name, f"uuid-{name}", number
        self._host = host

    def threads(self) -> dict[int, int]:
        return {0: self.pid * 10, 1: self.pid * 10 + 1}

    def reading(self) -> tuple[float, int]:
        rate = {"default": 100, "pinned": 200, "gang": 500}[self._host.phase]
        self._host.now += 1
        return self._host.now, int(self._host.now * rate)

    def check(self) -> None:
        if self._host.dies_with in self._host.commands:
            raise GuestDied(f"{self.name} is in state 5 instead of running")


class FakeDaemon(Daemon):
    """A daemon whose counters say that a gang always runs together, and others half of the time."""

    def __init__(self, host: Host) -> None:
        super().__init__("nowhere")
        self._host = host

    def watch(self, seconds: float) -> None:
        self._host.now += seconds

    def scrape(self) -> Scrape:
        now = self._host.now
        share = 1.0 if self._host.phase == "gang" else 0.5
        lines = [
            f'{metric}{{domain="{name}"}} {value}'
            for name in ("a", "b", "c")
            for metric, value in (
                ("gangd_domain_run_seconds_total", 100 + now),
                ("gangd_domain_corun_seconds_total", 100 + now * share),
            )
        ]
        return Scrape(now, "\n".join(lines))


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    found = Host(tmp_path / "state")

    def affinity(tid: int) -> set[int]:
        return {tid % 2} if found.phase == "pinned" else {0, 1}

    def record(threads: Mapping[int, tuple[int, int]], seconds: float) -> list[Stretch]:
        return [Stretch(0, 0, round(seconds * 1e6), *place) for place in threads.values()]

    for name in ("gangctl", "gangctls"):
        monkeypatch.setattr(phases, name, getattr(found, name))
    monkeypatch.setattr(phases.hostaccount, "account", found.account)
    monkeypatch.setattr(phases.hostaccount, "SCHED_EXT", tmp_path)
    monkeypatch.setattr(phases.timeline, "record", record)
    monkeypatch.setattr(phases.os, "sched_getaffinity", affinity)
    monkeypatch.setattr(phases.time, "sleep", lambda seconds: None)
    return found


def measured(host: Host, quick: bool = False) -> Run:
    loads = {"a": "barrier", "b": "linux", "c": "linux"}
    guests: dict[Guest, str] = {
        FakeGuest(host, name, n): load for n, (name, load) in enumerate(loads.items())
    }
    run = Run({"barrier": 1, "linux": 2}, True)
    Session(guests, run, FakeDaemon(host), None, Settings(), lambda sentence: None, quick).run()
    return run


def verdict(run: Run) -> dict[str, Any]:
    settings = {"repeats": 2, "seconds": 4.0, "virtual": True, "help_lab": []}
    return report.document([run], Cost(8.0, 0.001, 1 << 20), 0.0, None, None, {"settings": settings})


def test_four_phases(host: Host) -> None:
    run = measured(host)
    assert tuple(run.phases) == PHASES
    assert all(phase.measured and len(phase.repeats) == Settings().repeats for phase in run.phases.values())
    assert run.phases["pinned"].cpus == {name: [[0], [1]] for name in "abc"}
    assert run.phases["gang"].cpus == run.phases["after"].cpus == {name: [[0, 1], [0, 1]] for name in "abc"}
    assert len(run.phases["gang"].timeline) == 6
    assert run.differences == [] and run.differing == 1
    result = verdict(run)
    assert result["exit_status"] == 0
    assert {c["verdict"] for c in result["summary"]} == {"ok"}
    # Twice as much by the pins alone, and two and a half times that as gangs; of both loads.
    found = [c["reached"] for c in result["summary"] if "throughput" in c["name"]]
    assert [float(text[:-1]) for text in found] == pytest.approx([5.0, 2.5, 5.0, 2.5], rel=0.01)


def test_gangctl_is_called_once_for_all_to_see(host: Host) -> None:
    run = measured(host)
    commands = [call.words[0] for call in run.calls]
    assert commands == ["mark"] * 3 + ["set"] * 3 + ["unmark"] * 3
    assert len(run.statuses) == 2


def test_a_guest_that_dies_as_a_gang(host: Host) -> None:
    host.dies_with = ("set", "b", "--policy", "adaptive")
    run = measured(host)
    assert run.lost is not None and run.lost.phase == "gang"
    assert "after" not in run.phases
    assert verdict(run)["exit_status"] == 1


def test_the_demo_finds_a_setting_that_is_not_restored(host: Host) -> None:
    host.leftover = True
    run = measured(host, quick=True)
    assert [d.setting for d in run.differences or []] == ["other"]
    assert verdict(run)["exit_status"] == 1


def test_a_scheduler_that_does_not_come(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phases, "STATE_SECONDS", 0)
    host.state = host.state.with_name("another")
    with pytest.raises(OSError, match="sched_ext is disabled instead of enabled"):
        measured(host)
