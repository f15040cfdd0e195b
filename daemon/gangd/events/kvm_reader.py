# SPDX-License-Identifier: Apache-2.0
"""Guests that no libvirt of this host has, whoever runs them: what KVM itself tells. Blocking.

    /sys/kernel/debug/kvm/PID-FD/vcpuN/pid   N: the vCPU's number for KVM; in it the host thread that ran it
                                             last, 0: none yet
    /proc/PID/task/TID/cgroup                where that thread is: the name of the guest
    user.gang                                an extended attribute of that cgroup: the mark

virt/kvm/kvm_main.c, kvm_create_vm_debugfs() and vcpu_get_pid(). KVM's numbers are APIC ids and have holes:
the index of a vCPU is its rank. Nothing is taken from a command line or from a thread's name, which a guest's
process writes as it likes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple
from uuid import UUID, uuid5

from gangd.errors import GangError, InvalidMark
from gangd.events import proc, threads
from gangd.model.domain import KVM, Domain, Helper, Mark, ThreadGroup, Vcpu
from gangd.model.mark import SIZE_MAX, parse_mark

DEBUGFS = Path("sys/kernel/debug")
NAMESPACE = UUID("8d0e53a2-54a6-5d0c-9d3c-2f1f0c0a7b14")  # of the UUIDs that runs of guests get here
VERSION = "5"  # of such UUIDs, RFC 9562, in their text
NO_DEBUGFS = "debugfs is not mounted (mount -t debugfs debugfs /sys/kernel/debug)"
NOT_RUN = "not every vCPU of it has run yet"
SHARED = "its cgroup holds other guests, too: start it in one of its own (systemd-run --scope)"
HELPERS = "emulator"  # whatever threads its process has beside its vCPUs
_MACHINE = re.compile(r"([1-9][0-9]{0,9})-([0-9]{1,9})")
_VCPU = re.compile(r"vcpu([0-9]{1,9})")

# The call returns the CPUs of a thread before gangd pinned it, by the journal's key and the CPUs of now.
Unpinned = Callable[[str, frozenset[int]], frozenset[int]]


class Machine(NamedTuple):
    """A virtual machine: a process, and its descriptor of the machine."""

    pid: int
    fd: int


class Stamp(NamedTuple):
    """The signs that a machine is another one of that number, has another vCPU, or another mark."""

    inode: int
    links: int
    mark: bytes


class Reading(NamedTuple):
    """A guest, and the stamp of its machine, of which each part was taken before the guest's."""

    guest: Domain
    stamp: Stamp


def machines(root: Path = Path("/")) -> list[Machine]:
    """All that KVM has, but for those of this host's libvirt. Raises GangError where debugfs is missing."""
    if not (root / DEBUGFS / "kvm").exists() and not proc.children(str(root / DEBUGFS)):
        raise GangError(NO_DEBUGFS)
    of_libvirt = threads.libvirt_pids(root)
    return sorted(machine for machine in _machines(root) if machine.pid not in of_libvirt)


def read_guests(
    these: Iterable[Machine], everyone: Sequence[Machine], unpinned: Unpinned, root: Path = Path("/")
) -> dict[Machine, Reading]:
    """Read `these` of `everyone`; one that ended meanwhile is left out."""
    counts = Counter(machine.pid for machine in everyone)
    read = {machine: _read(machine, counts[machine.pid], unpinned, root) for machine in these}
    return {machine: reading for machine, reading in read.items() if reading}


def stamp(machine: Machine, cgroup: str, root: Path = Path("/")) -> Stamp | None:
    """The stamp of a machine now, None when it ended; costs a tenth of a reading."""
    found = _inode(machine, root)
    return Stamp(*found, _attribute(cgroup, root)) if found else None


def named(guests: Sequence[Domain]) -> list[Domain]:
    """The guests, each with a name of its own: several in one cgroup have their PIDs in it, and no mark."""
    counts = Counter(guest.cgroup for guest in guests)
    return [guest if counts[guest.cgroup] == 1 else _numbered(guest) for guest in guests]


def thread_groups(pid: int, uuid: str, root: Path = Path("/")) -> dict[str, ThreadGroup] | None:
    """Do as threads.thread_groups() for a guest that KVM tells of; the UUID tells most others apart."""
    if uuid[14:15] != VERSION:
        return None
    found = [machine for machine in _machines(root) if machine.pid == pid]
    seen = next((seen for machine in found if (seen := _look(machine, root)) and seen.uuid == uuid), None)
    if seen is None or seen.trouble(len(found)):
        return None if seen is None else {}
    room, others = threads.room(seen.inside, root), tuple(set(proc.tids(pid, root)) - set(seen.tids))
    vcpus = {f"vcpu/{index}": ThreadGroup((tid,), room) for index, tid in enumerate(seen.tids)}
    return vcpus | {HELPERS: ThreadGroup(others, threads.room(pid, root))}


def folder_of(cgroup: str, root: Path = Path("/")) -> Path | None:
    """The directory of a cgroup (v2), None when it is gone, or the root, which holds whoever has none."""
    found = map(Path, proc.mounted("", cgroup, root) if cgroup else ())
    return next((folder for folder in found if folder.is_dir()), None)


def _folder(machine: Machine, root: Path) -> Path:
    return root / DEBUGFS / "kvm" / f"{machine.pid}-{machine.fd}"


def _inode(machine: Machine, root: Path) -> tuple[int, int] | None:
    """The number and the links of its directory's inode."""
    try:
        found = _folder(machine, root).stat()
    except OSError:
        return None
    return found.st_ino, found.st_nlink


