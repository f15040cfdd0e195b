# SPDX-License-Identifier: Apache-2.0
"""The sched_ext backend: the loaded BPF scheduler, told through its maps and programs.

All of it lives and dies with this process: after kill -9 the kernel puts every
task back on the default class by itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gangd import bpf
from gangd.actuate import preflight
from gangd.actuate.backend import MODES, Backend, LoadFailed
from gangd.actuate.ejection import Ejection, ejection
from gangd.actuate.sched_policy import fair_tasks
from gangd.bpf import abi
from gangd.errors import GangError
from gangd.model.domain import Mode
from gangd.model.topology import Topology

FULL = "the gang scheduler is loaded for all tasks (full switch)"
PARTIAL = "the gang scheduler is loaded for vCPU threads of gangs alone (partial switch)"
BY_PUSH = "; tasks are pushed to CPUs, since none can be kicked on this kernel"
NO_STRICT = "a strict gang needs CPUs that can be kicked, and those of this kernel cannot be"
HISTOGRAMS = ("start_skew", "slot_length")
TURNS = "turns"
TURNS_SLOT_US = 12_000  # the longest turn: a guest that naps waits for the end of one


def backend(
    root: Path = Path("/"), partial: bool = False, program: str = "slots", helps: bool = False
) -> Backend:
    """sched_ext, usable where the preflight finds nothing missing.

    partial: only threads with the policy SCHED_EXT are switched to it, and only where no fair task may run
    on the CPUs of gangs. program: "slots", whose members are pinned, or "turns", whose members are not.
    helps: unmarked guests that yield take turns, too.
    """
    turns = program == TURNS
    return Backend(
        "sched_ext",
        lambda: preflight.check(bpf, root, turns),
        lambda: Turns(Topology.read(root), helps) if turns else Scheduler(Topology.read(root), partial),
        lambda: (PARTIAL if partial else FULL) + (BY_PUSH if preflight.must_push(bpf) else ""),
        (lambda cpus: fair_tasks(cpus, root)) if partial else None,
        roams=turns,
    )


def _flags(partial: bool) -> int:
    """enum scx_ops_flags by the running kernel's own numbers; what it does not know is left out.

    ENQ_LAST: what runs on when nothing else does is dispatch()'s decision. ALLOW_QUEUED_WAKEUP (6.15): a
    wakeup is handed to the CPU that the task is just leaving, instead of waiting for that.
    """
    names = ["SCX_OPS_ENQ_LAST", "SCX_OPS_ALLOW_QUEUED_WAKEUP", *["SCX_OPS_SWITCH_PARTIAL"] * partial]
    return sum(bpf.kernel_enum_value("scx_ops_flags", name) or 0 for name in names)


def asked_weight(setting: dict[str, Any]) -> int:
    """The weight of a gang without that of its cgroups, which the scheduler reads itself, and again when they
    change (kernel-helper/bpf/gang_cgroup.bpf.h)."""
    weight: int = round(setting["weight"] * abi.WEIGHT_DEFAULT / setting.get("shares", abi.WEIGHT_DEFAULT))
    return min(max(weight, abi.WEIGHT_MIN), abi.WEIGHT_MAX)


def _key(number: int) -> bytes:
    return struct.pack("=I", number)


@contextlib.contextmanager
def real_time() -> Iterator[None]:
    """This thread is SCHED_FIFO meanwhile: it has to be, while it loads a scheduler. Raises GangError.

    The kernel moves one task after the other, and this thread like any other, to a class below the fair one:
    beside tasks that never sleep and were not moved yet it did not come back. The load took 10 s, until the
    watchdog ended it, or for ever. Kernels without commit b06ccbabe250 (March 2026; Debian's 6.18.15) do so.
    """
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except OSError as error:
        raise GangError(f"to load one takes real-time priority: {error.strerror}") from error
    try:
        yield
    finally:
        os.sched_setscheduler(0, policy, parameters)


class Scheduler:
    """The loaded scheduler: one BPF object, attached. Raises GangError when it cannot be."""

    program = "gang"

    def __init__(self, topology: Topology, partial: bool = False) -> None:
        self._object = bpf.Object(bpf.object_path(self.program))
        self._pushes = preflight.must_push(bpf)
        try:
            self._object.set_const("push", self._pushes)
            self._object.set_const("nr_cpus", bpf.possible_cpus())
            self._set_constants()
            self._object.set_struct_ops("gang_ops", "flags", _flags(partial))
            self._object.load()
            self._add_cpus(topology)
            with real_time() if preflight.must_be_real_time(bpf) else contextlib.nullcontext():
                self._link = self._object.attach_struct_ops("gang_ops")
        except (bpf.BpfError, GangError) as error:
            self._object.close()
            log = error.log if isinstance(error, bpf.BpfError) else ""
            raise LoadFailed(f"the kernel refused the scheduler: {error}", log) from error

    def _set_constants(self) -> None:
        """Those that only this program has."""

    def _add_cpus(self, topology: Topology) -> None:
        """Tell it which CPUs share cores and caches, whole cores first to last, cache by cache."""
        llc_of = {cpu: llc[0] for llc in topology.llcs() for cpu in llc}
        known: set[int] = set()
        for core in sorted(topology.cores(), key=lambda core: llc_of[core[0]]):
            for sibling, cpu in enumerate(core):
                args = abi.GangCpuArgs(cpu=cpu, sibling=sibling, threads=len(core))
                args.new_llc = llc_of[cpu] not in known
                known.add(llc_of[cpu])
                self._order("add_cpu", args, f"tell the scheduler of CPU {cpu}")

    def close(self) -> None:
        """Unload; every task is back on the default class when this returns."""
        self._link.destroy()
        self._object.close()

    def ejected(self) -> Ejection | None:
        """Why the kernel threw the scheduler out, None while it is in."""
        record = abi.GangExitRecord.unpack(self._object.map("exit_record").lookup(_key(0)) or b"")
        if not record.kind:
            return None
        ring = abi.GangDecisions.unpack(self._object.map("decisions").lookup(_key(0)) or b"")
        return ejection(record, ring, lambda name: bpf.kernel_enum_value("scx_exit_kind", name))

    def set_domain(self, index: int, cpus: list[int], slot_us: int, cores: list[int]) -> None:
        """Co-schedule over `cpus`, one a column; slots of `slot_us` us; `cores`: of each its lowest CPU."""
        domain = abi.GangDomain(columns=len(cpus), slot_us=slot_us)
        for column, (cpu, core) in enumerate(zip(cpus, cores or cpus, strict=True)):
            domain.cpu[column] = cpu
            domain.core[column] = cpus.index(core) if core in cpus else column
        self._object.map("domains").update(_key(index), domain.pack())
        self._order("set_domain", abi.GangDomainArgs(domain=index), f"set up gang domain {index}")

    def set_gang(self, number: int, setting: dict[str, Any], columns: dict[int, int]) -> None:
        """Make the members of `setting` gang `number`; `columns` maps CPU to column.

        Strict is refused where CPUs cannot be kicked: one that waits idle for its core would not be told.
        """
        if self._pushes and Mode(setting["mode"]) is Mode.STRICT:
            raise GangError(NO_STRICT, f"failed to set up gang {number}")
        members, mask, crowded = self._object.map("members"), 0, 0
        for vcpu, tid, cpu in setting["members"]:
            member = abi.GangMember(tgid=setting["pid"], gang=number, vcpu=vcpu, cpu=cpu)
            members.update(_key(tid), member.pack())
            crowded |= mask & 1 << columns[cpu]
            mask |= 1 << columns[cpu]
        args = abi.GangArgs(gang=number, weight=asked_weight(setting), columns=mask, crowded=crowded)
        args.width = len(setting["members"])
        args.domain, args.mode = setting["domain"], MODES[Mode(setting["mode"])]
        self._order("set_gang", args, f"set up gang {number}")

    def drop_gang(self, number: int, setting: dict[str, Any]) -> None:
        """Make the members of `setting` ordinary tasks again."""
        for _vcpu, tid, _cpu in setting["members"]:
            self._object.map("members").delete(_key(tid))
        args = abi.GangArgs(gang=number, domain=setting["domain"], mode=abi.GangMode.OFF)
        self._order("set_gang", args, f"take out gang {number}")

    def gang_stats(self, number: int) -> abi.GangSlotStats:
        """Counters of one gang since its number was first used."""
        return abi.GangSlotStats.unpack(self._object.map("gang_stats").lookup(_key(number)) or b"")

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
        code = self._object.run(program, bytes(args))
        if code:
            raise GangError(f"the scheduler answered {code}", f"failed to {action}")


class Turns(Scheduler):
    """turns.bpf.c: a fair base for every task, and turns for gangs. Nobody has a CPU of its own."""

    program = TURNS

    def __init__(self, topology: Topology, helps: bool = False) -> None:
        self._helps = helps
        super().__init__(topology)

    def _set_constants(self) -> None:
        self._object.set_const("forgets", preflight.forgets_preemption(bpf))
        self._object.set_const("help", self._helps)

    def set_domain(self, index: int, cpus: list[int], slot_us: int, cores: list[int]) -> None:
        """It knows its domains, the caches, since it was loaded: what it takes is the length of turns."""
        super().set_domain(index, cpus, min(slot_us, TURNS_SLOT_US), cores)
