# SPDX-License-Identifier: Apache-2.0
"""The ways to schedule the tile, each as a user would ask for it: some guests stay without a mark."""

from __future__ import annotations

import time
from collections.abc import Sequence

from bench.daemon import NotArranged, is_arranged, listed
from bench.driver import say
from bench.seeds.arms import Arms
from bench.tile.plan import MARKS
from lab.guests.domains import Guest

STEADY_SECONDS = 15.0  # of the same schedules, until gangd's own choice is taken for made
CHOICE_SECONDS = 240.0
POLL_SECONDS = 1.0


class TileArms(Arms):
    """Puts all guests under an arm, and out of it; gangd's own choice is waited for once."""

    marks = MARKS

    def _choice(self, guests: Sequence[Guest], entered: bool) -> None:
        """Wait until gangd has chosen for each guest, and has kept to it for a while. Raises NotArranged."""
        begin = since = time.monotonic()
        before: list[str] = []
        while entered and time.monotonic() - since < STEADY_SECONDS:
            found = listed(self._client, guests)
            now = [entry["schedule"] for entry in found if is_arranged(entry, "adaptive")]
            if now != before or len(now) < len(guests):
                if now != before:
                    say(f"gangd's choice after {time.monotonic() - begin:.0f} s: {', '.join(now)}")
                before, since = now, time.monotonic()
            if time.monotonic() - begin > CHOICE_SECONDS:
                said = "; ".join(f"{e['name']} {e['schedule']}: {e['schedule_reason']}" for e in found)
                raise NotArranged(f"plain: no choice that stays within {CHOICE_SECONDS:.0f} s: {said}")
            time.sleep(POLL_SECONDS)
