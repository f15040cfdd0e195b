# SPDX-License-Identifier: Apache-2.0
"""The base of all actuators, so that journal, verify and undo are written once.

A host is a set of settings: (actuator, key) -> text. An actuator knows how to
name the settings a plan asks for, how to read one and how to write one. The
executor does the rest: compare, journal the prior value, write, read back,
and put the prior value back when a setting is no longer wanted. The habit is
tuned's (plugins/decorators.py: a getter and a setter per setting).
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from gangd.errors import FAILURES
from gangd.model.plan import GangPlan, Plan
from gangd.model.refused import Refused

T = TypeVar("T")


@dataclass(frozen=True)
class Change:
    """A setting that differs from what is wanted; now None = unreadable. `text` says it in words."""

    actuator: str
    key: str
    now: str | None
    wanted: str
    reason: str
    text: str = ""


@dataclass(frozen=True)
class Report:
    """The result of one reconcile; failures are sentences. missing: why an actuator is unusable. refused:
    guests with settings that failed or are missing. failed: failures at a look now, in a sum of reports in
    all. again: guests (or "domain") with a failed setting to retry, as `stale` of Executor.reconcile()."""

    writes: int = 0
    undone: int = 0
    failures: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    refused: tuple[Refused, ...] = ()
    failed: int = 0
    again: frozenset[str] = frozenset()

    @property
    def counted(self) -> dict[str, int]:
        """Return the counters of settings by their names in SelfStats."""
        return {"writes": self.writes, "write_failures": self.failed, "undone": self.undone}

    @property
    def troubles(self) -> tuple[str, ...]:
        """Return every sentence about a setting that this reconcile could not apply or undo."""
        return *self.missing, *self.failures

    def then(self, later: Report) -> Report:
        """Return the sum of both reports' counters, with the troubles and refusals of `later` alone."""
        writes, undone = self.writes + later.writes, self.undone + later.undone
        return Report(writes, undone, later.troubles, (), later.refused, self.failed + later.failed)


@dataclass(frozen=True)
class Wanted:
    """The value a plan asks of one setting, and why."""

    value: str
    reason: str = field(compare=False, default="")


class PerGang(Generic[T]):
    """The answers of `make` about each gang: about one whose plan is the object of the last time it is not
    asked again, and a host has thousands of them."""

    def __init__(self, make: Callable[[GangPlan], T]) -> None:
        self._make = make
        self._known: dict[str, tuple[GangPlan, T]] = {}

    def of(self, gangs: Iterable[GangPlan]) -> Iterator[T]:
        """Yield it in their order; who is not among them is forgotten."""
        known, self._known = self._known, {}
        for gang in gangs:
            last = known.get(gang.uuid)
            self._known[gang.uuid] = last if last and last[0] is gang else (gang, self._make(gang))
            yield self._known[gang.uuid][1]


class Toggle(ABC):
    """Settings that an operator changes and a plan has no say in: journaled and undone like all others.
    Every method may block; none keeps a lock across calls."""

    name: str
    keeps: bool = False  # a refused write leaves the setting as it was, or not set: it needs no putting back
    masks: bool = False  # a setting that reads as its prior value may hold another: see shows()

    @abstractmethod
    def read(self, key: str) -> str | None:
        """Return the setting's value now; None when the thing it belongs to is gone."""

    @abstractmethod
    def write(self, key: str, value: str) -> None:
        """Set it. Raises GangError naming object, action and cause."""

    def passing(self) -> contextlib.AbstractContextManager[None]:
        """Return the context of a pass over many settings, in which look-ups may be remembered."""
        return contextlib.nullcontext()

    def shows(self, key: str, value: str) -> str | None:
        """Return the text that the setting reads as now if `value` was written last: the part of `value` that
        the host has. "" where any text is possible, None when the setting is gone."""
        return value

    def reads_as(self, key: str, now: str | None, value: str) -> bool:
        """True if a setting that reads `now` may have the value."""
        return now == value or now == self.shows(key, value)

    def values(self, key: str) -> frozenset[str] | None:
        """Return the values now of the parts that somebody may change one by one, none when they are gone;
        None for a setting without parts."""
        return None

    def read_but(self, key: str, kept: Set[str]) -> str | None:
        """Return the value without the parts that read as one of `kept`."""
        return self.read(key)

    def write_but(self, key: str, value: str, kept: Set[str]) -> None:
        """Set the parts, but not those that read as one of `kept`. Raises as write() does."""
        self.write(key, value)

    def differ(self, key: str) -> str | None:
        """Return the sentence that somebody gave the parts different values; None if they have one value."""
        return None

    def widened(self, key: str, now: str, value: str) -> str:
        """Return the text to write where a plan wants `value` and the setting reads `now`. Pure.

        A plan may want a setting "at least": the least value then that holds both.
        """
        return value

    def describe(self, key: str) -> str:
        """Return the setting as a noun: "the pin of vCPU 1 of 'vm'". Raises InvalidArgument for a key that is
        none of the actuator's."""
        return f"{self.name} {key}"

    def noun(self, key: str) -> str:
        """Return the setting as a noun, also where another version of gangd journaled the key."""
        with contextlib.suppress(*FAILURES):
            return self.describe(key)
        return f"{self.name} {key}"

    def show(self, value: str) -> str:
        """Return the value as people read it."""
        return value

    def changed(self, key: str, value: str) -> str:
        """Return the sentence that somebody else set it to `value`."""
        return f"{self.describe(key)} was changed by hand to {self.show(value)}"

    def change(self, key: str, now: str | None, wanted: str, reason: str) -> Change:
        """Return the change of a setting that reads `now`; None: it cannot be read."""
        text = f"{self.noun(key)}: {'unknown' if now is None else self.show(now)} -> {self.show(wanted)}"
        return Change(self.name, key, now, wanted, reason, text)


class Actuator(Toggle):
    """An actuator changes one kind of setting of the host as a plan wants it."""

    @abstractmethod
    def probe(self) -> str | None:
        """Return None when usable, else one sentence saying what is missing."""

    @abstractmethod
    def wanted(self, plan: Plan) -> dict[str, Wanted]:
        """Return the settings that `plan` asks of this actuator, by key. Pure."""
