# SPDX-License-Identifier: Apache-2.0
"""Lives of gangd that end after a given step, each in a process of its own, against a real libvirtd.

Reads lines "ROOT UUID PID JOURNAL STEP" and answers each with the exit status of that life, -9 when it was
killed. A life lets both vCPUs of a guest run on CPUs 1 and 0, then the other way round, and undoes it.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from gangd.actuate.affinity import Affinity
from gangd.actuate.executor import Executor
from gangd.events.threads import thread_groups
from gangd.model.domain import Mode
from gangd.model.plan import GangPlan, Placement, Plan
from lives import MortalJournal, Steps, kill, serve


class Moves(Affinity):
    """May die before and after each call."""

    steps = Steps()

    def read(self, key: str) -> str | None:
        self.steps.step()
        return super().read(key)

    def write(self, key: str, value: str) -> None:
        self.steps.step()
        super().write(key, value)
        self.steps.step()


def plan(uuid: str, pid: int, *cpus: int) -> Plan:
    """The guest's vCPUs on these CPUs."""
    places = tuple(Placement(vcpu, None, cpu, "test") for vcpu, cpu in enumerate(cpus))
    return Plan(gangs=(GangPlan(uuid, "vm", pid, Mode.RELAXED, 0, places, "test"),))


def live(line: str) -> None:
    """Live one life."""
    root, uuid, pid, journal, last = line.split()
    Moves.steps = MortalJournal.steps = Steps(int(last), kill)
    executor = Executor([Moves(partial(thread_groups, root=Path(root)))], MortalJournal(Path(journal)))
    executor.reconcile(plan(uuid, int(pid), 1, 0))
    executor.reconcile(plan(uuid, int(pid), 0, 1))
    executor.undo()


if __name__ == "__main__":
    serve(live)
