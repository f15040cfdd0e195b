# SPDX-License-Identifier: Apache-2.0
"""The sched_ext backend: the loaded BPF scheduler, told through its maps and programs.

All of it lives and dies with this process: after kill -9 the kernel puts every
task back on the default class by itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from gangd import bpf
from gangd.actuate import preflight
from gangd.actuate.backend import MODES, Backend, LoadFailed
from gangd.actuate.ejection import Ejection, ejection
from gangd.actuate.gang_setting import CacheSetting, GangSetting
from gangd.bpf import abi
from gangd.errors import GangError
from gangd.model.columns import host_caches
from gangd.model.domain import Mode
from gangd.model.topology import Topology

FULL = "the gang scheduler is loaded for all tasks (full switch)"
BY_PUSH = "; tasks are pushed to CPUs, since none can be kicked on this kernel"
NO_STRICT = "a strict gang needs CPUs that can be kicked, and those of this kernel cannot be"
HISTOGRAMS = ("start_skew",)
TRIES, TRY_SECONDS = 50, 0.01  # of an order for which the scheduler is busy
HANGS = "runs under core scheduling, beside which any scheduler in BPF hangs this host: start it without"
_COOKIE = re.compile(r"init_task\(\) failed \(-16\) for (.+)")  # EBUSY: no other reason of gang_init_task()'s
TIMERS = ("slice_timers", "watch_timers", "quota_timers", "delay_timers")
REFUSE_COOKIE = "refuse_cookie"
TURN_US = 12_000  # the longest turn: a guest that naps waits for the end of one


class Predecessor:
    """The scheduler of the gangd before, by what Scheduler.descriptors() gave out: it runs until end()
    detaches it, or this process is gone. None: there was none."""

    def __init__(self, descriptors: Sequence[int] = ()) -> None:
        self.descriptors = tuple(descriptors)

    def end(self) -> None:
        """Detach it; again is a no-op. One that the kernel ejected meanwhile is detached already."""
        if self.descriptors:
            with contextlib.suppress(bpf.BpfError):
                bpf.detach_link(self.descriptors[0])
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.descriptors = ()


def backend(root: Path = Path("/"), helps: bool = False, before: Predecessor | None = None) -> Backend:
    """sched_ext, usable where the preflight finds nothing missing.

    helps: unmarked guests that yield take turns, too. before: gives way to a scheduler that is loaded.
    """
    predecessor = before or Predecessor()
    return Backend(
        "sched_ext",
        lambda: preflight.check(bpf, root),
        lambda: Scheduler(Topology.read(root), helps, predecessor.end),
        lambda: FULL + (BY_PUSH if preflight.must_push(bpf) else ""),
        roams=True,
        fair=True,
        refuses=lambda mode: NO_STRICT if mode is Mode.STRICT and preflight.must_push(bpf) else None,
    )


def _flags() -> int:
    """enum scx_ops_flags by the running kernel's own numbers; what it does not know is left out.

    ENQ_LAST: what runs on when nothing else does is dispatch()'s decision. ALLOW_QUEUED_WAKEUP (6.15): a
    wakeup is handed to the CPU that the task is just leaving, instead of waiting for that.
    ENQ_MIGRATION_DISABLED (6.14): the kernel takes a task that real time preempts for one that may not
    migrate, as its own call of cpu_release() forbids that, and leaves it behind the real-time task.
    """
    names = ("SCX_OPS_ENQ_LAST", "SCX_OPS_ENQ_MIGRATION_DISABLED", "SCX_OPS_ALLOW_QUEUED_WAKEUP")
    return sum(bpf.kernel_enum_value("scx_ops_flags", name) or 0 for name in names)


def _failed(error: Exception, ended: Ejection | None = None) -> LoadFailed:
    """Say why it is not loaded: in the kernel's words, or in ours for what gang_init_task() refuses."""
    log = error.log if isinstance(error, bpf.BpfError) else ""
    if ended and (cookie := _COOKIE.search(ended.sentence)):
        return LoadFailed(f"{cookie[1]} {HANGS}", log)
    return LoadFailed(f"the kernel refused the scheduler: {ended.sentence if ended else error}", log)


def _key(number: int) -> bytes:
    return struct.pack("=I", number)


