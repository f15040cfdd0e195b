# SPDX-License-Identifier: Apache-2.0
"""A host in a directory, with the kernel's and libvirt's rules: what a killed process did to it stays.

    cgroup/GUEST.scope/libvirt/{,vcpu0,vcpu1,emulator,iothread1}/{cpuset.cpus,cgroup.threads}
    state/GUEST/...     libvirt's pins, the threads' affinities, the scope's properties
    sys/devices/system/cpu/smt/control      without SMT the upper half of the CPUs is offline

Every writing of a file is a step, before which the process may die. What is left by a death after it, or at
a reading, is what is left by one before the next.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_OID, uuid5

import libvirt
import pytest

from gangd.actuate.cpuset import THREADS
from gangd.actuate.journal import Journal
from gangd.model.cpulist import format_cpulist, parse_cpulist

CPUS = 8
UNSET = 2**64 - 1
ALL = frozenset(range(CPUS))
EFFECTIVE = "cpuset.cpus.effective"
SINGLE = ("vcpu0", "vcpu1", "iothread1")
SMT = "sys/devices/system/cpu/smt/control"

write_text = Path.write_text


class Died(BaseException):
    """kill -9, as seen from inside."""


def die() -> None:
    raise Died


class Steps:
    """Counts steps, and ends the process with `end` after the one it was told; last None: never."""

    def __init__(self, last: int | None = None, end: Callable[[], None] = die) -> None:
        self.last, self.end, self.done = last, end, 0

    def step(self, half: Callable[[], object] = lambda: None) -> None:
        """One step done; `half` is done first when it is the last, by a process that dies in the middle."""
        self.done += 1
        if self.last is not None and self.done > self.last:
            half()
            self.end()


class Kernel:
    """Patches Path's writing of text: steps, and what files of cgroup v2 are special for."""

    def __init__(self, steps: Steps | None = None) -> None:
        self.steps = steps or Steps()

    def boot(self, patch: pytest.MonkeyPatch) -> None:
        """Files are special from now on."""
        patch.setattr(Path, "write_text", lambda path, text, *_a, **_k: self.write(path, text))

    def write(self, path: Path, text: str) -> int:
        self.steps.step()
        if path.name == THREADS:
            self._move(path, text)
        elif path.name == "cpuset.cpus" and not text.strip() and (path.parent / THREADS).read_text().split():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        else:
            _at_once(path, text)
        if path.match(SMT):
            for guest in Host(path.parents[SMT.count("/")]).guests:
                guest.reckon()
        return len(text)

    def _move(self, path: Path, tid: str) -> None:
        """A thread is in one group of its guest."""
        below = list(path.parent.glob(f"*/{THREADS}"))
        guest = path.parent if below else path.parent.parent
        for file in (guest / THREADS, *guest.glob(f"*/{THREADS}")):
            if file != path:
                _at_once(file, " ".join(word for word in file.read_text().split() if word != tid))
        _at_once(path, " ".join(sorted({*path.read_text().split(), tid})))


def _at_once(path: Path, text: str) -> None:
    """What the kernel does is done or not done."""
    fresh = path.with_name(path.name + ".fresh")
    write_text(fresh, text)
    fresh.replace(path)


