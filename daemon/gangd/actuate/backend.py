# SPDX-License-Identifier: Apache-2.0
"""The interface of the two backends that schedule gangs in the kernel, as the actuator `gang` sees it.

A backend says whether it would work here, and loads a scheduler, which takes orders
until it is closed or the kernel ejects it.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Protocol

from gangd.actuate.ejection import Ejection
from gangd.actuate.gang_setting import CacheSetting, GangSetting
from gangd.bpf import abi
from gangd.errors import NoBackend
from gangd.model.domain import Mode

MODES = {
    Mode.OFF: abi.GangMode.OFF,
    Mode.BALANCE: abi.GangMode.BALANCE,
    Mode.RELAXED: abi.GangMode.RELAXED,
    Mode.STRICT: abi.GangMode.STRICT,
}


class Loaded(Protocol):
    """A backend at work. Every order raises GangError when the kernel refuses it."""

    def set_cache(self, index: int, setting: CacheSetting) -> Set[int] | None:
        """Co-schedule over the CPUs of `setting`; where it has none, no longer. Returns the numbers of the
        gangs that the backend lost by that; None: it loses none."""

    def set_gang(self, number: int, setting: GangSetting, columns: dict[int, int]) -> None:
        """Make the members of `setting` gang `number`, and nobody else; `columns` maps CPU to column."""

    def limit(self, setting: GangSetting) -> str | None:
        """A limit on the members' CPU time that this backend would break; None: there is none."""

    def drop_gang(self, number: int, setting: GangSetting) -> None:
        """Make the members of `setting` ordinary tasks again."""

    def gang_stats(self, number: int) -> abi.GangStats:
        """Counters of one gang since its number was first used."""

    def counters(self) -> dict[str, int]:
        """The backend's own account, all CPUs added up."""

    def histograms(self) -> dict[str, list[int]]:
        """Counts by bucket, all CPUs added up: bucket b is of times below 2^b microseconds."""

    def ejected(self) -> Ejection | None:
        """Why the kernel threw it out, None while it is in."""

    def descriptors(self) -> tuple[int, ...]:
        """Descriptors that keep it loaded while somebody has copies of all; none: only this process does."""

    def close(self) -> None:
        """Unload; every task is an ordinary one when this returns."""


@dataclass(frozen=True)
class Backend:
    """probe: None when usable here, else one sentence. load: raises NoBackend, or LoadFailed with a log.

    roams: members run where the scheduler puts them, so nobody pins them, and their group's weight is their
    guest's. fair: a gang is charged for what it runs, and takes nothing from its neighbours. in_use: what it
    does while it is loaded, in a sentence. refuses: why it cannot schedule in a mode here, None when it can;
    loaded or not.
    """

    name: str
    probe: Callable[[], str | None]
    load: Callable[[], Loaded]
    in_use: Callable[[], str] = str
    roams: bool = False
    fair: bool = False
    refuses: Callable[[Mode], str | None] = lambda _mode: None


class LoadFailed(NoBackend):
    """The kernel refused the scheduler; `log` is the loader's and the verifier's own text."""

    def __init__(self, cause: str, log: str) -> None:
        super().__init__(cause)
        self.log = log
