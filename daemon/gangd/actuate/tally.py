# SPDX-License-Identifier: Apache-2.0
"""The result of a look at one setting, or at all settings of a pass."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from gangd.actuate.base import Report
from gangd.errors import FAILURES, GangError
from gangd.model.refused import Refused


@dataclass
class Tally:
    """failed: how many failures may be none the next time, unlike what is left alone. again: whose they are:
    the first part of the key, which is a guest's UUID or "domain"."""

    writes: int = 0
    undone: int = 0
    failed: int = 0
    failures: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    again: set[str] = field(default_factory=set)

    def report(self) -> Report:
        """Return a report of what was counted, without repetitions."""
        failures, missing = (tuple(dict.fromkeys(found)) for found in (self.failures, self.missing))
        refused = tuple(dict.fromkeys(self.refused))
        return Report(
            self.writes, self.undone, failures, missing, refused, self.failed, frozenset(self.again)
        )

    def add(self, look: Tally) -> None:
        """Count in what came of one look now."""
        self.writes += look.writes
        self.undone += look.undone
        self.failed += look.failed
        self.still(look)

    def still(self, look: Tally) -> None:
        """Say again what stood in the way at an earlier look, which was not repeated."""
        self.failures += look.failures
        self.refused += look.refused
        self.again |= look.again

    @contextlib.contextmanager
    def catching(self, setting: str, key: str, actuator: str = "", guest: str = "") -> Iterator[None]:
        """Turn a failure into a sentence, which is kept for the `guest` (UUID) whose setting it is, too."""
        try:
            yield
        except FAILURES as error:
            told = error if isinstance(error, GangError) else _told(error, setting)
            self.failed += 1
            self.again.add(key.partition("/")[0])
            self.failures.append(": ".join(told.lines()))
            if guest:
                self.refused.append(Refused(guest, actuator, told.code, self.failures[-1]))


def _told(error: OSError | ValueError, setting: str) -> GangError:
    cause = error.strerror if isinstance(error, OSError) else None
    return GangError(str(cause or error), f"failed to change {setting}")