@contextlib.contextmanager
def real_time() -> Iterator[None]:
    """Make this thread SCHED_FIFO while it attaches a scheduler. Raises GangError.

    The verifier has run by then, as an ordinary task. To attach, the kernel moves one task after the other,
    and this thread like any other, to a class below the fair one: beside tasks that never sleep and were not
    moved yet it did not come back. The load took 10 s, until the watchdog ended it, or for ever. Kernels
    without commit b06ccbabe250 (March 2026; Debian's 6.18.15) do so.
    """
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except OSError as error:
        raise GangError(
            f"cannot switch to SCHED_FIFO, needed to load a scheduler on this kernel: {error.strerror}"
        ) from error
    try:
        yield
    finally:
        os.sched_setscheduler(0, policy, parameters)


def verify() -> str | None:
    """None when this kernel's verifier accepts the scheduler, else its refusal: the programs are loaded and
    freed again, none is attached. Raises PermissionError where only root may ask."""
    try:
        with contextlib.closing(_verified(helps=False)) as found:
            _guarded(found)
    except bpf.BpfError as error:
        if error.errno == errno.EPERM and os.geteuid():
            raise PermissionError(error.errno, error.strerror) from error
        return str(error)
    return None


def _verified(helps: bool) -> bpf.Object:
    """Return the object with its programs in the kernel. Raises BpfError."""
    found = bpf.Object(bpf.object_path("gang"))
    try:
        found.set_const("push", preflight.must_push(bpf))
        found.set_const("nr_cpus", bpf.possible_cpus())
        found.set_const("forgets", preflight.forgets_preemption(bpf))
        found.set_const("help", helps)
        found.set_autoload(REFUSE_COOKIE, preflight.hangs_beside_cookies(bpf))
        found.set_struct_ops("gang_ops", "flags", _flags())
        if not preflight.tells_limits(bpf):
            found.set_struct_ops("gang_ops", "cgroup_set_bandwidth", 0)
        found.load()
    except bpf.BpfError:
        found.close()
        raise
    return found


def _guarded(found: bpf.Object) -> bpf.Link | None:
    """Refuse core scheduling to everybody while the link is there; None where it does no harm."""
    return found.attach(REFUSE_COOKIE) if preflight.hangs_beside_cookies(bpf) else None


