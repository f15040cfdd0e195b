# SPDX-License-Identifier: Apache-2.0
"""The actuator `gang`: gangs and gang domains are its settings, one of the backends does them.

    domain/0        {"cpus": [0, 1], "slot_us": 20000}
    UUID/gang       {"domain": 0, "members": [[0, 811, 0], [1, 812, 1]], "mode": "relaxed", ...}

The value of a setting that is not set is "". The backend is loaded with the
first gang and unloaded with the last, so that a host without marks runs nothing
of ours.

When the kernel ejects the scheduler (a stall, SysRq-S, a CPU that went offline)
every setting reads "" again, so the next reconcile loads it afresh; after
`MAX_EJECTIONS` in `WINDOW_SECONDS` it stays out and says why. One that the kernel
refused is tried again after `RETRY_SECONDS`.
"""

from __future__ import annotations

import json
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any

from gangd.actuate.backend import Backend, Loaded, LoadFailed
from gangd.actuate.base import Wanted
from gangd.actuate.ejection import Ejection
from gangd.bpf import abi
from gangd.errors import GangError, NoBackend
from gangd.model.cpulist import format_cpulist
from gangd.model.plan import GangDomain, GangPlan, Plan
from gangd.model.snapshot import GangStats

MAX_EJECTIONS = 5
WINDOW_SECONDS = 600.0
RETRY_SECONDS = 60.0  # verifying is seconds of work: not again for every change of a guest