class MortalJournal(Journal):
    """A journal whose process may die before and in each line."""

    steps = Steps()

    def _append(self, line: bytes) -> None:
        self.steps.step()
        self.steps.step(lambda: self._tear(line))
        super()._append(line)

    def _tear(self, line: bytes) -> None:
        if self._sound:
            with self.path.open("ab") as file:
                file.write(line[: len(line) // 2])


class Guest:
    """A running guest as libvirt shows it (virDomain), all of it in files.

    pins: by group, what was pinned before gangd; a group without was never. allowed: AllowedCPUs=.
    """

    def __init__(self, root: Path, name: str, pid: int) -> None:
        self.label, self.pid, self.root = name, pid, root
        self.uuid = str(uuid5(NAMESPACE_OID, name))
        self.group = root / f"cgroup/machine-{name}.scope/libvirt"
        self.state = root / "state" / name

    def start(self, pins: Mapping[str, str], allowed: str) -> None:
        """Make its files."""
        self.state.mkdir(parents=True)
        self._put({THREADS: ""}, self.group)
        for number, group in enumerate((*SINGLE, "emulator")):
            (self.group / group).mkdir()
            tids = (
                f"{self.pid + 1 + number}" if group in SINGLE else f"{self.pid} {self.pid + 8} {self.pid + 9}"
            )
            self._put({"cpuset.cpus": pins.get(group, ""), THREADS: tids}, self.group / group)
            pin = pins.get(group, format_cpulist(ALL))
            self._put({f"pin-{group}": pin, f"affinity-{group}": pin}, self.state)
        self._put({"AllowedCPUs": allowed, "CPUWeight": ""}, self.state)
        self.reckon()

    def _put(self, files: Mapping[str, str], folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            write_text(folder / name, text)

    def reckon(self) -> None:
        """The kernel finds out what it may use: what systemd lets it have and is online."""
        online = _online(self.root)
        allowed = parse_cpulist((self.state / "AllowedCPUs").read_text()) or ALL
        _at_once(self.group / EFFECTIVE, format_cpulist(allowed & online or online))

    def effective(self) -> frozenset[int]:
        """The CPUs that it may use."""
        return parse_cpulist((self.group / EFFECTIVE).read_text())

    def _real(self, group: str) -> frozenset[int]:
        """Where the group's threads may run: what is impossible is as if it had not been asked for."""
        effective = self.effective()
        own = parse_cpulist((self.group / group / "cpuset.cpus").read_text()) & effective or effective
        return parse_cpulist((self.state / f"affinity-{group}").read_text()) & own or own

    # ---- virDomain -------------------------------------------------------------

    def name(self) -> str:
        return self.label

    def UUIDString(self) -> str:  # noqa: N802
        return self.uuid

    def isActive(self) -> bool:  # noqa: N802
        return True

    def vcpus(self) -> Any:
        return [(n, 1, 0, 0) for n in (0, 1)], [_flags(self._real(f"vcpu{n}")) for n in (0, 1)]

    def vcpuPinInfo(self, _affect: int) -> Any:  # noqa: N802
        return [self._pinned(f"vcpu{n}") for n in (0, 1)]

    def emulatorPinInfo(self, _affect: int) -> Any:  # noqa: N802
        return self._pinned("emulator")

    def ioThreadInfo(self, _affect: int) -> Any:  # noqa: N802
        return [(1, self._pinned("iothread1"))]

    def pinVcpuFlags(self, index: int, flags: Any, _affect: int) -> None:  # noqa: N802
        self._pin(f"vcpu{index}", flags)

    def pinEmulator(self, flags: Any, _affect: int) -> None:  # noqa: N802
        self._pin("emulator", flags)

    def pinIOThread(self, number: int, flags: Any, _affect: int) -> None:  # noqa: N802
        self._pin(f"iothread{number}", flags)

    def _pin(self, group: str, flags: Any) -> None:
        """As qemuDomainPinVcpuLive: the cpuset, the affinity, and only then its own record."""
        cpus = frozenset(cpu for cpu, on in enumerate(flags) if on)
        text = format_cpulist(cpus)
        (self.group / group / "cpuset.cpus").write_text(text)
        if not cpus & self.effective():
            raise libvirt.libvirtError("cannot set CPU affinity: Invalid argument")
        (self.state / f"affinity-{group}").write_text(text)
        (self.state / f"pin-{group}").write_text(text)

    def _pinned(self, group: str) -> tuple[bool, ...]:
        return _flags(parse_cpulist((self.state / f"pin-{group}").read_text()))


def _online(root: Path) -> frozenset[int]:
    return ALL if (root / SMT).read_text().strip() == "on" else frozenset(range(CPUS // 2))


def _flags(cpus: frozenset[int]) -> tuple[bool, ...]:
    return tuple(cpu in cpus for cpu in range(CPUS))


class Host:
    """virConnect, and systemd (gangd.actuate.scope.Manager), of two guests."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.guests = [Guest(root, name, 1000 * (n + 1)) for n, name in enumerate("ab")]

    def start(self) -> None:
        """Make its files. The first guest is confined to CPUs 0-3 and has a pin by hand."""
        for name, text in {SMT: "on", "sys/fs/cgroup/cgroup.controllers": "cpu cpuset"}.items():
            (self.root / name).parent.mkdir(parents=True)
            write_text(self.root / name, text)
        self.guests[0].start({"vcpu1": "2-3"}, "0-3")
        self.guests[1].start({"emulator": "7"}, "")

    def cpuset(self, _name: str, uuid: str, group: str) -> Path:
        """Finds a group's file, as gangd.events.threads.thread_cpuset does."""
        return self._guest(uuid).group / group / "cpuset.cpus"

    def groups(self, pid: int, uuid: str) -> dict[str, str] | None:
        """A guest's cgroup, as gangd.events.threads.guest_cgroups tells it."""
        guest = self._guest(uuid)
        return {"": f"machine.slice/{guest.group.parent.name}"} if guest.pid == pid else None

    def picture(self) -> dict[str, str]:
        """Every file of the host."""
        files = sorted(path for path in self.root.rglob("*") if path.is_file() and path.suffix != ".fresh")
        return {
            str(path.relative_to(self.root)): " ".join(sorted(path.read_text().split())) for path in files
        }

    # ---- virConnect ------------------------------------------------------------

    def getType(self) -> str:  # noqa: N802
        return "QEMU"

    def getCPUMap(self) -> Any:  # noqa: N802
        online = _online(self.root)
        return CPUS, list(_flags(online)), len(online)

    def lookupByUUIDString(self, uuid: str) -> Guest:  # noqa: N802
        return self._guest(uuid)

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
        return next(guest for guest in self.guests if guest.group.parent.name == unit)

    def _guest(self, uuid: str) -> Guest:
        return next(guest for guest in self.guests if guest.uuid == uuid)


def threads_at_home(host: Host) -> Iterator[str]:
    """Groups that should be empty and are not, or the other way round."""
    for guest in host.guests:
        if (guest.group / THREADS).read_text().split():
            yield f"{guest.label}: strays"
        yield from (
            f"{guest.label}: {one}" for one in SINGLE if not (guest.group / one / THREADS).read_text()
        )
