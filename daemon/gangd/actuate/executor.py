# SPDX-License-Identifier: Apache-2.0
"""Makes the host what a plan wants, and can always take it back.

For one setting, step by step; the daemon may die between any two:

    read          now                     now is wanted: done
    journal       prior, pending=wanted   prior is what was there before gangd, for ever
    write, read   wanted?                 no: write prior, report
    journal       prior, written=wanted   and to undo: pending=prior, write, read, forget

Who dies leaves an entry with `pending`; whatever the setting then holds is taken
for gangd's and replaced by the prior value. An entry without `pending` whose
setting holds neither `prior` nor `written` was changed by somebody else: gangd
leaves it alone and says so.

One setting's failure is a sentence in the report and stops no other.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial

from gangd.actuate.base import (
    Actuator,
    Caches,
    Change,
    Describes,
    Keeps,
    Masks,
    Report,
    Toggle,
    Wanted,
    Widens,
)
from gangd.actuate.journal import Entry, Journal
from gangd.actuate.tally import Tally
from gangd.errors import GangError, NoBackend, VerifyFailed
from gangd.model.plan import Plan
from gangd.model.refused import Refused

NO_LONGER_WANTED = "no longer wanted: back to what it was"


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
        self._all = tuple(actuators)
        self._looks: dict[tuple[str, str], _Look] = {}  # (actuator, key) -> the last look at it
        self._actuators = tuple(actuator for actuator in actuators if isinstance(actuator, Actuator))

    def probe(self) -> dict[str, str | None]:
        """Actuator name -> None when usable, else what is missing."""
        return {actuator.name: actuator.probe() for actuator in self._actuators}

    def changes(self, plan: Plan) -> list[Change]:
        """What `reconcile(plan)` would write now, undoing first. Changes nothing."""
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
                    and now not in (None, entry.prior)
                    and _is_ours(actuator, key, entry, now)
                ):
                    found.append(_change(actuator, key, now, entry.prior, NO_LONGER_WANTED))
        for actuator in self._actuators:
            for key, want in actuator.wanted(plan).items():
                now = _readable(actuator, key)
                value = _value(actuator, key, now, want)
                if not _is(actuator, key, now, value) and not self._by_hand(actuator, key, now):
                    found.append(_change(actuator, key, now, value, want.reason))
        return found

    def reconcile(self, plan: Plan, doubtful: Set[str] | None = None) -> Report:
        """Undo what `plan` no longer wants, then apply what it wants. Never raises GangError.

        doubtful: whose settings may not be as they were left: guests (UUIDs), and "domain" for gang domains.
        Of others only what is wanted anew is looked at: a host may have thousands of settings. What stood in
        the way at the last look at the rest is reported again. None: all are doubtful.
        """
        with self._passing():
            return self._reconcile(plan, doubtful)

    def _reconcile(self, plan: Plan, doubtful: Set[str] | None) -> Report:
        tally = Tally()
        wanted = {actuator.name: actuator.wanted(plan) for actuator in self._actuators}
        self._looks = {
            one: look
            for one, look in self._looks.items()
            if one[1] in wanted[one[0]] or one in self.journal.entries
        }
        for actuator in reversed(self._actuators):
            for key, entry in self._journaled(actuator):
                if key not in wanted[actuator.name]:
                    undo = partial(self._undo_one, actuator, key, entry)
                    self._look((actuator.name, key), None, doubtful, undo, tally)
        self._orphans("", tally)
        for actuator in self._actuators:
            if not self._is_missing(actuator, wanted[actuator.name], plan, tally):
                for key, want in wanted[actuator.name].items():
                    apply = partial(self._apply_wanted, actuator, key, want, _guest(plan, key))
                    self._look((actuator.name, key), want.value, doubtful, apply, tally)
        return tally.report()

    def _look(
        self,
        one: tuple[str, str],
        wanted: str | None,
        doubtful: Set[str] | None,
        work: Callable[[Tally], None],
        tally: Tally,
    ) -> None:
        """Do the work on a setting, unless it was done for the same wish and the setting is in no doubt."""
        last = self._looks.get(one)
        if last and last.wanted == wanted and not _is_of(one[1], doubtful):
            tally.still(last.tally)
            return
        look = _Look(wanted, Tally())
        work(look.tally)
        tally.add(look.tally)
        self._looks[one] = look

    def _is_missing(self, actuator: Actuator, wanted: Mapping[str, Wanted], plan: Plan, tally: Tally) -> bool:
        """Whether the actuator can do nothing of what is wanted; what it did may be gone when it can."""
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
        """Restore everything journaled, or the settings whose key starts with `prefix` (a UUID)."""
        tally = Tally()
        self._looks = {one: look for one, look in self._looks.items() if not one[1].startswith(prefix or "")}
        with self._passing():
            for actuator in reversed(self._all):
                for key, entry in self._journaled(actuator):
                    if key.startswith(prefix or ""):
                        self._undo_one(actuator, key, entry, tally)
        self._orphans(prefix or "", tally)
        return tally.report()

    def set(self, name: str, key: str, value: str) -> None:
        """Write one setting because an operator says so, whoever changed it before. Raises GangError."""
        actuator = next(actuator for actuator in self._all if actuator.name == name)
        if self._by_hand(actuator, key, actuator.read(key)):
            self.journal.drop(name, key)
        tally = Tally()
        entry = self.journal.entries.get((name, key))
        try:
            if entry and entry.prior == value:
                self._restore(actuator, key, value, tally)
            else:
                self._apply_one(actuator, key, Wanted(value), tally)
        except GangError as error:
            error.cause = "; ".join((error.cause, *tally.failures))
            raise

    @contextlib.contextmanager
    def _passing(self) -> Iterator[None]:
        """What actuators look up in here they may remember."""
        caching = [actuator for actuator in self._all if isinstance(actuator, Caches)]
        for actuator in caching:
            actuator.begin()
        try:
            yield
        finally:
            for actuator in caching:
                actuator.end()

    def _apply_wanted(self, actuator: Actuator, key: str, want: Wanted, guest: str, tally: Tally) -> None:
        with tally.catching(_describe(actuator, key), key, actuator.name, guest):
            self._apply_one(actuator, key, want, tally)

    def _apply_one(self, actuator: Toggle, key: str, want: Wanted, tally: Tally) -> None:
        entry = self.journal.entries.get((actuator.name, key))
        now = actuator.read(key)
        value = _value(actuator, key, now, want)
        if now is None:
            self.journal.drop(actuator.name, key)
        elif _is(actuator, key, now, value) and (entry is None or entry.pending is None):
            return
        elif self._by_hand(actuator, key, now):
            tally.failures.append(f"{_changed(actuator, key, now)}: left alone")
        else:
            self._write(actuator, key, value, entry or Entry(now), tally)

    def _write(self, actuator: Toggle, key: str, value: str, entry: Entry, tally: Tally) -> None:
        self.journal.put(actuator.name, key, Entry(entry.prior, entry.written, pending=value))
        try:
            actuator.write(key, value)
            got = actuator.read(key)
            if got is not None and not _is(actuator, key, got, value):
                raise VerifyFailed(f"{_describe(actuator, key)} reads back {got} after {value} was written")
        except (GangError, OSError):
            gone = False
            with tally.catching(_describe(actuator, key), key):  # its failure comes on top of the first
                gone = not self._put_back(actuator, key, entry)
            if gone:
                return
            raise
        if got is None:
            self.journal.drop(actuator.name, key)
            return
        self.journal.put(actuator.name, key, Entry(entry.prior, written=value))
        tally.writes += 1

    def _put_back(self, actuator: Toggle, key: str, entry: Entry) -> bool:
        """Write the prior value even if it reads so: a refused write may be half applied.

        False when the setting's owner is gone, and with it the failure.
        """
        now = actuator.read(key)
        if now is None:
            self.journal.drop(actuator.name, key)
            return False
        if not isinstance(actuator, Keeps):
            actuator.write(key, entry.prior)
            now = actuator.read(key)
        if _is(actuator, key, now, entry.prior):
            self.journal.drop(actuator.name, key)
        elif isinstance(actuator, Keeps):
            self.journal.put(actuator.name, key, Entry(entry.prior, written=now))
        return True

    def _undo_one(self, actuator: Toggle, key: str, entry: Entry, tally: Tally) -> None:
        with tally.catching(_describe(actuator, key), key):
            now = actuator.read(key)
            same = now == entry.prior and entry.pending is None and not isinstance(actuator, Masks)
            if now is None or same:
                self.journal.drop(actuator.name, key)
            elif not _is_ours(actuator, key, entry, now):
                tally.failures.append(f"{_changed(actuator, key, now)}: left alone")
                self.journal.drop(actuator.name, key)
            else:
                self.journal.put(actuator.name, key, Entry(entry.prior, entry.written, pending=entry.prior))
                self._restore(actuator, key, entry.prior, tally)

    def _restore(self, actuator: Toggle, key: str, prior: str, tally: Tally) -> None:
        try:
            actuator.write(key, prior)
        except GangError:
            if actuator.read(key) is not None:
                raise
        got = actuator.read(key)
        if got is not None and not _is(actuator, key, got, prior):
            raise VerifyFailed(f"{_describe(actuator, key)} reads back {got} after {prior} was put back")
        self.journal.drop(actuator.name, key)
        tally.undone += got is not None

    def _by_hand(self, actuator: Toggle, key: str, now: str | None) -> bool:
        """True when gangd changed the setting and somebody else changed it again since."""
        entry = self.journal.entries.get((actuator.name, key))
        if entry is None or now is None or now == entry.prior:
            return False
        return not _is_ours(actuator, key, entry, now)

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


def _guest(plan: Plan, key: str) -> str:
    """The UUID of the planned guest whose setting it is, "" when it is nobody's."""
    uuid = key.partition("/")[0]
    return uuid if plan.gang(uuid) else ""


