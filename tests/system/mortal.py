# SPDX-License-Identifier: Apache-2.0
"""Lives of gangd that end after a given step, each in a process of its own, against a real libvirtd.

Reads lines "ROOT UUID PID JOURNAL STEP" and answers each with the exit status of that life, -9 when it was
killed. A life lets both vCPUs of a guest run on CPUs 1 and 0, then the other way round, and undoes it.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from functools import partial
from pathlib import Path

from gangd.actuate.affinity import Affinity
from gangd.actuate.executor import Executor
from gangd.actuate.journal import Journal
from gangd.events.threads import thread_groups
from gangd.model.domain import Mode
from gangd.model.plan import GangPlan, Placement, Plan


class Steps:
    """Ends the process after `left` steps."""

    def __init__(self, left: int) -> None:
        self.left = left

    def step(self) -> None:
        self.left -= 1
        if self.left < 0:
            os.kill(os.getpid(), signal.SIGKILL)


class Moves(Affinity):
    """May die before and after each call."""

    steps = Steps(0)

    def read(self, key: str) -> str | None:
        self.steps.step()
        return super().read(key)

    def write(self, key: str, value: str) -> None:
        self.steps.step()
        super().write(key, value)
        self.steps.step()


class Line(Journal):
    """May die before and after each write."""

    steps = Steps(0)

    def _append(self, lines: list[bytes]) -> None:
        self.steps.step()
        super()._append(lines)
        self.steps.step()


def plan(uuid: str, pid: int, *cpus: int) -> Plan:
    """The guest's vCPUs on these CPUs."""
    places = tuple(Placement(vcpu, None, cpu, "test") for vcpu, cpu in enumerate(cpus))
    return Plan(gangs=(GangPlan(uuid, "vm", pid, Mode.RELAXED, 0, places, "test"),))


def live(root: str, uuid: str, pid: int, journal: str, last: int) -> None:
    """One life."""
    Moves.steps = Line.steps = Steps(last)
    executor = Executor([Moves(partial(thread_groups, root=Path(root)))], Line(Path(journal)))
    executor.reconcile(plan(uuid, pid, 1, 0))
    executor.reconcile(plan(uuid, pid, 0, 1))
    executor.undo()


def main() -> None:
    """One line, one life."""
    for line in sys.stdin:
        root, uuid, pid, journal, last = line.split()
        child = os.fork()
        if child == 0:
            try:
                live(root, uuid, int(pid), journal, int(last))
                os._exit(0)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
