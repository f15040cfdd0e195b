# SPDX-License-Identifier: Apache-2.0
"""Set where a guest's threads may run, by sched_setaffinity(2); libvirt is neither asked nor told.

    UUID/PID/vcpu/N         one thread
    UUID/PID/iothread/N     likewise
    UUID/PID/emulator       all others, the vhost threads among them

A pin that libvirt makes is in the guest's live definition: it would travel with a migration, a save or a
snapshot, and would look like an operator's. An affinity ends with its thread.

A value is a kernel CPU list ("3", "0-1"), or "all": wherever the cgroup of the threads lets them run, on CPUs
that come back later, too (the kernel remembers what was asked for, and that was every CPU there can be).
`virsh vcpupin` and its like set the cpuset of that cgroup, which the kernel keeps to, whatever is asked here.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from pathlib import Path

from gangd.actuate.base import Actuator, PerGang, Wanted
from gangd.errors import GangError, InvalidArgument, NotRunning
from gangd.model.cpulist import allowed_in, format_cpulist, parse_cpulist
from gangd.model.domain import ThreadGroup
from gangd.model.plan import GangPlan, Plan

ALL = "all"
CPU = Path("sys/devices/system/cpu")
ROUNDS = 5  # looks for threads that a guest clones while its threads are moved
PF_NO_SETAFFINITY = 0x04000000  # include/linux/sched.h

# A guest's threads by name ("vcpu/0", "emulator", "iothread/1"); None when the process is not the guest.
Find = Callable[[int, str], Mapping[str, ThreadGroup] | None]


class Affinity(Actuator):
    """find: tells a guest's threads. roams: True of a gang whose scheduler chooses its members' CPUs. write:
    sched_setaffinity(2)."""

    name = "affinity"
    masks = True

    def __init__(
        self,
        find: Find,
        root: Path = Path("/"),
        roams: Callable[[GangPlan], bool] = lambda gang: False,
        write: Callable[[int, Iterable[int]], None] = os.sched_setaffinity,
    ) -> None:
        self._find, self._root, self._roams, self._set = find, root, roams, write
        self._names: dict[str, str] = {}  # by UUID, as of the last plan with a gang
        self._settings = PerGang(_settings)
        self._passing = False
        self._known: dict[tuple[int, str], Mapping[str, ThreadGroup] | None] = {}  # in a pass

    def probe(self) -> str | None:
        """None: every Linux can."""
        return None

    def wanted(self, plan: Plan) -> dict[str, Wanted]:
        """Return a setting for each vCPU and helper of the plan that has a place."""
        self._names = {gang.uuid: gang.name for gang in plan.gangs} or self._names
        placed = (gang for gang in plan.scheduled if gang.pid is not None and not self._roams(gang))
        return {key: want for settings in self._settings.of(placed) for key, want in settings.items()}

    @contextlib.contextmanager
    def passing(self) -> Iterator[None]:
        """Look for a guest's threads once until the context ends, and at every call from then on."""
        self._passing = True
        try:
            yield
        finally:
            self._passing, self._known = False, {}

    def read(self, key: str) -> str | None:
        """The CPUs they may run on now; None when they are gone."""
        return self.read_but(key, frozenset())

    def read_but(self, key: str, kept: Set[str]) -> str | None:
        """The CPUs of those that read as none of `kept`."""
        group = self._group(key)
        found = [cpus for cpus, value in self._allowed(group) if value not in kept] if group else []
        return self._text(frozenset[int]().union(*found), group) if group and found else None

    def values(self, key: str) -> frozenset[str]:
        """The CPUs that each of them may run on now."""
        group = self._group(key)
        return frozenset(value for _, value in self._allowed(group)) if group else frozenset()

    def shows(self, key: str, value: str) -> str | None:
        """A thread runs on those of the CPUs asked for that its cgroup has and that are online, and anywhere
        when all of them went."""
        group = self._group(key)
        if not group:
            return None
        room = self._room(group)
        cpus = room if value == ALL else parse_cpulist(value) & room
        return ALL if cpus == room else format_cpulist(cpus)

    def write(self, key: str, value: str) -> None:
        """Let the threads run on these CPUs.

        Raises NotRunning when they are gone, InvalidArgument for a value that is no CPU list, GangError when
        their cgroup has none of these CPUs.
        """
        self.write_but(key, value, frozenset())

    def write_but(self, key: str, value: str, kept: Set[str]) -> None:
        """Let those run on these CPUs that read as none of `kept`."""
        action = f"cannot let {self.describe(key)} run on CPU {value}"
        try:
            cpus = self._possible() if value == ALL else parse_cpulist(value)
        except ValueError:
            raise InvalidArgument(f"'{value}' is not a list of CPUs", action)
        group = self._group(key)
        if not group:
            raise NotRunning("the guest is not running", action)
        if not self._move_all(key, group, cpus, kept):
            room = format_cpulist(self._room(group))
            raise GangError(f"its cgroup and the host allow only CPUs {room}", action)

    def describe(self, key: str) -> str:
        """The threads as a noun."""
        uuid, _, kind, number = _split(key)
        words = {"vcpu": f"vCPU {number}", "iothread": f"I/O thread {number}"}
        return f"{words.get(kind, 'the emulator threads')} of '{self._names.get(uuid, uuid)}'"

    def changed(self, key: str, value: str) -> str:
        """Return the sentence about a value that another program set since gangd did."""
        verb = "were" if key.endswith("/emulator") else "was"
        return f"{self.describe(key)} {verb} pinned by hand to {value}"

    def differ(self, key: str) -> str | None:
        """Return the sentence about threads with different affinities that another program set."""
        if len(self.values(key)) < 2:
            return None
        threads = self.describe(key) if key.endswith("/emulator") else f"the threads of {self.describe(key)}"
        return f"{threads} are pinned differently by hand"

    def show(self, value: str) -> str:
        """A CPU list is readable as it is."""
        return "any CPU" if value == ALL else f"CPU {value}"

    def _group(self, key: str) -> ThreadGroup | None:
        uuid, pid, kind, number = _split(key)
        if (pid, uuid) not in self._known:
            found = self._find(pid, uuid)
            if not self._passing:
                return (found or {}).get(_name(kind, number))
            self._known[pid, uuid] = found
        return (self._known[pid, uuid] or {}).get(_name(kind, number))

    def _group_anew(self, key: str) -> ThreadGroup | None:
        """The threads as they are now, whatever the pass remembers."""
        uuid, pid, _, _ = _split(key)
        self._known.pop((pid, uuid), None)
        return self._group(key)

    def _move_all(self, key: str, group: ThreadGroup, cpus: Iterable[int], kept: Set[str]) -> bool:
        """Move these threads, and any that QEMU clones from one before that is moved; False when the kernel
        refuses one."""
        seen: set[int] = set()
        refused: list[int] = []
        for _ in range(ROUNDS):
            new = [tid for tid in self._movable(group, kept) if tid not in seen]
            refused += [tid for tid in new if not self._move(tid, cpus)]
            seen.update(new)
            if not new or "/vcpu/" in key:
                break
            group = self._group_anew(key) or group
        return not refused

    def _move(self, tid: int, cpus: Iterable[int]) -> bool:
        """Let a thread run on these CPUs; False when the kernel refuses that."""
        try:
            self._set(tid, cpus)
        except ProcessLookupError:
            pass  # a helper ended; a vCPU's end is seen when it is read back
        except (OSError, ValueError):
            return False
        return True

    def _movable(self, group: ThreadGroup, kept: Set[str] = frozenset()) -> list[int]:
        """The threads that the kernel lets anybody move: a worker of io_uring stays where it is.
        Those that read as one of `kept` are left out."""
        tids = list(group.tids)
        if len(tids) > 1:  # alone it is a guest's own: that worker has its maker beside it
            tids = [tid for tid in tids if not _flags_of(self._root, tid) & PF_NO_SETAFFINITY]
        if not kept:
            return tids
        return [tid for tid in tids if self._text(_allowed_of(self._root, tid), group) not in kept]

    def _allowed(self, group: ThreadGroup) -> list[tuple[frozenset[int], str]]:
        """The CPUs that each of the threads may run on, and as text."""
        found = {tid: cpus for tid in group.tids if (cpus := _allowed_of(self._root, tid))}
        if len(set(found.values())) > 1:  # only then does it matter who cannot be moved
            found = {tid: found[tid] for tid in self._movable(group) if tid in found}
        return [(cpus, self._text(cpus, group)) for cpus in found.values()]

    def _text(self, cpus: frozenset[int], group: ThreadGroup) -> str:
        return ALL if cpus >= self._room(group) else format_cpulist(cpus)

    def _room(self, group: ThreadGroup) -> frozenset[int]:
        """The CPUs that their cgroup leaves them, of those that are online."""
        return group.room or parse_cpulist((self._root / CPU / "online").read_text().strip())

    def _possible(self) -> frozenset[int]:
        return parse_cpulist((self._root / CPU / "possible").read_text().strip())


