# SPDX-License-Identifier: Apache-2.0
"""Judging the machine underneath the lab."""

from __future__ import annotations

import json
import subprocess
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from lab.observe import machine
from lab.observe.machine import Sample, Sampler, SharedMachine, between


def test_between_takes_the_worst_thread() -> None:
    begin, end = Sample(10, 2, {"1": 5.0, "2": 7.0}, 3.0), Sample(14, 2, {"1": 5.4, "2": 7.0, "3": 9.0}, 3.8)
    quiet = between(begin, end)
    assert quiet.wait_share == pytest.approx(0.1)
    assert quiet.steal_share == pytest.approx(0.1)  # 0.8 s of 4 s on 2 CPUs
    assert quiet.disturbed(0.05)
    assert not quiet.disturbed(0.2)


def test_nothing_to_see_is_quiet() -> None:
    assert between(Sample(0, 2, {}, 0.0), Sample(0, 2, {}, 0.0)).wait_share == 0


def test_shared_machine_waits_for_a_new_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "machine.json"
    monkeypatch.setattr(machine, "INTERVAL_SECONDS", 0)
    monkeypatch.setattr(machine, "STALE_SECONDS", 0)
    shared = SharedMachine(file)
    first = Sample(1.0, 2, {"7": 0.5}, 0.0)
    file.write_text(json.dumps(asdict(first)))
    assert shared.sample() == first
    with pytest.raises(OSError, match="cannot be judged"):
        shared.sample()


def test_shared_machine_without_a_sampler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "INTERVAL_SECONDS", 0)
    with pytest.raises(OSError, match="cannot be judged"):
        SharedMachine(tmp_path / "none").sample()


def test_the_sampler_sees_a_child_wait(tmp_path: Path) -> None:
    """Two busy threads on one CPU: the child's is one of them."""
    spin = ["setpriv", "--pdeathsig", "KILL", "taskset", "-c", "0", "sh", "-c", "while :; do :; done"]
    children = [subprocess.Popen(spin) for _ in range(2)]
    file = tmp_path / "machine.json"
    try:
        with Sampler(file, 1, name="sh"):
            shared = SharedMachine(file)
            quiet, deadline = shared.sample(), time.monotonic() + 20
            while not between(quiet, shared.sample()).wait_share and time.monotonic() < deadline:
                pass
            noise = between(quiet, shared.sample())
    finally:
        for child in children:
            child.kill()
            child.wait()
    assert 0 < noise.wait_share <= 1.05  # two clocks, read one after the other


def test_stolen_seconds(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  1 2 3 4 5 6 7 250 9 10\ncpu0 0 0 0 0 0 0 0 0 0 0\n")
    assert machine.stolen_seconds(stat) == 2.5