def _is_of(key: str, guests: Set[str] | None) -> bool:
    """Whether it is a setting of these guests; None: of any."""
    return guests is None or key.partition("/")[0] in guests


def _is(actuator: Toggle, key: str, now: str | None, value: str) -> bool:
    """True if a setting that reads `now` may have the value."""
    return now == value or (isinstance(actuator, Masks) and now == actuator.shows(key, value))


def _is_ours(actuator: Toggle, key: str, entry: Entry, now: str | None) -> bool:
    """True if gangd may have made the setting read `now`."""
    if entry.ours(now or "") or not isinstance(actuator, Masks):
        return entry.ours(now or "")
    return any(actuator.shows(key, value) in (now, "") for value in (entry.prior, entry.written) if value)


def _value(actuator: Toggle, key: str, now: str | None, want: Wanted) -> str:
    """What to write where `now` is."""
    if now is not None and isinstance(actuator, Widens):
        return actuator.widened(key, now, want.value)
    return want.value


def _missing(actuator: Actuator) -> str | None:
    """What keeps it from being used, which may be that this cannot be found out."""
    try:
        return actuator.probe()
    except (GangError, OSError) as error:
        return str(error)


def _readable(actuator: Toggle, key: str) -> str | None:
    try:
        return actuator.read(key)
    except (GangError, OSError):
        return None


def _change(actuator: Toggle, key: str, now: str | None, wanted: str, reason: str) -> Change:
    shown = actuator.show if isinstance(actuator, Describes) else str
    text = f"{_describe(actuator, key)}: {'unknown' if now is None else shown(now)} -> {shown(wanted)}"
    return Change(actuator.name, key, now, wanted, reason, text)


def _describe(actuator: Toggle, key: str) -> str:
    return actuator.describe(key) if isinstance(actuator, Describes) else f"{actuator.name} {key}"


def _changed(actuator: Toggle, key: str, value: str) -> str:
    if isinstance(actuator, Describes):
        return actuator.changed(key, value)
    return f"{actuator.name} {key} was changed by hand to {value}"
