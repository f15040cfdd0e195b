# SPDX-License-Identifier: Apache-2.0
"""Guests without libvirt: real machines of KVM, the kernel's own debugfs, uevents, cgroups and attributes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from gang_policies.balance import POLICY as BALANCE
from gangd.actuate.affinity import Affinity
from gangd.actuate.executor import Executor, next_step
from gangd.actuate.journal import Journal
from gangd.events import proc
from gangd.events.kvm import KvmSource
from gangd.events.kvm_reader import thread_groups
from gangd.model.domain import Domain, Mark
from gangd.model.event import Event, Resynced
from gangd.model.state import State, reduce
from gangd.planner import make_plan

CGROUP = next(
    (
        path
        for path in map(Path, ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"))
        if (path / "cgroup.procs").exists()
    ),
    None,
)


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """The machine's own /proc and cgroups, no libvirt, and a debugfs that is mounted for the test alone."""
    if not os.access("/dev/kvm", os.W_OK) or os.geteuid() or CGROUP is None:
        pytest.skip("no /dev/kvm, no cgroup v2, or not root")
    debugfs = tmp_path / "sys/kernel/debug"
    debugfs.mkdir(parents=True)
    (tmp_path / "proc").symlink_to("/proc")
    (tmp_path / "sys/fs").symlink_to("/sys/fs")
    (tmp_path / "sys/devices").symlink_to("/sys/devices")
    if subprocess.run(
        ["mount", "-t", "debugfs", "debugfs", debugfs], check=False, capture_output=True
    ).returncode:
        pytest.skip("debugfs cannot be mounted here")
    yield tmp_path
    subprocess.run(["umount", debugfs], check=True)


class Machines:
    """Processes with machines, each in a cgroup of its own below `top`."""

    def __init__(self, top: Path) -> None:
        self.top, self.processes = top, list[subprocess.Popen[str]]()

    def start(self, *numbers: int, name: str = "", count: int = 1) -> int:
        """Returns the PID once every vCPU has run."""
        folder = self.top / name
        folder.mkdir(exist_ok=True)
        words = [sys.executable, str(Path(__file__).with_name("machine.py")), str(count), *map(str, numbers)]
        process = subprocess.Popen(
            words,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            preexec_fn=lambda: (folder / "cgroup.procs").write_text("0"),
        )
        self.processes.append(process)
        assert process.stdout and process.stdout.readline() == "ready\n"
        return process.pid

    def end(self) -> None:
        for process in self.processes:
            process.send_signal(signal.SIGKILL)
            process.communicate()
        for folder in (*self.top.glob("*/"), self.top):
            with contextlib.suppress(OSError):
                folder.rmdir()


@pytest.fixture
def machines(root: Path) -> Iterator[Machines]:
    """A slice like Proxmox's for the machines of a test."""
    assert CGROUP
    top = CGROUP / f"gangd-test-{os.getpid()}.slice"
    top.mkdir()
    found = Machines(top)
    yield found
    found.end()


class Bench:
    """A source that is alone on this host, and the state that its events make."""

    def __init__(self, root: Path, journal: Journal | None = None) -> None:
        self.root, self.state, self.events = root, State(), list[Event]()
        self.source = KvmSource(root, 60.0, self._unpinned, alone=True)
        self.journal = journal or Journal(root / "journal")

    def _unpinned(self, key: str, now: frozenset[int]) -> frozenset[int]:
        return frozenset() if ("affinity", key) in self.journal.entries else now

    def run(self, test: Callable[[], Coroutine[Any, Any, None]]) -> None:
        def hear(event: Event) -> None:
            self.events.append(event)
            self.state = reduce(self.state, event)

        async def scenario() -> None:
            task = asyncio.create_task(self.source.run(hear))
            try:
                await self.until(lambda: any(isinstance(event, Resynced) for event in self.events))
                await asyncio.wait_for(test(), 60)
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

        asyncio.run(scenario())

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not holds():
                await asyncio.sleep(0.01)

    def guest(self, pid: int) -> Domain | None:
        return next((one for one in self.state.domains.values() if one.pid == pid), None)

    def executor(self) -> Executor:
        def find(pid: int, uuid: str) -> Any:
            return thread_groups(pid, uuid, self.root)

        return Executor([Affinity(find)], self.journal)


def test_a_machine_is_seen_by_its_event(root: Path, machines: Machines) -> None:
    """KVM's numbers have holes; the threads are those that ran the vCPUs, whatever they are called."""
    bench = Bench(root)

    async def test() -> None:
        pid = await asyncio.to_thread(machines.start, 0, 1, 4, name="100.scope")
        await bench.until(lambda: bool((found := bench.guest(pid)) and not found.hidden))
        guest = bench.guest(pid)
        assert guest and (guest.name, len(guest.vcpus)) == (f"{machines.top.name}/100.scope", 3)
        assert {vcpu.tid for vcpu in guest.vcpus} <= set(proc.tids(pid, Path("/"))) - {pid}
        machines.processes[0].kill()
        await bench.until(lambda: bench.guest(pid) is None)

    bench.run(test)


def test_machines_that_are_no_gangs(root: Path, machines: Machines) -> None:
    """Two in one process; two processes in one cgroup, which are told apart by PID."""
    two = machines.start(0, 1, count=2, name="two")
    pids = [machines.start(0, 1, name="shared") for _ in range(2)]
    bench = Bench(root)

    async def test() -> None:
        guests = [one for one in bench.state.domains.values() if one.pid == two]
        assert [guest.hidden for guest in guests] == ["its process has several virtual machines"] * 2
        for pid in pids:
            guest = bench.guest(pid)
            assert guest and guest.name == f"{machines.top.name}/shared#{pid}"

    bench.run(test)


def test_mark_pin_die_and_undo(root: Path, machines: Machines) -> None:
    """`balance` pins a marked guest by the journal; its pins are not taken for an operator's, and the next
    gangd, which has the journal alone, puts back what was there."""
    online = os.sched_getaffinity(0)
    if len(online) < 2:
        pytest.skip("one CPU")
    pid, other = machines.start(0, 1, name="a.scope"), machines.start(0, 1, name="b.scope")
    bench = Bench(root)

    async def test() -> None:
        guest = await bench.source.set_mark(bench.guest(pid).uuid, Mark("balance"))  # type: ignore[union-attr]
        assert guest.mark == Mark("balance")
        plan = make_plan(bench.state, {}, {"balance": BALANCE})
        assert [gang.uuid for gang in plan.gangs] == [guest.uuid]
        for _ in range(2):
            report = _end(bench.executor().reconciling(plan, None))
            assert not report.failures
            await bench.source.resync()
            plan = make_plan(bench.state, {}, {"balance": BALANCE})
        pinned = [os.sched_getaffinity(vcpu.tid or 0) for vcpu in guest.vcpus]
        assert sorted(map(len, pinned)) == [1, 1] and pinned[0] != pinned[1]
        assert [vcpu.affinity for vcpu in bench.guest(pid).vcpus] == [frozenset()] * 2  # type: ignore[union-attr]
        again = Bench(root, Journal(root / "journal"))
        assert _end(again.executor().undoing(None)).undone == 2
        assert [os.sched_getaffinity(vcpu.tid or 0) for vcpu in guest.vcpus] == [online] * 2
        assert (await bench.source.set_mark(guest.uuid, None)).mark is None
        with pytest.raises(OSError):
            os.getxattr(machines.top / "a.scope", "user.gang")
        assert bench.guest(other)

    bench.run(test)


def _end(steps: Any) -> Any:
    while (report := next_step(steps)) is None:
        pass
    return report