class Scheduler:
    """The loaded scheduler: one BPF object, attached. Raises GangError when it cannot be.

    It has the caches of the host, and chooses CPUs for the members itself. What a guest is due its
    cgroup says. make_room: called when all is ready but for the scheduler that it replaces.
    """

    def __init__(
        self, topology: Topology, helps: bool = False, make_room: Callable[[], None] = lambda: None
    ) -> None:
        self._turn_us = 0  # what the scheduler was told
        self._members: dict[int, set[int]] = {}  # by gang: threads that the map has
        self._caches: dict[int, int] = {}  # by CPU: its cache, as of the load
        try:
            self._object = _verified(helps)
        except bpf.BpfError as error:
            raise _failed(error) from error
        try:
            self._add_cpus(topology)
            self._guard = _guarded(self._object)
            # The kernel ejects a scheduler that it enables while RCU stalls, for whatever cause: decision 27.
            bpf.wait_for_readers()
            with real_time() if preflight.must_be_real_time(bpf) else contextlib.nullcontext():
                make_room()
                self._link = self._object.attach_struct_ops("gang_ops")
            if self.ejected():
                raise GangError("enabled in vain")  # the kernel says yes, and why not only when it ends it
        except (bpf.BpfError, GangError) as error:
            ended = self.ejected()
            self._object.close()
            raise _failed(error, ended) from error

    def _add_cpus(self, topology: Topology) -> None:
        """Tell it which CPUs share cores and caches. A core of which guests may have one thread alone
        is in two, and has one thread in each."""
        for number, cache in enumerate(host_caches(topology)):
            cores = Counter(cpu.core for cpu in cache)
            told: Counter[int] = Counter()
            for cpu in cache:
                self._caches[cpu.id] = number
                args = abi.GangCpuArgs(cpu=cpu.id, sibling=told[cpu.core], threads=cores[cpu.core])
                told[cpu.core] += 1
                args.new_cache = cpu is cache[0]
                self._order("add_cpu", args, f"tell the scheduler of CPU {cpu.id}")

    def close(self) -> None:
        """Unload; every task is back on the default class when this returns."""
        self._link.destroy()
        self._object.close()

    def descriptors(self) -> tuple[int, ...]:
        """Return those of the scheduler's links and of the maps with its timers: it stays loaded, and works,
        while copies of all are open somewhere. The kernel cancels timers of a map that no process has
        (bpf_map_put_uref())."""
        guard = [self._guard.fileno()] if self._guard else []
        return self._link.fileno(), *guard, *(self._object.map(name).fd for name in TIMERS)

    def ejected(self) -> Ejection | None:
        """Why the kernel threw the scheduler out, None while it is in."""
        record = abi.GangExitRecord.unpack(self._object.map("exit_record").lookup(_key(0)) or b"")
        if not record.kind:
            return None
        ring = abi.GangDecisions.unpack(self._object.map("decisions").lookup(_key(0)) or b"")
        return ejection(record, ring, lambda name: bpf.kernel_enum_value("scx_exit_kind", name))

    def set_cache(self, index: int, setting: CacheSetting) -> None:
        """Have turns of a slot, TURN_US at most: all that the scheduler is told of caches."""
        turn_us = min(setting.turn_us, TURN_US)
        if turn_us != self._turn_us:
            self._order("set_turns", abi.GangTurnArgs(turn_us=turn_us), "set the length of turns")
            self._turn_us = turn_us

    def set_gang(self, number: int, setting: GangSetting, columns: dict[int, int]) -> None:
        """Make the members of `setting` gang `number`, and nobody else. A gang that is refused has none.

        It has its turns in one cache, which the scheduler may change; if wider, in those of its seats.
        """
        members = self._object.map("members")
        wanted = {member.tid for member in setting.members}
        self._forget(number, self._members.get(number, set()) - wanted)
        self._members[number] = wanted
        args = abi.GangArgs(gang=number, mode=MODES[setting.mode])
        args.cache, caches = self._where([seat for _, _, seat in setting.members])
        args.caches = sum(1 << cache for cache in caches)
        try:
            for vcpu, tid, _cpu in setting.members:
                members.update(_key(tid), abi.GangMember(tgid=setting.pid, gang=number, vcpu=vcpu).pack())
            self._order("set_gang", args, f"set up gang {number}")
        except (GangError, OSError):
            self._forget(number, wanted)
            raise

    def _where(self, seats: Sequence[int]) -> tuple[int, set[int]]:
        """Return the cache of most `seats` (CPUs), and all in which the gang has turns."""
        found = Counter(self._caches.get(cpu, 0) for cpu in seats)
        [(home, _)] = found.most_common(1)
        fits = len(seats) <= list(self._caches.values()).count(home)
        return home, {home} if fits else set(found)

    def limit(self, setting: GangSetting) -> str | None:
        """The scheduler keeps cpu.max."""
        return None

    def drop_gang(self, number: int, setting: GangSetting) -> None:
        """Make the members of the gang ordinary tasks again."""
        self._forget(number, self._members.pop(number, set()))
        args = abi.GangArgs(gang=number, mode=abi.GangMode.OFF)
        self._order("set_gang", args, f"take out gang {number}")

    def _forget(self, number: int, tids: set[int]) -> None:
        for tid in tids:
            self._object.map("members").delete(_key(tid))
        if number in self._members:
            self._members[number] -= tids

    def gang_stats(self, number: int) -> abi.GangStats:
        """Counters of one gang since its number was first used."""
        return abi.GangStats.unpack(self._object.map("gang_stats").lookup(_key(number)) or b"")

    def counters(self) -> dict[str, int]:
        """The scheduler's own account, all CPUs added up."""
        each = self._stats()
        names = [name for name, *_ in abi.GangSchedStats._fields_ if name not in HISTOGRAMS]
        return {name: sum(getattr(stats, name) for stats in each) for name in names}

    def histograms(self) -> dict[str, list[int]]:
        """Counts by bucket, all CPUs added up: bucket b is of times below 2^b microseconds."""
        each = self._stats()
        return {
            name: [sum(getattr(stats, name)[bucket] for stats in each) for bucket in range(abi.BUCKETS)]
            for name in HISTOGRAMS
        }

    def _stats(self) -> list[abi.GangSchedStats]:
        return abi.GangSchedStats.unpack_percpu(self._object.map("sched_stats").lookup(_key(0)) or b"")

    def _order(self, program: str, args: ctypes.Structure, action: str) -> None:
        for _ in range(TRIES):
            code = self._object.run(program, bytes(args))
            if code != -errno.EBUSY:
                break
            time.sleep(TRY_SECONDS)  # a CPU moves a gang, or members of a former gang of that number wait
        if code:
            name = errno.errorcode.get(-code, "no errno")
            raise GangError(f"BPF program {program} returned {code} ({name})", f"failed to {action}")
