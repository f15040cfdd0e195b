# SPDX-License-Identifier: Apache-2.0
"""The interface of all actuators, so that journal, verify and undo are written once.

A host is a set of settings: (actuator, key) -> text. An actuator knows how to
name the settings a plan asks for, how to read one and how to write one. The
executor does the rest: compare, journal the prior value, write, read back,
and put the prior value back when a setting is no longer wanted. The habit is
tuned's (plugins/decorators.py: a getter and a setter per setting).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar, runtime_checkable

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


class Toggle(Protocol):
    """Settings that an operator changes and a plan has no say in: journaled and undone like all others.
    All methods may block; none keeps a lock across calls."""

    name: str

    def read(self, key: str) -> str | None:
        """The setting's value now; None when the thing it belongs to is gone."""

    def write(self, key: str, value: str) -> None:
        """Set it. Raises GangError naming object, action and cause."""


@runtime_checkable
class Actuator(Toggle, Protocol):
    """One way to change the host as a plan wants it."""

    def probe(self) -> str | None:
        """None when usable, else one sentence saying what is missing."""

    def wanted(self, plan: Plan) -> dict[str, Wanted]:
        """The settings `plan` asks of this actuator, by key. Pure."""


@runtime_checkable
class Describes(Protocol):
    """An actuator that can also say in words what a key stands for; others are shown by name and key."""

    def describe(self, key: str) -> str:
        """The setting as a noun: "the pin of vCPU 1 of 'vm'". Never raises."""

    def changed(self, key: str, value: str) -> str:
        """The sentence that somebody else set it to `value`. Never raises."""

    def show(self, value: str) -> str:
        """A value as people read it. Never raises."""


@runtime_checkable
class Caches(Protocol):
    """An actuator that can ask once for many settings."""

    def begin(self) -> None:
        """A pass over the settings begins: what is looked up in it may be remembered."""

    def end(self) -> None:
        """The pass is over: what was looked up may be old."""


@runtime_checkable
class Keeps(Protocol):
    """An actuator whose refused write leaves the setting as it was, or not set: it needs no putting back."""

    keeps: bool


@runtime_checkable
class Masks(Protocol):
    """An actuator with settings that read as the part of the written value that the host has now.

    A setting that reads as its prior value may therefore hold another one.
    """

    def shows(self, key: str, value: str) -> str | None:
        """Return the text that the setting reads as now if `value` was written last.

        "" where any text is possible, None when the setting is gone.
        """


@runtime_checkable
class Parts(Protocol):
    """An actuator with settings that have parts, each of which somebody may change alone.

    read() and write() are read_but() and write_but() that keep no part.
    """

    def values(self, key: str) -> frozenset[str]:
        """Return the values of the parts now, none when they are gone."""

    def read_but(self, key: str, kept: Set[str]) -> str | None:
        """The value without the parts that read as one of `kept`."""

    def write_but(self, key: str, value: str, kept: Set[str]) -> None:
        """Set the parts, but not those that read as one of `kept`."""

    def differ(self, key: str) -> str:
        """The sentence that somebody gave the parts different values. Never raises."""


@runtime_checkable
class Widens(Protocol):
    """An actuator of whose settings a plan wants "at least": what is written depends on what is there."""

    def widened(self, key: str, now: str, value: str) -> str:
        """The least value that holds both `now` and `value`: `now` itself where that is enough. Pure."""
