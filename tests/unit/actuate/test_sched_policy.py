# SPDX-License-Identifier: Apache-2.0
"""Partial switch: a thread's policy as a setting, and who could take a CPU away from a gang."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gangd.actuate.sched_policy import SCHED_EXT, SchedPolicy, fair_tasks
from gangd.errors import GangError
from gangd.model.domain import Mode
from gangd.model.plan import GangPlan, Placement, Plan

KTHREAD, USER, FIFO = 0x00200000, 0x00400000, 1


def task(root: Path, tid: int, name: str, cpus: str, flags: int = USER, policy: int = 0) -> None:
    """A thread as /proc shows it."""
    folder = root / f"proc/{tid}/task/{tid}"
    folder.mkdir(parents=True)
    fields = ["S", "1", "1", "1", "0", "-1", str(flags), *["0"] * 31, str(policy), "0"]
    (folder / "stat").write_text(f"{tid} ({name}) {' '.join(fields)}\n")
    (folder / "status").write_text(f"Name:\t{name}\nCpus_allowed_list:\t{cpus}\n")


def test_fair_tasks_that_reach_a_gangs_cpu_are_named(tmp_path: Path) -> None:
    """Three of them, and how many more; kernel threads, real-time and SCHED_EXT threads are none."""
    task(tmp_path, 2, "kworker/0:1", "0-3", KTHREAD)
    task(tmp_path, 3, "watchdog", "0-3", policy=FIFO)
    task(tmp_path, 4, "CPU 0/KVM", "2", policy=SCHED_EXT)
    task(tmp_path, 5, "far away", "0-1")
    assert fair_tasks([2, 3], tmp_path) is None
    task(tmp_path, 6, "evil) S 1\x1b[2J", "0-3")
    reason = fair_tasks([2, 3], tmp_path)
    assert reason and "evil) S 1?[2J[6] may run on its CPUs" in reason
    for tid in (7, 8, 9):
        task(tmp_path, tid, "other", "3", policy=3)
    reason = fair_tasks([2, 3], tmp_path)
    assert reason and "and 1 more may run" in reason and "scheduler.switch" in reason


@pytest.fixture
def thread() -> Iterator[int]:
    """A thread of this process that waits."""
    end = threading.Event()
    found = threading.Thread(target=end.wait)
    found.start()
    assert found.native_id is not None
    yield found.native_id
    end.set()
    found.join()


def test_a_policy_reads_back_and_goes_back(thread: int) -> None:
    """SCHED_BATCH stands in for SCHED_EXT, which not every kernel has."""
    actuator, key = SchedPolicy(), f"uuid/{os.getpid()}/{thread}"
    assert actuator.read(key) == "other"
    actuator.write(key, "batch")
    assert actuator.read(key) == "batch" and actuator.show("batch") == "SCHED_BATCH"
    actuator.write(key, "other")
    assert actuator.read(key) == "other"


def test_a_thread_that_is_gone_reads_none() -> None:
    """Also when another process has its number by now."""
    assert SchedPolicy().read("uuid/1/999999") is None
    assert SchedPolicy().read(f"uuid/999999/{os.getpid()}") is None


def test_a_real_time_policy_is_not_ours_to_set(thread: int) -> None:
    """What was read as a number is refused in a sentence."""
    with pytest.raises(GangError, match="policy 1 is not an ordinary one"):
        SchedPolicy().write(f"uuid/{os.getpid()}/{thread}", "1")


def test_only_gangs_with_slots_are_switched() -> None:
    """balance needs no scheduler, so its threads keep their policy."""
    places = (Placement(0, 11, 0, "r"), Placement(1, 12, 1, "r"))
    plans = [GangPlan(mode, mode, 10, Mode(mode), 0, places, "why") for mode in ("balance", "relaxed")]
    wanted = SchedPolicy().wanted(Plan(gangs=tuple(plans)))
    assert {key: want.value for key, want in wanted.items()} == {
        "relaxed/10/11": "ext",
        "relaxed/10/12": "ext",
    }
