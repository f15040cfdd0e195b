# SPDX-License-Identifier: Apache-2.0
"""The sched_ext backend as an actuator: gangs and gang domains are its settings.

    domain/0        {"cpus": [0, 1], "slot_us": 20000}
    UUID/gang       {"domain": 0, "members": [[0, 811, 0], [1, 812, 1]], "mode": "relaxed", ...}

The value of a setting that is not set is "". The scheduler is loaded with the
first gang and unloaded with the last, so that a host without marks runs nothing
of ours. All of it lives and dies with this process: after kill -9 the kernel puts
every task back on the default class by itself.

When the kernel ejects the scheduler (a stall, SysRq-S, a CPU that went offline)
every setting reads "" again, so the next reconcile loads it afresh; after
`MAX_EJECTIONS` in `WINDOW_SECONDS` it stays out and says why. One that the kernel
refused is tried again after `RETRY_SECONDS`.
"""

from __future__ import annotations

import ctypes
import json
import struct
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gangd import bpf
from gangd.actuate import preflight
from gangd.actuate.base import Wanted
from gangd.bpf import abi
from gangd.errors import GangError, NoBackend
from gangd.model.domain import Mode
from gangd.model.plan import GangPlan, Plan
from gangd.model.snapshot import GangStats
from gangd.model.topology import format_cpulist

MAX_EJECTIONS = 5
WINDOW_SECONDS = 600.0
RETRY_SECONDS = 60.0  # verifying is seconds of work: not again for every change of a guest
_MODES = {
    Mode.OFF: abi.GangMode.OFF,
    Mode.BALANCE: abi.GangMode.BALANCE,
    Mode.RELAXED: abi.GangMode.RELAXED,
    Mode.STRICT: abi.GangMode.STRICT,
}


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

    def set_domain(self, index: int, cpus: list[int], slot_us: int) -> None:
        """Co-schedule over `cpus`, one a column, in slots of `slot_us` microseconds."""
        domain = abi.GangDomain(columns=len(cpus), slot_us=slot_us)
        for column, cpu in enumerate(cpus):
            domain.cpu[column] = cpu
        self._object.map("domains").update(_key(index), domain.pack())
        self._order("set_domain", abi.GangDomainArgs(domain=index), f"set up gang domain {index}")

    def set_gang(self, number: int, setting: dict[str, Any], columns: dict[int, int]) -> None:
        """Make the members of `setting` gang `number`; `columns` maps CPU to column."""
        members, mask = self._object.map("members"), 0
        for vcpu, tid, cpu in setting["members"]:
            member = abi.GangMember(tgid=setting["pid"], gang=number, vcpu=vcpu, cpu=cpu)
            members.update(_key(tid), member.pack())
            mask |= 1 << columns[cpu]
        args = abi.GangArgs(gang=number, weight=setting["weight"], columns=mask)
        args.domain, args.mode = setting["domain"], _MODES[Mode(setting["mode"])]
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
        each = abi.GangSchedStats.unpack_percpu(self._object.map("sched_stats").lookup(_key(0)) or b"")
        names = [field[0] for field in abi.GangSchedStats._fields_]
        return {name: sum(getattr(stats, name) for stats in each) for name in names}

    def _order(self, program: str, args: ctypes.Structure, action: str) -> None:
        code = self._object.run(program, bytes(args))
        if code:
            raise GangError(f"the scheduler answered {code}", f"failed to {action}")


class LoadFailed(NoBackend):
    """The kernel refused the scheduler; `log` is libbpf's and the verifier's own text."""

    def __init__(self, cause: str, log: str) -> None:
        super().__init__(cause)
        self.log = log


