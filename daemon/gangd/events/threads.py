# SPDX-License-Identifier: Apache-2.0
"""Which host threads are a guest's vCPUs, without asking QEMU.

QMP would taint the domain ("custom-monitor"), and libvirt's API has no thread
ids. Two independent accounts exist and are compared here:

    libvirt's   the vcpuN cgroup beside the emulator's holds one thread
    QEMU's      /proc/PID/task/TID/comm is "CPU n/KVM" or "CPU n/TCG"

The first is written by libvirt as root and wins; the second is a guess of last
resort (a QEMU that was taken over may rename its threads). A vCPU on which they
disagree has no thread as far as gangd is concerned: better unscheduled than wrong.

The PID comes from libvirt's pid file, which only root can write, and counts only
if that process was started with this domain's UUID (`-uuid`). Looking through
/proc for the UUID alone would trust any local user who starts a process with
such an argument; the file alone would trust a stale number.

Every function takes the root directory, and treats a process that vanishes midway as not found (proc.py).
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import pairwise
from pathlib import Path
from xml.sax.saxutils import escape

from gangd.events import proc
from gangd.model.cpulist import parse_cpulist
from gangd.model.domain import ThreadGroup

_COMM = re.compile(r"CPU (\d{1,5})/(?:KVM|TCG)")
_VCPU = re.compile(r"vcpu(\d{1,5})")
_HELPER = re.compile(r"emulator|iothread(\d{1,5})")
_EFFECTIVE = ("cpuset.cpus.effective", "cpuset.effective_cpus")  # v2 and v1
_GROUP_SUFFIX = "/emulator"
_NESTED = "/libvirt"  # libvirt's own group within a scope of systemd
_THREADS = "cgroup.threads"


def qemu_pid(name: str, uuid: str, root: Path = Path("/")) -> int | None:
    """The QEMU process of the running domain `name`, None when it cannot be told for sure."""
    for directory in _pid_files(root):
        # One path component, whatever the name holds: libvirt refuses "/", we do not rely on it.
        if "/" in name or "\0" in name:
            return None
        pid = proc.number(proc.text(directory / f"{_escaped(name)}.pid"))
        if pid is not None and _is_guest(pid, uuid, root):
            return pid
    return None


def libvirt_pids(root: Path = Path("/")) -> set[int]:
    """The processes of this host's libvirt's guests; it writes a guest's PID before QEMU starts."""
    found = (
        f"{directory}/{name}" for directory in _pid_files(root) for name in proc.children(str(directory))
    )
    return {pid for path in found if path.endswith(".pid") and (pid := proc.number(proc.text(path)))}


def _pid_files(root: Path) -> tuple[Path, Path]:
    """The directories of libvirt's PID files, the system's and this user's."""
    return root / "run/libvirt/qemu", root / f"run/user/{os.getuid()}/libvirt/qemu/run"


def _escaped(name: str) -> str:
    """A name as libvirt makes a file's of it: as text of XML, without the characters that XML has not
    (virFileBuildPath() and virBufferEscapeString(), src/util)."""
    return escape("".join(c for c in name if c >= " " or c in "\t\n\r"), {"'": "&apos;", '"': "&quot;"})


def vcpu_threads(pid: int, root: Path = Path("/")) -> dict[int, proc.Thread]:
    """vCPU index -> thread of QEMU process `pid`; an index nobody is sure of is left out."""
    named = _by_comm(pid, root)
    grouped = _by_cgroup(pid, _guest_groups(pid, root), root)
    if grouped is None:
        chosen = {vcpu: tids[0] for vcpu, tids in named.items() if len(tids) == 1}
    else:
        chosen = {vcpu: tid for vcpu, tids in grouped.items() if (tid := _agreed(vcpu, tids, named))}
    found = {vcpu: proc.thread(pid, tid, root) for vcpu, tid in sorted(chosen.items())}
    return {vcpu: thread for vcpu, thread in found.items() if thread}


