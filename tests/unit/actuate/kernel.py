# SPDX-License-Identifier: Apache-2.0
"""A host in a directory, with the kernel's rules: what a killed process did to it stays.

    state/GUEST/...     the threads' affinities, the cpusets of their cgroups, the scope's properties
    proc/TID/status     what the kernel makes of it
    sys/devices/system/cpu/smt/control      without SMT the upper half of the CPUs is offline

Every writing of a file is a step, before which the process may die. What is left by a death after it, or at
a reading, is what is left by one before the next.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_OID, uuid5

import pytest

from gangd.model.cpulist import format_cpulist, parse_cpulist
from gangd.model.domain import ThreadGroup
from lives import Steps

CPUS = 8
UNSET = 2**64 - 1
ALL = frozenset(range(CPUS))
SINGLE = ("vcpu0", "vcpu1", "iothread1")
SMT = "sys/devices/system/cpu/smt/control"

write_text = Path.write_text


class Kernel:
    """Patches Path's writing of text: each is a step."""

    def __init__(self, steps: Steps | None = None) -> None:
        self.steps = steps or Steps()

    def boot(self, patch: pytest.MonkeyPatch) -> None:
        """Catch the writes from now on."""
        patch.setattr(Path, "write_text", lambda path, text, *_a, **_k: self.write(path, text))

    def write(self, path: Path, text: str) -> int:
        self.steps.step()
        _at_once(path, text)
        if path.match(SMT):
            for guest in Host(path.parents[SMT.count("/")]).guests:
                guest.reckon()
        return len(text)


def _at_once(path: Path, text: str) -> None:
    """Replace the file as a whole: an action of the kernel is done or not done."""
    fresh = path.with_name(path.name + ".fresh")
    write_text(fresh, text)
    fresh.replace(path)


class Guest:
    """A running guest, all of it in files."""

    def __init__(self, root: Path, name: str, pid: int) -> None:
        self.label, self.pid, self.root = name, pid, root
        self.uuid = str(uuid5(NAMESPACE_OID, name))
        self.unit = f"machine-{name}.scope"
        self.state = root / "state" / name
        self.tids = {group: (pid + 1 + n,) for n, group in enumerate(SINGLE)}
        self.tids["emulator"] = (pid, pid + 8, pid + 9)

    def start(self, allowed: str, pins: Mapping[str, str], asked: Mapping[str, str]) -> None:
        """Make its files. pins: cpusets that libvirt gave groups of threads; asked: affinities by taskset."""
        self.state.mkdir(parents=True)
        files = {"AllowedCPUs": allowed, "CPUWeight": ""}
        for group in self.tids:
            files[f"cpuset-{group}"] = pins.get(group, "")
            files[f"affinity-{group}"] = asked.get(group, format_cpulist(ALL))
        for name, text in files.items():
            write_text(self.state / name, text)
        self.reckon()

    def reckon(self) -> None:
        """The kernel finds out where each thread may run: what cannot be is as if nobody had asked for it."""
        for group, tids in self.tids.items():
            room = self.room(group)
            cpus = self._cpus(f"affinity-{group}") & room or room
            for tid in tids:
                status = self.root / f"proc/{tid}/status"
                status.parent.mkdir(parents=True, exist_ok=True)
                _at_once(status, f"Cpus_allowed_list:\t{format_cpulist(cpus)}\n")

    def room(self, group: str) -> frozenset[int]:
        """The CPUs that the cgroup of some threads has."""
        online = _online(self.root)
        scope = (self._cpus("AllowedCPUs") or ALL) & online or online
        return self._cpus(f"cpuset-{group}") & scope or scope

    def ask(self, tid: int, cpus: frozenset[int]) -> None:
        """sched_setaffinity(2)."""
        group = next(group for group, tids in self.tids.items() if tid in tids)
        if not cpus & self.room(group):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        (self.state / f"affinity-{group}").write_text(format_cpulist(cpus))
        self.reckon()

    def _cpus(self, name: str) -> frozenset[int]:
        return parse_cpulist((self.state / name).read_text())


def _online(root: Path) -> frozenset[int]:
    return ALL if (root / SMT).read_text().strip() == "on" else frozenset(range(CPUS // 2))


class Host:
    """The kernel's threads, and systemd (gangd.actuate.scope.Manager), of two guests."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.guests = [Guest(root, name, 1000 * (n + 1)) for n, name in enumerate("ab")]

    def start(self) -> None:
        """Make its files. The first guest is confined to CPUs 0-3, one of its vCPUs to 2-3 by taskset; the
        other's emulator threads are pinned through libvirt."""
        files = {
            SMT: "on",
            "sys/fs/cgroup/cgroup.controllers": "cpu cpuset",
            "sys/devices/system/cpu/possible": format_cpulist(ALL),
        }
        for name, text in files.items():
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            write_text(self.root / name, text)
        self.guests[0].start("0-3", {}, {"vcpu1": "2-3"})
        self.guests[1].start("", {"emulator": "7"}, {})

    def find(self, pid: int, uuid: str) -> dict[str, ThreadGroup] | None:
        """A guest's threads, as gangd.events.threads.thread_groups tells them."""
        guest = self._guest(uuid)
        if guest.pid != pid:
            return None
        named = {"vcpu0": "vcpu/0", "vcpu1": "vcpu/1", "iothread1": "iothread/1", "emulator": "emulator"}
        return {named[group]: ThreadGroup(tids, guest.room(group)) for group, tids in guest.tids.items()}

    def ask(self, tid: int, cpus: Iterable[int]) -> None:
        """sched_setaffinity(2)."""
        guest = next(guest for guest in self.guests if guest.pid <= tid < guest.pid + 1000)
        guest.ask(tid, frozenset(cpus))

    def groups(self, pid: int, uuid: str) -> dict[str, str] | None:
        """A guest's cgroup, as gangd.events.threads.guest_cgroups tells it."""
        guest = self._guest(uuid)
        return {"": f"machine.slice/{guest.unit}"} if guest.pid == pid else None

    def picture(self) -> dict[str, str]:
        """Every file of the host."""
        files = sorted(path for path in self.root.rglob("*") if path.is_file() and path.suffix != ".fresh")
        return {
            str(path.relative_to(self.root)): " ".join(sorted(path.read_text().split())) for path in files
        }

    # ---- systemd ---------------------------------------------------------------

    def scope(self, unit: str, name: str) -> Any:
        text = (self._of(unit).state / name).read_text()
        if name == "AllowedCPUs":
            return sum(1 << cpu for cpu in parse_cpulist(text)).to_bytes(CPUS // 8, "little") if text else b""
        return int(text) if text else UNSET

    def set(self, unit: str, name: str, _signature: str, value: Any) -> None:
        guest = self._of(unit)
        if name == "CPUWeight":
            (guest.state / name).write_text("" if value == UNSET else str(value))
            return
        bits = int.from_bytes(value, "little")
        cpus = frozenset(cpu for cpu in ALL if bits >> cpu & 1)
        (guest.state / name).write_text(format_cpulist(cpus))
        guest.reckon()

    def _of(self, unit: str) -> Guest:
        return next(guest for guest in self.guests if guest.unit == unit)

    def _guest(self, uuid: str) -> Guest:
        return next(guest for guest in self.guests if guest.uuid == uuid)
