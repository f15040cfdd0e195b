# SPDX-License-Identifier: Apache-2.0
"""The CPUs and weight that a guest's own cgroup should have; scope.py and cgroup.py set them. Pure.

Room. The kernel lets no thread be pinned outside its guest's own cgroup: with v2 the
vcpuN group takes the CPU and the thread does not (sched_setaffinity(2), EINVAL), so
that libvirt fails with the pin half done. Either gangd gives the group room for all
pins of the plan before it makes them, and restores the group's CPUs after it undid them;
or, by default, it leaves the group as its owner made it and such pins are refused.

A guest whose scheduler chooses CPUs has no pins, and needs no room.

Weight. The weight of a mark or profile becomes its group's, which the sched_ext
scheduler and the host's own keep. gang.ko weighs gangs itself: never both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gangd.actuate.base import Actuator
from gangd.errors import InvalidArgument
from gangd.model.cpulist import format_cpulist, parse_cpulist
from gangd.model.plan import GangPlan, Plan

V1_CPUSET = Path("sys/fs/cgroup/cpuset/cpuset.cpus")  # there if cgroup v1 has that controller
ROOM = "holds every CPU that its threads are pinned to"
WEIGHT = "the weight of its mark or profile"

# (PID, UUID) -> the guest's cgroup by controller ("" for v2); None when the guest is gone
Groups = Callable[[int, str], Mapping[str, str] | None]


@dataclass(frozen=True)
class Limits:
    """The limits that the configuration lets gangd set.

    weighs: True if the scheduler of gangs has weights of its own. roams: True of a gang whose
    scheduler chooses its members' CPUs.
    """

    room: bool = False
    weight: bool = False
    weighs: Callable[[], bool] = lambda: False
    roams: Callable[[GangPlan], bool] = lambda gang: False

    def rooms(self, plan: Plan) -> dict[str, str]:
        """ "UUID/PID" -> every CPU that `plan` pins a thread of the guest to, as a list."""
        pinned = [gang for gang in plan.scheduled if not self.roams(gang)]
        gangs = [gang for gang in pinned if self.room and gang.pid is not None]
        return {_guest(gang): format_cpulist(_pinned(gang)) for gang in gangs}

    def weights(self, plan: Plan) -> dict[str, int]:
        """ "UUID/PID" -> the weight its mark or profile asks for, unless its scheduler keeps that."""
        gangs = [gang for gang in plan.gangs if self.weight and gang.pid is not None and gang.asked]
        if any(gang.needs_scheduler for gang in gangs) and self.weighs():
            gangs = [gang for gang in gangs if not gang.needs_scheduler]
        return {_guest(gang): gang.asked for gang in gangs if gang.asked}


class LimitActuator(Actuator):
    """An actuator of a guest's limits, which widens its CPU list. cpus: the name of that list in a key."""

    cpus: str

    def widened(self, key: str, now: str, value: str) -> str:
        """Return the CPU list with room for `value`; any other value as it is."""
        return union(now, value) if key.endswith(f"/{self.cpus}") else value

    def show(self, value: str) -> str:
        """Return the value as it is, and 'not set' for the empty one."""
        return value or "not set"


def _guest(gang: GangPlan) -> str:
    return f"{gang.uuid}/{gang.pid}"


def _pinned(gang: GangPlan) -> frozenset[int]:
    return frozenset(place.cpu for place in gang.placements).union(*(h.cpus for h in gang.helpers))


def split(key: str) -> tuple[str, int, str]:
    """UUID, PID and name of the property in a key "UUID/PID/NAME". Raises InvalidArgument."""
    uuid, _, rest = key.partition("/")
    pid, _, name = rest.partition("/")
    if not pid.isdecimal() or not name:
        raise InvalidArgument(f"'{key}' names no property of a guest's cgroup")
    return uuid, int(pid), name


def union(now: str, value: str) -> str:
    """The CPUs of two lists; the empty list is no limit, and holds all."""
    return format_cpulist(parse_cpulist(now) | parse_cpulist(value)) if now else ""
