# SPDX-License-Identifier: Apache-2.0
"""Makes the host what a plan wants, and can always take it back. steps.py has what one setting takes.

CHUNK settings of an actuator take their steps together, so that the journal is flushed twice for all of them;
a caller that asks for the chunks one by one may do something else between two. One setting's failure is a
sentence in the report and stops no other.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import cast

from gangd.actuate.base import Actuator, Change, Report, Toggle, Wanted
from gangd.actuate.journal import Entry, Journal
from gangd.actuate.steps import Steps, Work, is_ours_still, to_write
from gangd.actuate.tally import Tally
from gangd.errors import FAILURES, GangError, NoBackend
from gangd.model.plan import Plan
from gangd.model.refused import Refused

NO_LONGER_WANTED = "no longer wanted: back to what it was"
CHUNK = 64  # settings: some 20 ms of system calls

# A pass over many settings: it yields after each chunk, and returns what was done.
Pass = Generator[None, None, Report]


@dataclass(frozen=True)
class _Look:
    """The last look at a setting. wanted: the value, None = what was there before gangd."""

    wanted: str | None
    tally: Tally


class Executor:
    """Applies `actuators` in order and undoes them in reverse. Blocking; one call at a time.

    Toggles among them are left alone by plans: set() changes them, undo() puts them back.
    """

    def __init__(self, actuators: Sequence[Toggle], journal: Journal) -> None:
        self.journal = journal
        self._steps = Steps(journal)
        self._all = tuple(actuators)
        self._looks: dict[tuple[str, str], _Look] = {}  # (actuator, key) -> the last look at it
        self._actuators = tuple(actuator for actuator in actuators if isinstance(actuator, Actuator))

    def probe(self) -> dict[str, str | None]:
        """Actuator name -> None when usable, else what is missing."""
        return {actuator.name: actuator.probe() for actuator in self._actuators}

    def changes(self, plan: Plan) -> list[Change]:
        """Return the changes that `reconcile(plan)` would make now, undoing first. Changes nothing."""
        with self._passing():
            return self._changes(plan)

    def _changes(self, plan: Plan) -> list[Change]:
        found: list[Change] = []
        for actuator in reversed(self._actuators):
            wanted = actuator.wanted(plan)
            for key, entry in self._journaled(actuator):
                now = _readable(actuator, key)
                if (
                    key not in wanted
                    and now is not None
                    and now != entry.prior
                    and is_ours_still(actuator, key, entry, now)
                ):
                    found.append(actuator.change(key, now, entry.prior, NO_LONGER_WANTED))
        for actuator in self._actuators:
            for key, want in actuator.wanted(plan).items():
                now = _readable(actuator, key)
                value = to_write(actuator, key, now, want)
                if not actuator.reads_as(key, now, value) and not self._steps.left_alone(actuator, key, now):
                    found.append(actuator.change(key, now, value, want.reason))
        return found

    def reconcile(self, plan: Plan, stale: Set[str] | None = None) -> Report:
        """All of reconciling(), in one go."""
        return _whole(self.reconciling(plan, stale))

    def reconciling(self, plan: Plan, stale: Set[str] | None = None) -> Pass:
        """Undo what `plan` no longer wants, then apply what it wants. Never raises GangError.

        stale: guests (UUIDs) whose settings may have changed since, and "domain" for caches.
        Of others only what is wanted anew is looked at: a host may have thousands of settings. What stood in
        the way at the last look at the rest is reported again. None: all are stale.
        """
        tally = Tally()
        wanted = {actuator.name: actuator.wanted(plan) for actuator in self._actuators}
        self._looks = {
            one: look
            for one, look in self._looks.items()
            if one[1] in wanted[one[0]] or one in self.journal.entries
        }
        for actuator in reversed(self._actuators):
            yield from self._in_chunks(
                self._look((actuator.name, key), None, partial(self._steps.undo, actuator, key, entry), tally)
                for key, entry in self._journaled(actuator)
                if key not in wanted[actuator.name]
                and not self._stands((actuator.name, key), None, stale, tally)
            )
        self._orphans("", tally)
        for actuator in self._actuators:
            if not self._is_missing(actuator, wanted[actuator.name], plan, tally):
                yield from self._in_chunks(
                    self._look(
                        (actuator.name, key),
                        want.value,
                        partial(self._steps.apply, actuator, key, want, _guest(plan, key)),
                        tally,
                    )
                    for key, want in wanted[actuator.name].items()
                    if not self._stands((actuator.name, key), want.value, stale, tally)
                )
        return tally.report()

    def _stands(self, one: tuple[str, str], wanted: str | None, stale: Set[str] | None, tally: Tally) -> bool:
        """True if the setting was read for the same wish last, and is not stale since."""
        last = self._looks.get(one)
        stands = last is not None and last.wanted == wanted and not _is_of(one[1], stale)
        if last and stands:
            tally.still(last.tally)
        return stands

    def _look(
        self, one: tuple[str, str], wanted: str | None, work: Callable[[Tally], Work], tally: Tally
    ) -> Work:
        look = _Look(wanted, Tally())
        yield from work(look.tally)
        tally.add(look.tally)
        self._looks[one] = look

    def _is_missing(self, actuator: Actuator, wanted: Mapping[str, Wanted], plan: Plan, tally: Tally) -> bool:
        """True if the actuator can do nothing of what is wanted; what it did may be gone when it can."""
        missing = _missing(actuator) if wanted else None
        if missing is None:
            return False
        tally.missing.append(f"{actuator.name}: {missing}")
        guests = filter(None, dict.fromkeys(_guest(plan, key) for key in wanted))
        tally.refused += [Refused(guest, actuator.name, NoBackend.code, missing) for guest in guests]
        for key in wanted:
            self._looks.pop((actuator.name, key), None)
        return True

    def undo(self, prefix: str | None = None) -> Report:
        """All of undoing(), in one go."""
        return _whole(self.undoing(prefix))

    def undoing(self, prefix: str | None = None) -> Pass:
        """Restore everything journaled, or the settings whose key starts with `prefix` (a UUID)."""
        tally = Tally()
        self._looks = {one: look for one, look in self._looks.items() if not one[1].startswith(prefix or "")}
        for actuator in reversed(self._all):
            yield from self._in_chunks(
                self._steps.undo(actuator, key, entry, tally)
                for key, entry in self._journaled(actuator)
                if key.startswith(prefix or "")
            )
        self._orphans(prefix or "", tally)
        return tally.report()

    def forget(self, name: str) -> None:
        """Drop the settings of one actuator from the journal: whoever comes next finds them unset. Raises
        GangError."""
        for known, key in list(self.journal.entries):
            if known == name:
                self.journal.drop(known, key)
        self.journal.flush()

    def set(self, name: str, key: str, value: str) -> None:
        """Write one setting because an operator says so, whoever changed it before. Raises GangError."""
        actuator = next(actuator for actuator in self._all if actuator.name == name)
        self._steps.set(actuator, key, value)

    def _in_chunks(self, works: Iterable[Work]) -> Iterator[None]:
        """Do the works, which are of one actuator; a yield after each chunk."""
        every = list(works)
        for at in range(0, len(every), CHUNK):
            with self._passing():
                waiting, failure = every[at : at + CHUNK], None
                while waiting:
                    waiting = [work for work in waiting if _goes_on(work, failure)]
                    failure = self._flush()
            yield

    def _flush(self) -> GangError | None:
        """The journal is on disk now; else returns the error that kept it from there."""
        try:
            self.journal.flush()
        except GangError as error:
            return error
        return None

    @contextlib.contextmanager
    def _passing(self) -> Iterator[None]:
        """Let the actuators remember their look-ups until the context ends."""
        with contextlib.ExitStack() as passes:
            for actuator in self._all:
                passes.enter_context(actuator.passing())
            yield

    def _journaled(self, actuator: Toggle) -> list[tuple[str, Entry]]:
        """This actuator's entries, latest first."""
        found = [(key, entry) for (name, key), entry in self.journal.entries.items() if name == actuator.name]
        return found[::-1]

    def _orphans(self, prefix: str, tally: Tally) -> None:
        """Entries of actuators this daemon runs without: kept for one that has them."""
        known = {actuator.name for actuator in self._all}
        for name, key in self.journal.entries:
            if name not in known and key.startswith(prefix):
                tally.failures.append(f"cannot undo changes made by '{name}': it is not in use now")