def thread_groups(pid: int, uuid: str, root: Path = Path("/")) -> dict[str, ThreadGroup] | None:
    """The threads of a guest by name ("vcpu/0", "emulator", "iothread/1"), as far as anybody is sure of them.

    None when process `pid` is not (any more) the guest `uuid`.
    """
    if not _is_guest(pid, uuid, root):
        return None
    vcpus, groups = vcpu_threads(pid, root), _guest_groups(pid, root)
    above = _above(pid, root)
    found = {
        f"vcpu/{vcpu}": ThreadGroup((thread.tid,), _room(f"vcpu{vcpu}", groups, above))
        for vcpu, thread in vcpus.items()
    }
    return found | _helper_groups(pid, vcpus, groups, above, root)


def around(
    pid: int, vcpus: Mapping[int, proc.Thread], root: Path = Path("/")
) -> tuple[dict[str, ThreadGroup], frozenset[int]]:
    """A guest's helper threads by name, and the CPUs that the cgroups around the whole guest leave it;
    empty: no limit is known."""
    groups, above = _guest_groups(pid, root), _above(pid, root)
    return _helper_groups(pid, vcpus, groups, above, root), _room("", groups, above)


def room(tid: int, root: Path = Path("/")) -> frozenset[int]:
    """The CPUs that the cgroups around a thread leave it; empty: no limit is known."""
    return _room("", (), _above(tid, root))


def pins_helpers(pid: int, root: Path = Path("/")) -> bool:
    """True if libvirt has a cpuset for the guest's helper threads, which tells their pins."""
    return any(
        proc.text(f"{base}/emulator/{file}") for base in _guest_groups(pid, root) for file in _EFFECTIVE
    )


def vcpu_room(pid: int, vcpu: int, root: Path = Path("/")) -> frozenset[int]:
    """The CPUs that the cgroup of a vCPU leaves it, libvirt's pin among them; empty: no limit is known."""
    return _room(f"vcpu{vcpu}", _guest_groups(pid, root), _above(pid, root))


def guest_cgroups(pid: int, uuid: str, root: Path = Path("/")) -> dict[str, str] | None:
    """The cgroup of a whole guest by controller ("cpu"; "" for v2), as paths from the controller's root.

    Empty where libvirt made it none; None when process `pid` is not (any more) the guest `uuid`.
    """
    if not _is_guest(pid, uuid, root):
        return None
    found = {}
    for controllers, path in _libvirt_groups(pid, root):
        for controller in controllers.split(","):
            found[controller] = path.removesuffix(_NESTED)
    return found


def marked_by_cgroup(pid: int, root: Path = Path("/")) -> bool:
    """True if the guest's cgroup, or libvirt's below it, has the extended attribute user.gang = 1."""
    groups = _guest_groups(pid, root)
    folders = (folder for group in groups for folder in (group, group.rpartition("/")[0]))
    return any(proc.mark_of(folder).strip() == b"1" for folder in folders)