def _machines(root: Path) -> Iterator[Machine]:
    names = map(_MACHINE.fullmatch, proc.children(f"{root}/{DEBUGFS}/kvm"))
    return (Machine(int(match[1]), int(match[2])) for match in names if match)


@dataclass(frozen=True)
class _Seen:
    """A machine as the kernel shows it. tids: of its vCPUs, in the order of KVM's numbers; 0: it has not run
    yet, or nobody tells. threads: those that its process has. groups: what /proc says of their cgroups.
    inside: one that is where the vCPUs are: its process may have its other threads elsewhere."""

    machine: Machine
    uuid: str
    tids: tuple[int, ...]
    threads: dict[int, proc.Thread]
    groups: frozenset[str]
    inside: int

    @property
    def cgroup(self) -> str | None:
        return proc.unified(min(self.groups, default=""))

    def trouble(self, count: int) -> str:
        """The reason why nobody is sure of the threads of its vCPUs, of a process with `count` machines; "":
        everybody is."""
        if count > 1:
            return "its process has several virtual machines"
        if not self.tids or 0 in self.tids:
            return NOT_RUN
        if len(set(self.tids)) != len(self.tids):
            return "one thread runs several of its vCPUs"
        if len(self.threads) != len(self.tids):
            return "another process runs some of its vCPUs"
        if len(self.groups) > 1:
            return "its vCPUs are in different cgroups"
        return "" if self.cgroup is not None else "its cgroup is none that gangd sees"


def _look(machine: Machine, root: Path) -> _Seen | None:
    """None when its process ended."""
    pid, folder = machine.pid, str(_folder(machine, root))
    started = proc.start_time(pid, pid, root)
    if started is None:
        return None
    numbers = sorted(int(match[1]) for match in map(_VCPU.fullmatch, proc.children(folder)) if match)
    tids = tuple(proc.number(proc.text(f"{folder}/vcpu{number}/pid")) or 0 for number in numbers)
    found = {index: proc.thread(pid, tid, root) for index, tid in enumerate(tids) if tid}
    inside = next(filter(None, tids), pid)
    ran = set(filter(None, tids)) or {pid}
    return _Seen(
        machine,
        _uuid(machine, started, root),
        tids,
        {index: thread for index, thread in found.items() if thread},
        frozenset(proc.text(f"{root}/proc/{tid}/cgroup") or "" for tid in ran),
        inside,
    )


def _uuid(machine: Machine, started: int, root: Path) -> str:
    """The identity of this run of a guest: nobody chooses it, and it can be told again after a restart."""
    boot = (proc.text(f"{root}/proc/sys/kernel/random/boot_id") or "").strip()
    return str(uuid5(NAMESPACE, f"{boot}/{machine.pid}/{started}/{machine.fd}"))


def _read(machine: Machine, count: int, unpinned: Unpinned, root: Path) -> Reading | None:
    """count: of the machines of its process. Returns None when that ended."""
    found, seen = _inode(machine, root), _look(machine, root)
    if seen is None or found is None:
        return None
    attribute = _attribute(seen.cgroup or "", root)
    return Reading(_guest(seen, count, attribute, unpinned, root), Stamp(*found, attribute))


def _guest(seen: _Seen, count: int, attribute: bytes, unpinned: Unpinned, root: Path) -> Domain:
    cgroup, pid = seen.cgroup or "", seen.machine.pid
    mark, error = _mark(attribute)
    guest = Domain(
        *(seen.uuid, cgroup or "/", pid, pid, "running"),
        mark=mark,
        mark_error=error,
        hidden=seen.trouble(count),
        source=KVM,
        cgroup=cgroup,
    )
    if guest.hidden:
        return guest
    allowed = threads.room(seen.inside, root)
    whole = allowed or proc.online(root)

    def pin(name: str, tid: int) -> frozenset[int]:
        found = unpinned(f"{seen.uuid}/{pid}/{name}", proc.may_run_on(tid, root))
        return frozenset() if found >= whole else found

    vcpus = (
        Vcpu(index, one.tid, one.starttime, pin(f"vcpu/{index}", one.tid), real_time=one.real_time)
        for index, one in seen.threads.items()
    )
    helpers = (Helper(HELPERS, pin(HELPERS, pid)),)
    return replace(guest, vcpus=tuple(vcpus), helpers=helpers, weight=_weight(cgroup, root), allowed=allowed)


def _numbered(guest: Domain) -> Domain:
    error = SHARED if guest.mark or guest.mark_error else None
    return replace(guest, name=f"{guest.name}#{guest.pid}", mark=None, mark_error=error)


def _mark(attribute: bytes) -> tuple[Mark | None, str | None]:
    """The mark that an attribute is, or why it is none."""
    text = attribute[: SIZE_MAX + 1].decode(errors="replace").strip()
    try:
        return Mark(None) if text == "1" else parse_mark(text) if text else None, None
    except InvalidMark as error:
        return None, error.cause


def _attribute(cgroup: str, root: Path) -> bytes:
    """The attribute of a cgroup, empty where it has none. It counts where the directory is root's: users may
    write what they like to those that are theirs."""
    folder = folder_of(cgroup, root)
    try:
        return proc.mark_of(folder) if folder and folder.stat().st_uid == 0 else b""
    except OSError:  # it is gone
        return b""


def _weight(cgroup: str, root: Path) -> int | None:
    folder = folder_of(cgroup, root)
    return proc.number(proc.text(folder / "cpu.weight")) if folder else None
