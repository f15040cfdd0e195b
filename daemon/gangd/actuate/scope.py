# SPDX-License-Identifier: Apache-2.0
"""CPUs and weight of a guest where systemd has its cgroup: properties of its machine scope, at run time only.

    UUID/PID/AllowedCPUs    a kernel CPU list, "" = no limit
    UUID/PID/CPUWeight      1 to 10000, "idle", "" = the default

systemd.resource-control(5). Through systemd and not in its cgroupfs, because it writes
what it knows again whenever it likes. AllowedCPUs= is only ever widened (limits.py).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from gangd.actuate.base import Wanted
from gangd.actuate.limits import ROOM, WEIGHT, Groups, LimitActuator, Limits, split
from gangd.errors import GangError, InvalidArgument, NotRunning, TimedOut
from gangd.model.cpulist import format_cpulist, parse_cpulist
from gangd.model.plan import Plan

CPUS = "AllowedCPUs"
CPU_WEIGHT = "CPUWeight"
_WORDS = {"": 2**64 - 1, "idle": 0}  # what CPUWeight= may be besides a number, and its number on the bus
CONTROLLERS = Path("sys/fs/cgroup/cgroup.controllers")
_SCOPE = re.compile(r"machine-.+\.scope")


class Manager(Protocol):
    """The part of gangd.systemd.Systemd that this actuator uses."""

    def scope(self, unit: str, name: str) -> Any:
        """A property, None when there is no such scope."""

    def set(self, unit: str, name: str, signature: str, value: object) -> None:
        """Set it at run time."""


class Scope(LimitActuator):
    """groups: finds a guest's cgroups. `root` is where sys is; a test may have its own."""

    name = "scope"
    cpus = CPUS

    def __init__(
        self, manager: Manager, groups: Groups, limits: Limits | None = None, root: Path = Path("/")
    ) -> None:
        self._manager = manager
        self._groups = groups
        self._limits = limits or Limits()
        self._root = root
        self._passing = False
        self._mute: str | None = None  # the reason why systemd is not asked again in this pass

    def probe(self) -> str | None:
        """None when systemd can set both properties, else what is missing."""
        try:
            controllers = (self._root / CONTROLLERS).read_text().split()
        except OSError:
            return "gangd sets CPUs and weight of scopes with cgroup v2 only, and this host has v1"
        missing = [name for name in ("cpu", "cpuset") if name not in controllers]
        return f"cgroup v2 has no {' and no '.join(missing)} controller here" if missing else None

    def wanted(self, plan: Plan) -> dict[str, Wanted]:
        """The settings that the configuration asks for the guests of a plan."""
        found = {f"{guest}/{CPUS}": Wanted(cpus, ROOM) for guest, cpus in self._limits.rooms(plan).items()}
        for guest, weight in self._limits.weights(plan).items():
            found[f"{guest}/{CPU_WEIGHT}"] = Wanted(str(weight), WEIGHT)
        return found

    @contextlib.contextmanager
    def passing(self) -> Iterator[None]:
        """Until the context ends ask systemd nothing after a call that it does not answer: each takes its
        whole time limit."""
        self._passing = True
        try:
            yield
        finally:
            self._passing, self._mute = False, None

    def read(self, key: str) -> str | None:
        """The property as text; None when the guest or its scope is gone."""
        name = split(key)[2]
        unit = self._unit(key, f"failed to read {self.describe(key)}")
        value = self._asked(lambda: self._manager.scope(unit, name)) if unit else None
        return None if value is None else _property(name).text(value)

    def write(self, key: str, value: str) -> None:
        """Set the property. Raises NotRunning when the guest is gone, InvalidArgument, GangError."""
        name = split(key)[2]
        action = f"failed to set {self.describe(key)}"
        found = _property(name)
        try:
            on_bus = found.on_bus(value)
        except ValueError:
            raise InvalidArgument(f"'{value}' is not a value of {name}=", action)
        unit = self._unit(key, action)
        if unit is None:
            raise NotRunning("the guest is not running", action)
        self._asked(lambda: self._manager.set(unit, name, found.signature, on_bus))

    def describe(self, key: str) -> str:
        """The setting in words."""
        uuid, _, name = split(key)
        return f"{name}= of the scope of {uuid}"

    def _asked(self, call: Callable[[], Any]) -> Any:
        """Return what systemd answers. Raises what the call does, and TimedOut after one that did."""
        if self._mute is not None:
            raise TimedOut(self._mute)
        try:
            return call()
        except TimedOut as error:
            self._mute = error.cause if self._passing else None
            raise

    def _unit(self, key: str, action: str) -> str | None:
        """The scope of the guest, from its process; None when that is gone."""
        uuid, pid, _ = split(key)
        groups = self._groups(pid, uuid)
        if groups is None:
            return None
        path = groups.get("", "")
        unit = path.rpartition("/")[2]
        if not _SCOPE.fullmatch(unit):
            where = (
                f"its cgroup /{path} is not a machine scope" if path else "libvirt created no cgroup for it"
            )
            raise GangError(where, action)
        return unit


@dataclass(frozen=True)
class _Property:
    """Type on the bus, and how its values are written as text and back."""

    signature: str
    text: Callable[[Any], str]
    on_bus: Callable[[str], object]


def _property(name: str) -> _Property:
    if name not in _PROPERTIES:
        raise InvalidArgument(f"gangd sets no property {name}=")
    return _PROPERTIES[name]


def _cpus_text(mask: bytes) -> str:
    """Return the CPU list of a mask with one bit for each CPU, lowest first."""
    bits = int.from_bytes(mask, "little")
    return format_cpulist(cpu for cpu in range(bits.bit_length()) if bits >> cpu & 1)


def _cpus_on_bus(text: str) -> bytes:
    bits = sum(1 << cpu for cpu in parse_cpulist(text))
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")


def _weight_text(weight: int) -> str:
    return next((word for word, number in _WORDS.items() if number == weight), str(weight))


def _weight_on_bus(text: str) -> int:
    return _WORDS[text] if text in _WORDS else int(text)


_PROPERTIES = {
    CPUS: _Property("ay", _cpus_text, _cpus_on_bus),
    CPU_WEIGHT: _Property("t", _weight_text, _weight_on_bus),
}