def next_step(steps: Pass) -> Report | None:
    """Take the next step of a pass; what was done in all when that was the last, else None."""
    try:
        next(steps)
    except StopIteration as end:
        return cast(Report, end.value)
    return None


def _whole(steps: Pass) -> Report:
    while (report := next_step(steps)) is None:
        pass
    return report


def _goes_on(work: Work, failure: GangError | None) -> bool:
    """Do the next step of the work, or let it fail; False when there are no more."""
    try:
        if failure:
            work.throw(failure)
        else:
            next(work)
    except StopIteration:
        return False
    return True


def _guest(plan: Plan, key: str) -> str:
    """The UUID of the planned guest whose setting it is, "" when it is nobody's."""
    uuid = key.partition("/")[0]
    return uuid if plan.gang(uuid) else ""


def _is_of(key: str, guests: Set[str] | None) -> bool:
    """True if the key is of a setting of these guests; None: of any."""
    return guests is None or key.partition("/")[0] in guests


def _missing(actuator: Actuator) -> str | None:
    """Return why the actuator cannot be used, or why its probe failed; None when it is usable."""
    try:
        return actuator.probe()
    except FAILURES as error:
        return str(error)


def _readable(actuator: Toggle, key: str) -> str | None:
    try:
        return actuator.read(key)
    except FAILURES:
        return None