class SchedExt:
    """The actuator `gang`. `load` and `clock` can be replaced by a test."""

    name = "gang"

    def __init__(
        self,
        slot_us: int,
        root: Path = Path("/"),
        load: Callable[[], Scheduler] = Scheduler,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._slot_us = slot_us
        self._root = root
        self._load = load
        self._clock = clock
        self._scheduler: Scheduler | None = None
        self._values: dict[str, dict[str, Any]] = {}
        self._numbers: dict[str, int] = {}
        self._base: dict[str, abi.GangSlotStats] = {}
        self._ejections: deque[float] = deque(maxlen=MAX_EJECTIONS)
        self._refused: tuple[float, str] | None = None
        self.ejections = 0  # in all, unlike those within the window
        self.last_ejection: str | None = None
        self.log = ""

    @property
    def active(self) -> bool:
        """The scheduler is loaded and the kernel has not ejected it."""
        return self._scheduler is not None

    def probe(self) -> str | None:
        """None when gangs can be scheduled here, else one sentence."""
        if self._given_up():
            return f"the kernel ejected the scheduler {MAX_EJECTIONS} times, last: {self.last_ejection}"
        if self._refused and self._clock() - self._refused[0] < RETRY_SECONDS:
            return self._refused[1]
        return None if self.active else preflight.check(bpf, self._root)

    def wanted(self, plan: Plan) -> dict[str, Wanted]:
        """One setting for each gang domain in use and for each gang. Pure."""
        settings = {
            f"domain/{domain.index}": Wanted(
                _text({"cpus": list(domain.cpus), "slot_us": self._slot_us}), domain.reason
            )
            for domain in plan.gang_domains
        }
        settings |= {f"{gang.uuid}/gang": Wanted(_text(_setting(gang)), gang.reason) for gang in plan.gangs}
        return settings

    def read(self, key: str) -> str | None:
        """The setting as the loaded scheduler has it, "" when it has not."""
        self.look()
        value = self._values.get(key)
        return _text(value) if value else ""

    def write(self, key: str, value: str) -> None:
        """Set it; "" takes it out. Loads and unloads the scheduler as needed."""
        if value:
            self._set(key, json.loads(value))
        elif key in self._values:
            self._drop(key)
        if not self._values:
            self.close()

    def describe(self, key: str) -> str:
        """The setting in words."""
        if key.startswith("domain/"):
            return f"gang domain {key.removeprefix('domain/')}"
        return f"the gang of {key.removesuffix('/gang')}"

    def changed(self, key: str, value: str) -> str:
        """Nobody but this process can change these settings; said all the same if it happens."""
        return f"{self.describe(key)} was changed to {value or 'nothing'}"

    def show(self, value: str) -> str:
        """A setting as people read it: "relaxed, 2 vCPUs, weight 100"."""
        if not value:
            return "none"
        setting = json.loads(value)
        if "cpus" in setting:
            return f"CPUs {format_cpulist(setting['cpus'])}, slots of {setting['slot_us'] / 1000:g} ms"
        return f"{setting['mode']}, {len(setting['members'])} vCPUs, weight {setting['weight']}"

    def close(self) -> None:
        """Unload the scheduler, forget every setting."""
        if self._scheduler is not None:
            self._scheduler.close()
        self._forget()

    def stats(self, uuid: str) -> GangStats | None:
        """Slots of one gang since it was set up, None when it is no gang."""
        number = self._numbers.get(f"{uuid}/gang")
        if self._scheduler is None or number is None:
            return None
        now, base = self._scheduler.gang_stats(number), self._base[f"{uuid}/gang"]
        return GangStats(
            slots=now.slots - base.slots,
            costarted=now.costarted - base.costarted,
            ended_early=now.ended_early - base.ended_early,
            run_seconds=(now.run_ns - base.run_ns) / 1e9,
            filler_seconds=(now.filler_ns - base.filler_ns) / 1e9,
            skew_seconds=(now.skew_ns - base.skew_ns) / 1e9,
            skew_max_seconds=now.skew_max_ns / 1e9,
        )

    def counters(self) -> dict[str, int]:
        """The scheduler's own account, empty while it is not loaded."""
        return self._scheduler.counters() if self._scheduler else {}

    def _set(self, key: str, setting: dict[str, Any]) -> None:
        scheduler = self._loaded()
        if key.startswith("domain/"):
            scheduler.set_domain(int(key.removeprefix("domain/")), setting["cpus"], setting["slot_us"])
        else:
            self._set_gang(scheduler, key, setting)
        self._values[key] = setting

    def _set_gang(self, scheduler: Scheduler, key: str, setting: dict[str, Any]) -> None:
        if key in self._values:
            scheduler.drop_gang(self._numbers[key], self._values[key])
        number = self._numbers.setdefault(key, self._free_number())
        self._base.setdefault(key, scheduler.gang_stats(number))
        cpus = self._values[f"domain/{setting['domain']}"]["cpus"]
        scheduler.set_gang(number, setting, {cpu: column for column, cpu in enumerate(cpus)})

    def _free_number(self) -> int:
        taken = set(self._numbers.values())
        free = next((n for n in range(1, abi.MAX_GANGS) if n not in taken), None)
        if free is None:
            raise NoBackend(f"all {abi.MAX_GANGS - 1} gang numbers are taken")
        return free

    def _drop(self, key: str) -> None:
        setting = self._values.pop(key)
        if self._scheduler is None:
            return
        if key.startswith("domain/"):
            self._scheduler.set_domain(int(key.removeprefix("domain/")), [], setting["slot_us"])
        else:
            self._scheduler.drop_gang(self._numbers.pop(key), setting)
            self._base.pop(key)

    def _loaded(self) -> Scheduler:
        if self._scheduler is None:
            reason = self.probe()
            if reason:
                raise NoBackend(reason)
            try:
                self._scheduler = self._load()
            except LoadFailed as error:
                self.log = error.log
                self._refused = (self._clock(), error.cause)
                raise
        return self._scheduler

    def look(self) -> None:
        """Notice that the kernel ejected the scheduler, and keep its reason."""
        reason = self._scheduler.ejected() if self._scheduler else None
        if reason is None:
            return
        self.last_ejection = reason
        self.ejections += 1
        self._ejections.append(self._clock())
        self.close()

    def _given_up(self) -> bool:
        full = len(self._ejections) == MAX_EJECTIONS
        return full and self._clock() - self._ejections[0] < WINDOW_SECONDS

    def _forget(self) -> None:
        self._scheduler = None
        self._values.clear()
        self._numbers.clear()
        self._base.clear()


def _setting(gang: GangPlan) -> dict[str, Any]:
    return {
        "domain": gang.gang_domain,
        "members": [[p.vcpu, p.tid, p.cpu] for p in gang.placements],
        "mode": gang.mode.value,
        "pid": gang.pid,
        "weight": gang.weight,
    }


def _text(value: dict[str, Any]) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
