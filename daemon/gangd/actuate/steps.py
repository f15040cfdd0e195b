# SPDX-License-Identifier: Apache-2.0
"""Takes one setting to a value, and back to what it was; the daemon may die between any two steps:

    read          now                     now is wanted: done
    journal       prior, pending=wanted   prior is what was there before gangd, for ever
    write, read   wanted?                 no: write prior, report
    journal       prior, written=wanted   and to undo: pending=prior, write, read, forget

A gangd that dies leaves an entry with `pending`; whatever the setting then holds is taken for gangd's, and
undo replaces it by the prior value. An entry without `pending` whose setting holds neither `prior` nor
`written` was changed by somebody else: gangd leaves it alone and says so. An undo judges each part of a
setting that has parts. Where its write is refused and changes nothing, the entry is as before, without
`pending`.
"""

from __future__ import annotations

from collections.abc import Generator

from gangd.actuate.base import Actuator, Toggle, Wanted
from gangd.actuate.journal import Entry, Journal
from gangd.actuate.tally import Tally
from gangd.errors import FAILURES, GangError, VerifyFailed

# The work on one setting yields where the journal has to be on disk before it goes on.
Work = Generator[None]


class Steps:
    """The steps that every setting takes, journaled in `journal`."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def apply(self, actuator: Actuator, key: str, want: Wanted, guest: str, tally: Tally) -> Work:
        """Apply what a plan wants. A failure is kept in the tally, for the `guest` (UUID) too."""
        with tally.catching(actuator.noun(key), key, actuator.name, guest):
            yield from self._apply(actuator, key, want, tally)

    def undo(self, actuator: Toggle, key: str, entry: Entry, tally: Tally) -> Work:
        """Put back what the journal has of the setting, unless somebody else changed it since."""
        with tally.catching(actuator.noun(key), key):
            now = actuator.read(key)
            same = now == entry.prior and entry.pending is None and not actuator.masks
            if now is None or same:
                self._journal.drop(actuator.name, key)
            elif not is_ours_still(actuator, key, entry, now):
                tally.failures.append(f"{actuator.changed(key, now)}: left alone")
                self._journal.drop(actuator.name, key)
            else:
                self._journal.put(actuator.name, key, Entry(entry.prior, entry.written, pending=entry.prior))
                # A full disk keeps nothing from being put back: what it has of the setting undoes it, too.
                with tally.catching(actuator.noun(key), key):
                    yield
                self._restore(actuator, key, entry, now, tally)
            yield

    def set(self, actuator: Toggle, key: str, value: str) -> None:
        """Write the setting because an operator says so, whoever changed it before. Raises GangError."""
        now = actuator.read(key)
        if self._by_hand(actuator, key, now):
            self._journal.drop(actuator.name, key)
        tally = Tally()
        entry = self._journal.entries.get((actuator.name, key))
        try:
            if entry and entry.prior == value:
                self._restore(actuator, key, entry, now, tally)
            else:
                for _ in self._apply(actuator, key, Wanted(value), tally):
                    self._journal.flush()
            self._journal.flush()
        except GangError as error:
            error.cause = "; ".join((error.cause, *tally.failures))
            raise

    def left_alone(self, actuator: Toggle, key: str, now: str | None) -> str | None:
        """The sentence about a setting that somebody else changed since gangd did, or of which somebody gave
        the parts different values before: gangd remembers one prior value for all. None about any other."""
        if now is None:
            return None
        if self._by_hand(actuator, key, now):
            return actuator.changed(key, now)
        return None if (actuator.name, key) in self._journal.entries else actuator.differ(key)

    def _apply(self, actuator: Toggle, key: str, want: Wanted, tally: Tally) -> Work:
        entry = self._journal.entries.get((actuator.name, key))
        now = actuator.read(key)
        value = to_write(actuator, key, now, want)
        if now is None:
            self._journal.drop(actuator.name, key)
        elif actuator.reads_as(key, now, value) and (entry is None or entry.pending is None):
            return
        elif sentence := self.left_alone(actuator, key, now):
            tally.failures.append(f"{sentence}: left alone")
        else:
            yield from self._write(actuator, key, value, entry or Entry(now), tally)
        yield

    def _write(self, actuator: Toggle, key: str, value: str, entry: Entry, tally: Tally) -> Work:
        self._journal.put(actuator.name, key, Entry(entry.prior, entry.written, pending=value))
        yield
        try:
            actuator.write(key, value)
            got = actuator.read(key)
            if got is not None and not actuator.reads_as(key, got, value):
                raise VerifyFailed(f"{actuator.noun(key)} reads back {got} after {value} was written")
        except FAILURES:
            gone = False
            with tally.catching(actuator.noun(key), key):  # its failure comes on top of the first
                gone = not self._put_back(actuator, key, entry)
            if gone:
                return
            raise
        if got is None:
            self._journal.drop(actuator.name, key)
            return
        self._journal.put(actuator.name, key, Entry(entry.prior, written=value))
        tally.writes += 1

    def _put_back(self, actuator: Toggle, key: str, entry: Entry) -> bool:
        """Write the prior value even if it reads so: a refused write may be half applied.

        False when the setting's owner is gone, and with it the failure.
        """
        now = actuator.read(key)
        if now is None:
            self._journal.drop(actuator.name, key)
            return False
        if not actuator.keeps:
            actuator.write(key, entry.prior)
            now = actuator.read(key)
        if actuator.reads_as(key, now, entry.prior):
            self._journal.drop(actuator.name, key)
        elif actuator.keeps:
            self._journal.put(actuator.name, key, Entry(entry.prior, written=now))
        return True

    def _restore(self, actuator: Toggle, key: str, entry: Entry, before: str | None, tally: Tally) -> None:
        """Put the prior value back. `entry` is journaled again when the write did nothing: a value that the
        setting has at the next try is then an operator's."""
        prior, kept = entry.prior, _others(actuator, key, entry)
        try:
            actuator.write_but(key, prior, kept)
        except FAILURES:
            after = actuator.read(key)
            if after == before:
                self._journal.put(actuator.name, key, entry)
            if after is not None:
                raise
        got = actuator.read_but(key, kept)
        if got is not None and not actuator.reads_as(key, got, prior):
            raise VerifyFailed(f"{actuator.noun(key)} reads back {got} after {prior} was put back")
        self._journal.drop(actuator.name, key)
        tally.undone += got is not None

    def _by_hand(self, actuator: Toggle, key: str, now: str | None) -> bool:
        """True when gangd changed the setting and somebody else changed it again since."""
        entry = self._journal.entries.get((actuator.name, key))
        if entry is None or now is None or now == entry.prior:
            return False
        return not _is_ours(actuator, key, entry, now)


def to_write(actuator: Toggle, key: str, now: str | None, want: Wanted) -> str:
    """Return the text to write to a setting that reads `now`; None: it cannot be read."""
    return want.value if now is None else actuator.widened(key, now, want.value)


def is_ours_still(actuator: Toggle, key: str, entry: Entry, now: str) -> bool:
    """True if gangd may have made any part of the setting read as it does; the whole reads `now`."""
    values = actuator.values(key)
    if values is None:
        return _is_ours(actuator, key, entry, now)
    return not values or any(_is_ours(actuator, key, entry, value) for value in values)


def _is_ours(actuator: Toggle, key: str, entry: Entry, now: str) -> bool:
    """True if gangd may have made the setting read `now`."""
    values = [value for value in (entry.prior, entry.written) if value]
    return entry.ours(now) or any(actuator.shows(key, value) in (now, "") for value in values)


def _others(actuator: Toggle, key: str, entry: Entry) -> frozenset[str]:
    """Return what those parts of the setting read as that somebody else changed since gangd did."""
    values = actuator.values(key) or ()
    return frozenset(value for value in values if not _is_ours(actuator, key, entry, value))
