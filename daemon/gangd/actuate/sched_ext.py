# SPDX-License-Identifier: Apache-2.0
"""The sched_ext backend: the loaded BPF scheduler, told through its maps and programs.

All of it lives and dies with this process: after kill -9 the kernel puts every
task back on the default class by itself.
"""

from __future__ import annotations

import ctypes
import struct
from pathlib import Path
from typing import Any

from gangd import bpf
from gangd.actuate import preflight
from gangd.actuate.backend import MODES, Backend, LoadFailed
from gangd.bpf import abi
from gangd.errors import GangError
from gangd.model.domain import Mode


HISTOGRAMS = ("start_skew", "slot_length")


def backend(root: Path = Path("/")) -> Backend:
    """sched_ext, usable where the preflight finds nothing missing."""
    return Backend("sched_ext", lambda: preflight.check(bpf, root), Scheduler)


def _key(number: int) -> bytes:
    return struct.pack("=I", number)


class Scheduler:
    """The loaded scheduler: one BPF object, attached. Raises GangError when it cannot be."""

    def __init__(self) -> None:
        self._object = bpf.Object(bpf.object_path("gang"))
        try:
            self._object.set_const("nr_cpus", bpf.possible_cpus())
            self._object.load()
            self._link = self._object.attach_struct_ops("gang_ops")
        except bpf.BpfError as error:
            self._object.close()
            raise LoadFailed(f"the kernel refused the scheduler: {error}", error.log) from error

    def close(self) -> None:
        """Unload; every task is back on the default class when this returns."""
        self._link.destroy()
        self._object.close()

    def ejected(self) -> str | None:
        """Why the kernel threw the scheduler out, None while it is in."""
        record = abi.GangExitRecord.unpack(self._object.map("exit_record").lookup(_key(0)) or b"")
        if not record.kind:
            return None
        text = (record.message or record.reason).decode(errors="replace")
        return text or f"exit kind {record.kind}"

    def set_domain(self, index: int, cpus: list[int], slot_us: int, cores: list[int]) -> None:
        """Co-schedule over `cpus`, one a column; slots of `slot_us` us; `cores`: of each its lowest CPU."""
        domain = abi.GangDomain(columns=len(cpus), slot_us=slot_us)
        for column, (cpu, core) in enumerate(zip(cpus, cores or cpus, strict=True)):
            domain.cpu[column] = cpu
            domain.core[column] = cpus.index(core) if core in cpus else column
        self._object.map("domains").update(_key(index), domain.pack())
        self._order("set_domain", abi.GangDomainArgs(domain=index), f"set up gang domain {index}")

    def set_gang(self, number: int, setting: dict[str, Any], columns: dict[int, int]) -> None:
        """Make the members of `setting` gang `number`; `columns` maps CPU to column."""
        members, mask, crowded = self._object.map("members"), 0, 0
        for vcpu, tid, cpu in setting["members"]:
            member = abi.GangMember(tgid=setting["pid"], gang=number, vcpu=vcpu, cpu=cpu)
            members.update(_key(tid), member.pack())
            crowded |= mask & 1 << columns[cpu]
            mask |= 1 << columns[cpu]
        args = abi.GangArgs(gang=number, weight=setting["weight"], columns=mask, crowded=crowded)
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
