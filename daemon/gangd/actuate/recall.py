# SPDX-License-Identifier: Apache-2.0
"""What the daemon has just read of guests, for actuators that would ask libvirt the same again.

A large host has thousands of pins, and asking for one guest's is half a dozen calls. The daemon
reads all guests once an interval; what it was told is as good as asking, unless gangd wrote to the
guest since that reading began. What others write meanwhile the next event tells.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping

from gangd.model.domain import Domain


class Recall:
    """`clock` is that of Domain.since; a test may have its own."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: Mapping[str, Domain] = {}
        self._written: dict[str, float] = {}  # by UUID: when, seconds

    def begin(self, known: Mapping[str, Domain]) -> None:
        """A pass begins, with what was read before it: all guests there are, or nothing."""
        self._known = known
        if known:
            self._written = {uuid: at for uuid, at in self._written.items() if uuid in known}

    def end(self) -> None:
        """The pass is over, and what was read may be old."""
        self._known = {}

    @contextlib.contextmanager
    def writing(self, uuid: str) -> Iterator[None]:
        """The guest's settings are not any more as a reading that began before the end of this has them."""
        try:
            yield
        finally:
            self._written[uuid] = self._clock()

    def guest(self, uuid: str) -> Domain | None:
        """The running guest as it was read, None when that has to be done again."""
        domain = self._known.get(uuid)
        if domain is None or domain.since < self._written.get(uuid, -math.inf):
            return None
        return domain if domain.running else None