def _is_guest(pid: int, uuid: str, root: Path) -> bool:
    try:
        arguments = (root / f"proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return (b"-uuid", uuid.encode()) in pairwise(arguments)


def _agreed(vcpu: int, tids: list[int], named: dict[int, list[int]]) -> int | None:
    """The one thread of a vcpuN group that no thread name contradicts, else None."""
    claims = {tid: index for index, claimed in named.items() for tid in claimed}
    if len(tids) > 1:  # helpers moved there by hand: only a name can tell
        tids = [tid for tid in tids if claims.get(tid) == vcpu]
    if len(tids) != 1 or claims.get(tids[0], vcpu) != vcpu:
        return None
    return tids[0]


def _by_comm(pid: int, root: Path) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for tid in proc.tids(pid, root):
        match = _COMM.fullmatch((proc.text(f"{root}/proc/{pid}/task/{tid}/comm") or "").removesuffix("\n"))
        if match:
            found.setdefault(int(match[1]), []).append(tid)
    return found


def _by_cgroup(pid: int, groups: Iterable[str], root: Path) -> dict[int, list[int]] | None:
    """The threads in libvirt's vcpuN groups, by vCPU; None when it made none (cgroup_controllers=[]).

    libvirt leaves the group above them empty.
    """
    for base in groups:
        found: dict[int, list[int]] = {}
        for name in proc.children(base):
            match = _VCPU.fullmatch(name)
            if match:
                found[int(match[1])] = [
                    tid for tid in _listed(f"{base}/{name}") if proc.start_time(pid, tid, root) is not None
                ]
        if any(found.values()):
            return found
    return None


def _listed(group: str) -> list[int]:
    """The threads in a cgroup."""
    text = next(filter(None, map(proc.text, (f"{group}/{_THREADS}", f"{group}/tasks"))), "")
    return [int(word) for word in text.split() if word.isdecimal()]


def _helper_groups(
    pid: int, vcpus: Mapping[int, proc.Thread], groups: Sequence[str], above: Sequence[str], root: Path
) -> dict[str, ThreadGroup]:
    tids = {thread.tid for thread in vcpus.values()}
    return {
        name: ThreadGroup(found, _room(name.replace("/", ""), groups, above))
        for name, found in _helpers(pid, tids, groups, root).items()
    }


def _helpers(pid: int, vcpus: Set[int], groups: Iterable[str], root: Path) -> dict[str, tuple[int, ...]]:
    """The emulator's threads, and I/O threads by number; without cgroups all but vCPUs are the emulator's."""
    found: dict[str, tuple[int, ...]] = {}
    for base in groups:
        for name in proc.children(base):
            match = _HELPER.fullmatch(name)
            tids = tuple(_listed(f"{base}/{name}")) if match else ()
            if match and tids:
                found.setdefault(f"iothread/{match[1]}" if match[1] else "emulator", tids)
    if not found and (every := proc.tids(pid, root)):
        found["emulator"] = tuple(tid for tid in every if tid not in vcpus)
    return found


def _room(name: str, groups: Sequence[str], above: Sequence[str]) -> frozenset[int]:
    """The CPUs that a group of the guest has, or the nearest above it that says so; empty: none does."""
    for folder in (*(f"{base}/{name}" for base in groups), *groups, *above):
        for file in _EFFECTIVE:
            with contextlib.suppress(ValueError):
                if cpus := parse_cpulist((proc.text(f"{folder}/{file}") or "").strip()):
                    return cpus
    return frozenset()


def _guest_groups(pid: int, root: Path) -> list[str]:
    """Directories that may hold the guest's vcpuN groups."""
    return [folder for group in _libvirt_groups(pid, root) for folder in proc.mounted(*group, root)]


def _above(pid: int, root: Path) -> list[str]:
    """The directories of the groups that the guest's process is in, libvirt's own or a slice, from it up to
    the root's children: the nearest with a cpuset limits it, however far up."""
    found = []
    for controllers, path in proc.groups(pid, root):
        parts = path.removesuffix(_GROUP_SUFFIX).strip("/").split("/")
        for length in range(len(parts), 0, -1):
            found += proc.mounted(controllers, "/".join(parts[:length]), root) if parts[0] else []
    return found


def _libvirt_groups(pid: int, root: Path) -> Iterator[tuple[str, str]]:
    """Controllers and path of the groups that hold the guest's vcpuN.

    The path is the kernel's own; it is never built from the domain's name. With
    v2 it ends in "/libvirt/emulator" or "/emulator", with v1 in "/emulator" for
    the controllers that libvirt splits by vCPU (cpu, cpuset, cpuacct).
    """
    for controllers, path in proc.groups(pid, root):
        if path.endswith(_GROUP_SUFFIX):
            yield controllers, path.removesuffix(_GROUP_SUFFIX).strip("/")
