# SPDX-License-Identifier: Apache-2.0
"""A part of gangd that fails for a while: the log says when its failing begins, and when it is over."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from gangd import logs
from gangd.errors import FAILURES as FAILURES
from gangd.errors import GangError
from gangd.model.domain import Domain

log = logging.getLogger("gangd")


class Trouble:
    """An operation that is tried again and again. doing: its name, as in "cannot read the counters"; about:
    its guest. `reason`: one sentence while it fails, else ""."""

    def __init__(self, doing: str, about: Domain | None = None) -> None:
        self.doing = doing
        self._about = about
        self.reason = ""

    @contextlib.contextmanager
    def catching(self) -> Iterator[None]:
        """Try it: a failure ends what is done in here, and is noted."""
        try:
            yield
        except FAILURES as error:
            self.note(error)
        else:
            self.note(None)

    def note(self, error: Exception | None) -> None:
        """Note that the try failed so, or (None) did not fail."""
        before, self.reason = self.reason, f"cannot {self.doing}: {_cause(error)}" if error else ""
        if self.reason and not before:
            log.warning("%s", self.reason, extra=logs.about("failure", self._about))
        elif before and not self.reason:
            log.info("gangd can %s again", self.doing, extra=logs.about("recovered", self._about))


def _cause(error: Exception) -> str:
    return ": ".join(error.lines()) if isinstance(error, GangError) else str(error)
