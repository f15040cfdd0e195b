# SPDX-License-Identifier: Apache-2.0
"""The values of the actuator `gang`: a cache and a gang, as text and back. Pure.

Keys are sorted and there are no spaces, so that equal settings are equal texts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from gangd.model.domain import WEIGHT_DEFAULT, Mode
from gangd.model.plan import Cache, GangPlan


class Member(NamedTuple):
    """The vCPU `vcpu`, which is the host thread `tid`, has its seat on host CPU `cpu`."""

    vcpu: int
    tid: int
    cpu: int


class CacheSetting(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A cache. cpus: one a column; none: it is no cache any longer. turn_us: microseconds of a turn at most.
    cores: for each of `cpus` the lowest one on the same core; empty: each is a core by itself."""

    cpus: tuple[int, ...]
    turn_us: int = msgspec.field(name="slot_us")  # in the journal
    cores: tuple[int, ...] = ()

    @classmethod
    def of(cls, cache: Cache, turn_us: int) -> CacheSetting:
        """Return the setting that a plan's cache asks for."""
        return cls(cache.cpus, turn_us, cache.cores)

    @property
    def columns(self) -> dict[int, int]:
        """Return the column of each CPU."""
        return {cpu: column for column, cpu in enumerate(self.cpus)}


class GangSetting(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The threads `members` of process `pid` are a gang of cache `cache`; weight: 1 to 10000."""

    cache: int = msgspec.field(name="domain")  # in the journal
    members: tuple[Member, ...]
    mode: Mode
    pid: int
    weight: int = WEIGHT_DEFAULT

    @classmethod
    def of(cls, gang: GangPlan) -> GangSetting | None:
        """Return the setting that a plan's gang asks for; None while no thread of it can be scheduled.

        A vCPU without a known thread is no member: it was plugged a moment ago, or is just leaving.
        """
        places = [(place.vcpu, place.tid, place.cpu) for place in gang.placements]
        members = tuple(Member(vcpu, tid, cpu) for vcpu, tid, cpu in places if tid is not None)
        if not members or gang.cache is None or gang.pid is None or gang.mode is Mode.OFF:
            return None
        return cls(gang.cache, members, gang.mode, gang.pid, gang.weight)


def text(setting: CacheSetting | GangSetting) -> str:
    """Return the setting as JSON."""
    return msgspec.json.encode(setting, order="sorted").decode()


def parse(value: str) -> CacheSetting | GangSetting:
    """Return the setting of a text. Raises msgspec.ValidationError."""
    table = msgspec.json.decode(value, type=dict[str, Any])
    kind: type[CacheSetting | GangSetting] = CacheSetting if "cpus" in table else GangSetting
    return msgspec.convert(table, kind)