def _split(key: str) -> tuple[str, int, str, str]:
    """UUID, PID, kind and number ("" of the emulator). Raises InvalidArgument."""
    uuid, _, rest = key.partition("/")
    pid, _, rest = rest.partition("/")
    kind, _, number = rest.partition("/")
    known = (kind == "emulator" and "/" not in rest) or (kind in ("vcpu", "iothread") and number.isdecimal())
    if not pid.isdecimal() or not known:
        raise InvalidArgument(f"'{key}' names no threads of a guest")
    return uuid, int(pid), kind, number


def _name(kind: str, number: str) -> str:
    return f"{kind}/{number}" if number else kind


def _allowed_of(root: Path, tid: int) -> frozenset[int]:
    """The CPUs that a thread may run on; none when it is gone."""
    try:
        # a thread's name, which is in there, may be any bytes
        return allowed_in((root / f"proc/{tid}/status").read_text(errors="replace"))
    except (FileNotFoundError, ProcessLookupError):
        return frozenset()


def _flags_of(root: Path, tid: int) -> int:
    """The kernel's flags of a thread, field 9 of proc_pid_stat(5); 0 when it is gone."""
    try:
        # by its own number: the vhost threads of older kernels are in no process
        text = (root / f"proc/{tid}/task/{tid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(text.rpartition(")")[2].split()[6])


def _settings(gang: GangPlan) -> dict[str, Wanted]:
    """Return a setting for each of the gang's vCPUs and helpers."""
    guest = f"{gang.uuid}/{gang.pid}"
    vcpus = {f"{guest}/vcpu/{place.vcpu}": Wanted(str(place.cpu), place.reason) for place in gang.placements}
    helpers = gang.helpers
    return vcpus | {f"{guest}/{one.name}": Wanted(format_cpulist(one.cpus), one.reason) for one in helpers}
