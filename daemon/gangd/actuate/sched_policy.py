# SPDX-License-Identifier: Apache-2.0
"""Partial switch: vCPU threads of gangs get the policy SCHED_EXT, everything else stays as it is.

    UUID/PID/TID    "ext"

Only such threads are then the gang scheduler's. The fair class outranks them, so one
ordinary busy task takes a CPU out of every slot: `fair_tasks` names those that could,
and with any the partial switch is refused. A thread that is left with SCHED_EXT and no
scheduler is scheduled by the fair class (Documentation/scheduler/sched-ext.rst).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from gangd.actuate.base import Wanted
from gangd.errors import GangError
from gangd.model.cpulist import parse_cpulist
from gangd.model.plan import Plan

SCHED_EXT = 7  # include/uapi/linux/sched.h
WORDS = {os.SCHED_OTHER: "other", os.SCHED_BATCH: "batch", os.SCHED_IDLE: "idle", SCHED_EXT: "ext"}
NUMBERS = {word: number for number, word in WORDS.items()}
FAIR = {os.SCHED_OTHER, os.SCHED_BATCH, os.SCHED_IDLE}
PF_KTHREAD = 0x00200000
FLAGS, POLICY = 6, 38  # fields of /proc/PID/stat after the name (proc_pid_stat(5), from 0)
NAMED = 3  # tasks in a sentence


class SchedPolicy:
    """The actuator. `root` is where proc is; a test may have its own."""

    name = "policy"

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root

    def probe(self) -> str | None:
        """Any kernel can set policies; whether it has this one shows when the scheduler is loaded."""
        return None

    def wanted(self, plan: Plan) -> dict[str, Wanted]:
        """SCHED_EXT for every vCPU thread of a gang with slots. Pure."""
        return {
            f"{gang.uuid}/{gang.pid}/{place.tid}": Wanted("ext", gang.reason)
            for gang in plan.gangs
            if gang.mode.has_slots
            for place in gang.placements
        }

    def read(self, key: str) -> str | None:
        """The thread's policy as a word; a number for those that are not ordinary; None when it is gone."""
        _, pid, tid = key.split("/")
        if not (self._root / f"proc/{pid}/task/{tid}").exists():
            return None
        try:
            policy = os.sched_getscheduler(int(tid))
        except ProcessLookupError:
            return None
        return WORDS.get(policy, str(policy))

    def write(self, key: str, value: str) -> None:
        """Give the thread that policy. Raises GangError, also for a real-time policy: not ours to set."""
        action = f"failed to set the scheduling policy of {self.describe(key)}"
        if value not in NUMBERS:
            raise GangError(f"policy {value} is not an ordinary one", action)
        try:
            os.sched_setscheduler(int(key.rpartition("/")[2]), NUMBERS[value], os.sched_param(0))
        except OSError as error:
            raise GangError(f"{error.strerror}", action) from error

    def describe(self, key: str) -> str:
        """The thread in words."""
        uuid, _, tid = key.split("/")
        return f"vCPU thread {tid} of {uuid}"

    def changed(self, key: str, value: str) -> str:
        """Somebody else set it."""
        return f"the policy of {self.describe(key)} was changed by hand to {value}: left alone"

    def show(self, value: str) -> str:
        """As chrt(1) names it."""
        return f"SCHED_{value.upper()}" if value in NUMBERS else f"policy {value}"


def fair_tasks(cpus: Iterable[int], root: Path = Path("/")) -> str | None:
    """One sentence naming fair tasks of user space that may run on `cpus`, None when there are none."""
    wanted = set(cpus)
    found = [name for name, allowed in _threads(root) if wanted & allowed]
    if not found:
        return None
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return (
        f"the fair class outranks a partially switched gang, and {', '.join(found[:NAMED])}{more} may run on "
        "its CPUs: keep them off with cpusets (AllowedCPUs=), or set scheduler.switch to full"
    )


def _threads(root: Path) -> Iterator[tuple[str, set[int]]]:
    """Name and allowed CPUs of every fair thread of user space; those that end meanwhile are left out."""
    for task in root.glob("proc/[0-9]*/task/[0-9]*"):
        try:
            head, _, tail = (task / "stat").read_text(errors="replace").rpartition(") ")
            status = (task / "status").read_text(errors="replace")
        except OSError:
            continue
        fields = tail.split()
        if int(fields[FLAGS]) & PF_KTHREAD or int(fields[POLICY]) not in FAIR:
            continue
        allowed = next(line for line in status.splitlines() if line.startswith("Cpus_allowed_list:"))
        name = "".join(c if c.isprintable() else "?" for c in head.partition("(")[2])
        yield f"{name}[{task.name}]", set(parse_cpulist(allowed.partition(":")[2].strip()))
