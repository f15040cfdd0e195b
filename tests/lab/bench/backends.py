# SPDX-License-Identifier: Apache-2.0
"""The two backends by name, driven as the actuator drives them, but without a daemon in between.

What the tree or the kernel does not have is said in a sentence: `Missing`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Protocol

from gangd.actuate import preflight
from gangd.bpf import abi
from gangd.errors import GangError


class Missing(Exception):
    """Why a variant cannot be measured here."""


class Loaded(Protocol):
    """A backend at work, the part that is needed here."""

    def set_domain(self, index: int, cpus: list[int], slot_us: int) -> None:
        """Co-schedule over `cpus`; none: no longer."""

    def set_gang(self, number: int, setting: dict[str, Any], columns: dict[int, int]) -> None:
        """Make the members of `setting` gang `number`."""

    def drop_gang(self, number: int, setting: dict[str, Any]) -> None:
        """Make them ordinary tasks again."""

    def gang_stats(self, number: int) -> abi.GangSlotStats:
        """Counters since the number was first used."""

    def counters(self) -> dict[str, int]:
        """Its own account."""

    def ejected(self) -> str | None:
        """Why the kernel threw it out."""

    def close(self) -> None:
        """Unload it."""


def load(name: str, favour: str | None) -> Loaded:
    """Load a backend. Raises Missing with the reason why it is not to be had."""
    try:
        loaded: Loaded = _LOADERS[name](favour)
        return loaded
    except GangError as error:
        raise Missing(error.cause)
    except OSError as error:
        raise Missing(str(error))


def _sched_ext(_favour: str | None) -> Any:
    from gangd import bpf

    reason = preflight.check(bpf)
    if reason:
        raise Missing(reason)
    return importlib.import_module("gangd.actuate.sched_ext").Scheduler()


def _module(favour: str | None) -> Any:
    try:
        found = importlib.import_module("gangd.actuate.module")
    except ModuleNotFoundError:
        raise Missing("this gangd has no backend for the kernel module")
    reason = found.probe()
    if reason:
        raise Missing(reason)
    return found.Module(favour=favour)


_LOADERS: dict[str, Callable[[str | None], Any]] = {"sched_ext": _sched_ext, "module": _module}
