# SPDX-License-Identifier: Apache-2.0
"""The actuator `gang`: gangs and caches are its settings, one of the backends does them.

    domain/0        a CacheSetting, as text
    UUID/gang       a GangSetting, as text

The value of a setting that is not set is "". The backend is loaded with the
first gang and unloaded with the last, so that a host without marks runs nothing
of ours.

When the kernel ejects the scheduler (a stall, SysRq-S, a CPU that went offline)
every setting reads "" again, so the next reconcile loads it afresh; after
`MAX_EJECTIONS` in `WINDOW_SECONDS` it stays out and says why, but for those that
a CPU which came or went is the reason of. One that the kernel
refused is tried again after `RETRY_SECONDS`. A gang whose change is refused is what it was before.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any

from gangd.actuate.backend import Backend, Loaded, LoadFailed
from gangd.actuate.base import Actuator, PerGang, Wanted
from gangd.actuate.ejection import KINDS, Ejection
from gangd.actuate.gang_setting import CacheSetting, GangSetting, parse, text
from gangd.bpf import abi
from gangd.errors import FAILURES, GangError, NoBackend, NotSupported
from gangd.model.counters import GangStats
from gangd.model.cpulist import format_cpulist
from gangd.model.domain import Mode
from gangd.model.plan import GangPlan, Plan

CACHE = "domain/"  # of a cache's key, before its number
MAX_EJECTIONS = 5
WINDOW_SECONDS = 600.0
RETRY_SECONDS = 60.0  # verifying is seconds of work: not again for every change of a guest


class Gangs(Actuator):
    """The actuator. backends: the first that is usable is loaded. `clock` can be replaced by a test."""

    name = "gang"
    keeps = True

    def __init__(
        self,
        turn_us: int,
        backends: Sequence[Backend],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.turn_us = turn_us  # in force with the next plan
        self._backends = tuple(backends)
        self.backend = self._backends[0]  # the one in use, or the one that would be
        self._clock = clock
        self._scheduler: Loaded | None = None
        self._caches: dict[str, CacheSetting] = {}  # by key
        self._gangs: dict[str, GangSetting] = {}
        self._names: dict[str, str] = {}  # of the guests (by UUID) that were planned last, for sentences
        self._settings = PerGang(_setting)
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
        return self.backend.roams and (self.active or _lacks(self.backend) is None)

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
        return cause if cause and self._clock() - since < RETRY_SECONDS else _lacks(backend)

    @property
    def refusal(self) -> str | None:
        """The kernel's last word about the backend that would be used, None when that is no refusal."""
        return None if self.active else self._refused.get(self.backend.name, (0.0, None))[1]

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The descriptors that keep scheduler and gangs loaded after this process; none: nothing can."""
        return self._scheduler.descriptors() if self._scheduler else ()

    def wanted(self, plan: Plan) -> dict[str, Wanted]:
        """Return a setting for each gang that has turns, and for each cache that has one. Pure.

        `balance` needs none: its vCPUs are pinned to CPUs of their own, and that is all. `off` has no setting
        either.
        """
        gangs = [gang for gang in plan.gangs if gang.has_turns]
        self._names = {gang.uuid: gang.name for gang in gangs}
        used = {self._cache_of(gang) for gang in gangs}
        settings = {
            _key(cache.index): Wanted(text(CacheSetting.of(cache, self.turn_us)), cache.reason)
            for cache in plan.caches
            if cache.index in used
        }
        return settings | dict(filter(None, self._settings.of(gangs)))

    def _cache_of(self, gang: GangPlan) -> int | None:
        """The cache that it needs: for a mode that is refused that of the gang it is and stays."""
        if self._not_supported(gang.mode) is None:
            return gang.cache
        kept = self._gangs.get(f"{gang.uuid}/gang")
        return kept.cache if kept else None

    def _not_supported(self, mode: Mode) -> str | None:
        if not self.active and self._choose():  # what is missing for every mode is said elsewhere
            return None
        return self.backend.refuses(mode)

    def read(self, key: str) -> str | None:
        """The setting as the loaded scheduler has it, "" when it has not, or may not have it any longer."""
        self.look()
        cache, gang = self._caches.get(key), self._gangs.get(key)
        if cache:
            return text(cache)
        limited = gang and self._scheduler and self._scheduler.limit(gang)
        return text(gang) if gang and not limited else ""

    def write(self, key: str, value: str) -> None:
        """Set it; "" takes it out. Loads and unloads the scheduler as needed."""
        setting = parse(value) if value else None
        if setting is None:
            self._drop(key)
        elif isinstance(setting, CacheSetting):
            self._set_cache(key, setting)
        else:
            self._set_gang(key, setting)
        if not self._caches and not self._gangs:
            self.close()

    def describe(self, key: str) -> str:
        """The setting in words."""
        if key.startswith(CACHE):
            return f"cache {_index(key)}"
        uuid = key.removesuffix("/gang")
        return f"the gang of '{self._names[uuid]}'" if uuid in self._names else f"the gang of {uuid}"

    def changed(self, key: str, value: str) -> str:
        """The sentence that a setting changed, should that ever happen: only this process can change one."""
        return f"{self.describe(key)} was changed to {value or 'nothing'}"

    def show(self, value: str) -> str:
        """A setting as people read it: "relaxed, 2 vCPUs, weight 100"."""
        if not value:
            return "none"
        setting = parse(value)
        if isinstance(setting, CacheSetting):
            return f"CPUs {format_cpulist(setting.cpus)}, {setting.turn_us / 1000:g} ms at a time"
        return f"{setting.mode}, {len(setting.members)} vCPUs, weight {setting.weight}"

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
        found: dict[str, Any] = {}
        for name, _ in abi.GangStats._fields_:
            value = getattr(now, name) - (0 if name == "skew_max_ns" else getattr(base, name))
            quantity = name.removesuffix("_ns")
            found |= {name: value} if quantity == name else {f"{quantity}_seconds": value / 1e9}
        return GangStats(**found)

    def mode(self, uuid: str) -> Mode | None:
        """How the scheduler has this guest now, None when not as a gang."""
        setting = self._gangs.get(f"{uuid}/gang")
        return setting.mode if setting else None

    def counters(self) -> dict[str, int]:
        """The scheduler's own account, empty while it is not loaded."""
        return self._scheduler.counters() if self._scheduler else {}

    def histograms(self) -> dict[str, list[int]]:
        """Distributions that the scheduler keeps, empty while it is not loaded."""
        return self._scheduler.histograms() if self._scheduler else {}

    def _set_cache(self, key: str, setting: CacheSetting) -> None:
        lost = self._loaded().set_cache(_index(key), setting) or ()
        self._caches[key] = setting
        for one, gang in list(self._gangs.items()):
            if self._numbers[one] in lost and gang.cache == _index(key):
                with contextlib.suppress(GangError, OSError):  # then it is none, and the next pass sees that
                    self._set_up(one, gang)

    def _set_gang(self, key: str, setting: GangSetting) -> None:
        try:
            self._set_up(key, setting)
        except GangError as error:  # a backend knows its number alone
            error.action = f"cannot set up {self.describe(key)}"
            raise
        self._gangs[key] = setting

    def _set_up(self, key: str, setting: GangSetting) -> None:
        if reason := self._not_supported(setting.mode):
            raise NotSupported(reason)
        if _key(setting.cache) not in self._caches:  # it was refused, as was said
            raise GangError(f"cache {setting.cache} is not set up")
        scheduler = self._loaded()
        number = self._numbers[key] if key in self._numbers else self._free_number()
        base = self._base.get(key) or scheduler.gang_stats(number)
        try:
            scheduler.set_gang(number, setting, self._columns(setting))
        except (GangError, OSError):
            self._keep(scheduler, key, number, setting)
            raise
        self._numbers[key], self._base[key] = number, base

    def _keep(self, scheduler: Loaded, key: str, number: int, refused: GangSetting) -> None:
        """Make a gang whose change was refused what it was; where it was none or cannot be, none."""
        old = self._gangs.get(key)
        with contextlib.suppress(GangError, OSError):
            if old and _key(old.cache) in self._caches:
                scheduler.set_gang(number, old, self._columns(old))
                return
        with contextlib.suppress(GangError, OSError):
            scheduler.drop_gang(number, refused)
        for known in (self._gangs, self._numbers, self._base):
            known.pop(key, None)

    def _columns(self, setting: GangSetting) -> dict[int, int]:
        return self._caches[_key(setting.cache)].columns

    def _free_number(self) -> int:
        taken = set(self._numbers.values())
        free = next((n for n in range(1, abi.MAX_GANGS) if n not in taken), None)
        if free is None:
            raise NoBackend(f"all {abi.MAX_GANGS - 1} gang numbers are taken")
        return free

    def _drop(self, key: str) -> None:
        cache, gang = self._caches.pop(key, None), self._gangs.pop(key, None)
        if self._scheduler is None:
            return
        if cache:
            self._scheduler.set_cache(_index(key), CacheSetting((), cache.turn_us))
        if gang:
            self._scheduler.drop_gang(self._numbers.pop(key), gang)
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
            self._refused.pop(self.backend.name, None)
        return self._scheduler

    def look(self) -> None:
        """Notice that the kernel ejected the scheduler, and keep its reason."""
        ejection = self._scheduler.ejected() if self._scheduler else None
        if ejection is None:
            return
        self.last_ejection = ejection
        self.ejections[ejection.kind] += 1
        if ejection.kind != KINDS["SCX_EXIT_UNREG_KERN"]:
            self._ejections.append(self._clock())
        self.close()

    def _given_up(self) -> bool:
        full = len(self._ejections) == MAX_EJECTIONS
        return full and self._clock() - self._ejections[0] < WINDOW_SECONDS

    def _forget(self) -> None:
        self._scheduler = None
        self._caches.clear()
        self._gangs.clear()
        self._numbers.clear()
        self._base.clear()


def _setting(gang: GangPlan) -> tuple[str, Wanted] | None:
    """Return the gang's key and setting; None while no thread of it can be scheduled."""
    setting = GangSetting.of(gang)
    return (f"{gang.uuid}/gang", Wanted(text(setting), gang.reason)) if setting else None


def _lacks(backend: Backend) -> str | None:
    """Return why the backend cannot be used, or why it cannot tell; None when it is usable."""
    try:
        return backend.probe()
    except FAILURES as error:
        return f"cannot look whether it is usable: {error}"


def _key(index: int) -> str:
    return f"{CACHE}{index}"


def _index(key: str) -> int:
    return int(key.removeprefix(CACHE))
