# SPDX-License-Identifier: Apache-2.0
"""CPUs and weight of a guest on a host without systemd: files of its cgroup, through libcgroup.

    UUID/PID/cpuset.cpus    a kernel CPU list; with v2 "" = no limit
    UUID/PID/cpu.weight     v2: 1 to 10000, 100 is the default
    UUID/PID/cpu.shares     v1: the same times 10.24

With v1, v2 or both: each controller is in one of them (libcgroup.py). Values are the
kernel's own text, so that what is put back is what was there. cpuset.cpus is only ever
widened (limits.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from gangd.actuate.base import Wanted
from gangd.actuate.libcgroup import Libcgroup
from gangd.actuate.limits import ROOM, WEIGHT, Groups, LimitActuator, Limits, split
from gangd.errors import GangError, NotRunning
from gangd.model.domain import WEIGHT_DEFAULT
from gangd.model.plan import Plan

CPUS = "cpuset.cpus"
SHARES, V2_WEIGHT = "cpu.shares", "cpu.weight"
SHARES_DEFAULT = 1024


class Library(Protocol):
    """The part of gangd.actuate.libcgroup.Libcgroup that this actuator uses."""

    def version(self, controller: str) -> int | None:
        """1 or 2, None where there is no such controller."""

    def get(self, controller: str, group: str, name: str) -> str:
        """A value of a group."""

    def set(self, controller: str, group: str, name: str, value: str) -> None:
        """Set it."""


class Cgroup(LimitActuator):
    """groups: finds a guest's cgroups. load: gives the library, when it is needed, or raises GangError."""

    name = "cgroup"
    cpus = CPUS

    def __init__(
        self, groups: Groups, limits: Limits | None = None, load: Callable[[], Library] = Libcgroup
    ) -> None:
        self._groups = groups
        self._limits = limits or Limits()
        self._load = load
        self._loaded: Library | None = None

    def probe(self) -> str | None:
        """None when the library is there and finds both controllers, else what is missing."""
        try:
            library = self._library()
        except GangError as error:
            return error.cause
        missing = [name for name in ("cpu", "cpuset") if library.version(name) is None]
        return f"the host has no {' and no '.join(missing)} cgroup controller" if missing else None

    def wanted(self, plan: Plan) -> dict[str, Wanted]:
        """The settings that the configuration asks for a plan's guests; the library names the weight file."""
        found = {f"{guest}/{CPUS}": Wanted(cpus, ROOM) for guest, cpus in self._limits.rooms(plan).items()}
        weights = self._limits.weights(plan)
        old = bool(weights) and self._has_shares()
        for guest, weight in weights.items():
            shares = weight * SHARES_DEFAULT // WEIGHT_DEFAULT
            found[f"{guest}/{SHARES if old else V2_WEIGHT}"] = Wanted(str(shares if old else weight), WEIGHT)
        return found

    def read(self, key: str) -> str | None:
        """Return the file's text; None when the guest is gone."""
        found = self._place(key, f"failed to read {self.describe(key)}")
        if found is None:
            return None
        try:
            return self._library().get(*found)
        except GangError:
            if self._place(key, "") is None:  # the guest ended meanwhile
                return None
            raise

    def write(self, key: str, value: str) -> None:
        """Set it. Raises NotRunning when the guest is gone, GangError with the kernel's cause."""
        action = f"failed to set {self.describe(key)}"
        found = self._place(key, action)
        if found is None:
            raise NotRunning("the guest is not running", action)
        self._library().set(*found, value)

    def describe(self, key: str) -> str:
        """The setting in words."""
        uuid, _, name = split(key)
        return f"{name} of the cgroup of {uuid}"

    def _place(self, key: str, action: str) -> tuple[str, str, str] | None:
        """Controller, group and file of a key; None when the guest is gone."""
        uuid, pid, name = split(key)
        groups = self._groups(pid, uuid)
        if groups is None:
            return None
        controller = name.partition(".")[0]
        group = groups.get("" if self._library().version(controller) == 2 else controller)
        if not group:
            raise GangError(f"libvirt created no {controller} cgroup for it", action)
        return controller, group, name

    def _has_shares(self) -> bool:
        """True if weights are cpu.shares here; False where that cannot be told: the probe says so."""
        try:
            return self._library().version("cpu") == 1
        except GangError:
            return False

    def _library(self) -> Library:
        if self._loaded is None:
            self._loaded = self._load()
        return self._loaded