class Gangs:
    """The actuator. backends: the first that is usable is loaded. `clock` can be replaced by a test."""

    name = "gang"

    def __init__(
        self,
        slot_us: int,
        backends: Sequence[Backend],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.slot_us = slot_us  # in force with the next plan
        self._backends = tuple(backends)
        self.backend = self._backends[0]  # the one in use, or the one that would be
        self._clock = clock
        self._scheduler: Loaded | None = None
        self._values: dict[str, dict[str, Any]] = {}
        self._numbers: dict[str, int] = {}
        self._base: dict[str, abi.GangStats] = {}
        self._ejections: deque[float] = deque(maxlen=MAX_EJECTIONS)
        self._refused: dict[str, tuple[float, str]] = {}  # by backend: when, and why
        self.ejections: Counter[str] = Counter()  # by kind, in all, unlike those within the window
        self.last_ejection: Ejection | None = None
        self.log = ""

    @property
    def active(self) -> bool:
        """The scheduler is loaded and the kernel has not ejected it."""
        return self._scheduler is not None

    @property
    def roams(self) -> bool:
        """True if the scheduler that is loaded, or would be, chooses CPUs for the members."""
        return self.backend.roams and (self.active or self.backend.probe() is None)

    def probe(self) -> str | None:
        """None when gangs can be scheduled here, else one sentence."""
        if self._given_up():
            last = self.last_ejection.sentence if self.last_ejection else ""
            return f"the kernel ejected the scheduler {MAX_EJECTIONS} times, last: {last}"
        return None if self.active else self._choose()

    def _choose(self) -> str | None:
        """Settle on the first backend that is usable; None, or what is missing of each."""
        missing = []
        for backend in self._backends:
            reason = self._missing(backend)
            if reason is None:
                self.backend = backend
                return None
            missing.append(reason if len(self._backends) == 1 else f"{backend.name}: {reason}")
        return "; ".join(missing)

    def _missing(self, backend: Backend) -> str | None:
        since, cause = self._refused.get(backend.name, (-RETRY_SECONDS, ""))
        return cause if cause and self._clock() - since < RETRY_SECONDS else backend.probe()

    def wanted(self, plan: Plan) -> dict[str, Wanted]:
        """One setting for each gang that needs a scheduler, and for each gang domain that has one. Pure.

        `balance` needs none: its vCPUs are pinned to CPUs of their own, and that is all.
        """
        gangs = [gang for gang in plan.gangs if gang.needs_scheduler]
        used = {gang.gang_domain for gang in gangs}
        settings = {
            f"domain/{domain.index}": Wanted(_text(self._domain(domain)), domain.reason)
            for domain in plan.gang_domains
            if domain.index in used
        }
        settings |= {f"{gang.uuid}/gang": Wanted(_text(_setting(gang)), gang.reason) for gang in gangs}
        return settings

    def _domain(self, domain: GangDomain) -> dict[str, Any]:
        return {"cores": list(domain.cores), "cpus": list(domain.cpus), "slot_us": self.slot_us}

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
            return f"CPUs {format_cpulist(setting['cpus'])}, {setting['slot_us'] / 1000:g} ms at a time"
        return f"{setting['mode']}, {len(setting['members'])} vCPUs, weight {setting['weight']}"

    def close(self) -> None:
        """Unload the scheduler, forget every setting."""
        if self._scheduler is not None:
            self._scheduler.close()
        self._forget()

    def stats(self, uuid: str) -> GangStats | None:
        """Counters of one gang since it was set up, None when it is no gang."""
        number = self._numbers.get(f"{uuid}/gang")
        if self._scheduler is None or number is None:
            return None
        now, base = self._scheduler.gang_stats(number), self._base[f"{uuid}/gang"]
        return GangStats(
            turns=now.turns - base.turns,
            whole=now.whole - base.whole,
            ended_early=now.ended_early - base.ended_early,
            seats_wanted=now.seats_wanted - base.seats_wanted,
            seats_had=now.seats_had - base.seats_had,
            run_seconds=(now.run_ns - base.run_ns) / 1e9,
            apart_seconds=(now.apart_ns - base.apart_ns) / 1e9,
            borrowed_seconds=(now.borrowed_ns - base.borrowed_ns) / 1e9,
            throttled_seconds=(now.throttled_ns - base.throttled_ns) / 1e9,
            yields=now.yields - base.yields,
            yields_hit=now.yields_hit - base.yields_hit,
            skew_seconds=(now.skew_ns - base.skew_ns) / 1e9,
            skew_max_seconds=now.skew_max_ns / 1e9,
        )

    def counters(self) -> dict[str, int]:
        """The scheduler's own account, empty while it is not loaded."""
        return self._scheduler.counters() if self._scheduler else {}

    def histograms(self) -> dict[str, list[int]]:
        """Distributions that the scheduler keeps, empty while it is not loaded."""
        return self._scheduler.histograms() if self._scheduler else {}

    def _set(self, key: str, setting: dict[str, Any]) -> None:
        if key.startswith("domain/"):
            self._set_domain(self._loaded(), key, setting)
        elif f"domain/{setting['domain']}" in self._values:
            self._set_gang(self._loaded(), key, setting)
        else:  # it was refused, as was said
            action = f"failed to set up {self.describe(key)}"
            raise GangError(f"gang domain {setting['domain']} is not set up", action)
        self._values[key] = setting

    def _set_domain(self, scheduler: Loaded, key: str, setting: dict[str, Any]) -> None:
        index = int(key.removeprefix("domain/"))
        scheduler.set_domain(index, setting["cpus"], setting["slot_us"], setting.get("cores", []))

    def _set_gang(self, scheduler: Loaded, key: str, setting: dict[str, Any]) -> None:
        cpus = self._values[f"domain/{setting['domain']}"]["cpus"]
        if key in self._values:
            scheduler.drop_gang(self._numbers[key], self._values[key])
        number = self._numbers.setdefault(key, self._free_number())
        self._base.setdefault(key, scheduler.gang_stats(number))
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
            self._set_domain(self._scheduler, key, {**setting, "cpus": [], "cores": []})
        else:
            self._scheduler.drop_gang(self._numbers.pop(key), setting)
            self._base.pop(key)

    def _loaded(self) -> Loaded:
        """Raises NoBackend."""
        if reason := self.probe():
            raise NoBackend(reason)
        if self._scheduler is None:
            try:
                self._scheduler = self.backend.load()
            except LoadFailed as error:
                self.log = error.log
                self._refused[self.backend.name] = (self._clock(), error.cause)
                raise
        return self._scheduler

    def look(self) -> None:
        """Notice that the kernel ejected the scheduler, and keep its reason."""
        ejection = self._scheduler.ejected() if self._scheduler else None
        if ejection is None:
            return
        self.last_ejection = ejection
        self.ejections[ejection.kind] += 1
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
