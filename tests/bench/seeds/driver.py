# SPDX-License-Identifier: Apache-2.0
"""Runs in the VM, as root: Linux guests with the loads of the seeds' tables, beside the real daemon.

The same running guests go through every arm (arms.py) in every round, and a round is a history of its own
(docs/decisions/0038). In all arms gangd runs and counts; in the baselines it has nothing to schedule.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import sys
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench import daemon
from bench.daemon import NotArranged, listed, make_room
from bench.driver import WORK, Harness, parser, say, whole
from bench.guest_pool import GuestPool, Starved
from bench.seeds import guests, plan
from bench.seeds.arms import Arms
from bench.seeds.guests import Kind
from bench.seeds.plan import ARMS, WORLDS
from lab.guests.domains import GuestDied
from lab.observe import kvm, module

SETTLE_SECONDS = 0.5
SCHED_EXT = Path("/sys/kernel/sched_ext")  # where it is not, gang.ko schedules
WARM_SECONDS = 3.0  # of a load, before the first round
STEADY = ("balance", "relaxed")  # that the daemon does not leave by itself
COUNTS = ("run_seconds", "corun_seconds", "costop_seconds")
VCPU_COUNTS = ("cpu_seconds", "switches", "pause_exits", "lhp_exits", "exits_total")

Document = dict[str, Any]


class Bench(Harness):
    """All loads in all worlds, with most guests first."""

    part = "seeds"
    arms = ARMS
    turns = staticmethod(plan.turns)
    long_rounds = False  # each of them is saved, else the cell

    def __init__(self, options: Namespace) -> None:
        super().__init__(options)
        self._cells: list[Document] = getattr(self._document, self.part)
        self._client: Any = None
        self._arms: Any = None

    def run(self) -> bool:
        """Measure what the result lacks; False when some of it had to be left."""
        self._connect()
        if not self._options.here:
            make_room()
            if not SCHED_EXT.exists():
                module.load(self._options.result.parent)
        places = list(self._missing())
        self._pacer.total = sum(len(numbers) for *_, numbers in places)
        say(f"{self._pacer.total} cells of {len(self.arms)} arms to measure")
        complete = True
        for ple, features, load, numbers in places:
            if kvm.ple() != ple:
                daemon.stop()
                kvm.switch(ple)
            self._client, _ = daemon.start()
            self._arms = self._scheduling()
            complete &= self._load(ple, features, load, numbers)
        return complete

    def _scheduling(self) -> Arms:
        return Arms(self._client, self._options.smp)

    def close(self) -> None:
        """Stop gangd and keep its log beside the result."""
        daemon.stop()
        daemon.keep_log(self._options.result)
        super().close()

    def _leave(self) -> None:
        with contextlib.suppress(Exception):
            self._arms.leave()

    def _missing(self) -> Iterator[tuple[bool, str, str, list[int]]]:
        """Yield by world and load the numbers of guests that the result lacks, the largest first."""
        numbers = sorted(map(int, self._options.guests.split(",")), reverse=True)
        for ple, features in WORLDS:
            if ("on" if ple else "off") in self._ple() and features in self._options.features.split(","):
                for load in self._options.loads.split(","):
                    cells = {n: self._cell(load, ple, features, n) for n in numbers}
                    left = [n for n in numbers if not plan.is_whole(cells[n], self._options.rounds)]
                    if left:
                        yield ple, features, load, left

    def _ple(self) -> list[str]:
        """PLE on, off or both; loaded: as it is."""
        now = "on" if kvm.ple() else "off"
        return [now if word == "loaded" else word for word in self._options.ple.split(",")]

    def _cell(self, load: str, ple: bool, features: str, number: int) -> Document:
        """Return the cell of the result; a new one has no rounds."""
        key = {"load": load, "ple": ple, "features": features, "guests": number}
        return plan.found(self._cells, key) or {**key, "arms": {arm: [] for arm in self.arms}}

    def _load(self, ple: bool, features: str, load: str, numbers: list[int]) -> bool:
        """Measure one load in one world; False when guests died too often."""
        left = list(numbers)
        cells = {number: self._cell(load, ple, features, number) for number in left}

        def tell(death: GuestDied) -> str:
            return f"{load}: {death}; {guests.last_words(self._kind(load, features), left[0])}"

        return self._outlive(
            load,
            left,
            lambda: self._started(load, features, left[0]),
            lambda pool, number: self._rounds(pool, cells[number]),
            tell,
        )

    def _started(self, load: str, features: str, number: int) -> GuestPool:
        say(f"starting {number} guests: {load}, {features}")
        pool = GuestPool(guests.start(self._connection, self._kind(load, features), number))
        time.sleep(WARM_SECONDS)
        return pool

    def _kind(self, load: str, features: str) -> Kind:
        share = self._options.result.parent
        kernel, initrd = WORK / "kernel", WORK / f"{load}.initrd"
        for file in (kernel, initrd):
            if not file.exists():
                shutil.copy(share / file.name, file)
        return Kind(load, features, self._options.vcpus, kernel, initrd)

    def _rounds(self, pool: GuestPool, cell: Document) -> None:
        begin = time.monotonic()
        running = pool.guests[: cell["guests"]]
        for number, arm in self.turns(self._options.rounds):
            if len(cell["arms"][arm]) <= number:
                found = self._turn(pool, running, arm, random.Random(number))
                cell["arms"][arm].append(found)
                if cell not in self._cells:
                    self._cells.append(cell)
                if self.long_rounds:
                    self._save()
                say(f"round {number + 1}: {arm} {self._figures(found)}")
        self._arms.leave()
        self._save()
        place = f"{cell['load']}, PLE {'on' if cell['ple'] else 'off'}, {cell['features']}"
        say(f"{place}, {cell['guests']} guests: {self._pacer.done(time.monotonic() - begin)}")

    def _figures(self, found: Document) -> str:
        """Return a round's figures in words."""
        return f"{found['rate']:,.0f}"

    def _turn(self, pool: GuestPool, running: list[Any], arm: str, draw: random.Random) -> Document:
        """Put the guests under the arm and measure them. A round in which gangd fails them counts, with the
        reason (failed); its rate is 0 if gangd refused the arm, or left it."""
        for guest in running:
            guest.check()
        begin, failed = time.monotonic(), ""
        try:
            arranged, schedules = self._arms.enter(arm, pool, running, draw)
        except NotArranged as failure:
            failed, arranged, schedules = str(failure), time.monotonic() - begin, []
            pool.only(running)
        time.sleep(SETTLE_SECONDS)
        progress, before = pool.progress(running), self._client.stats()
        found = self._observe(pool, running)
        after = self._client.stats()
        if (
            not failed
            and arm in STEADY
            and [s["schedule"] for s in listed(self._client, running)] != schedules
        ):
            failed = f"{arm}: gangd schedules the guests otherwise after the round"
        if failed and arm in STEADY:
            found["rate"] = 0.0
        try:
            pool.check(running, progress)
        except Starved as starved:
            failed = failed or f"{arm}: {starved}"
        found |= {"arranged_seconds": arranged, "schedules": schedules}
        return found | self._told(failed) | growth(before, after, {guest.name for guest in running})

    def _told(self, failed: str) -> Document:
        """Return what the round's document says of its failure; the next round asks for its arm anew."""
        if not failed:
            return {}
        say(f"failed: {failed}")
        self._arms.leave()
        return {"failed": failed}

    def _observe(self, pool: GuestPool, running: list[Any]) -> Document:
        """Return what the guests get done in one round; rate: per second, all of them together."""
        begin = pool.progress(running)
        time.sleep(self._options.seconds)
        end = pool.progress(running)
        return {"rate": sum((end[n][1] - begin[n][1]) / (end[n][0] - begin[n][0]) for n in begin)}


def growth(before: Document, after: Document, names: set[str]) -> Document:
    """Return the growth of gangd's counts of these guests, added up, between two `stats`.

    seconds: between the two; exits: by reason.
    """
    (counts, exits), (earlier, exits_then) = _counts(after, names), _counts(before, names)
    counts.subtract(earlier)
    exits.subtract(exits_then)
    grown = {reason: number for reason, number in exits.items() if number}
    return {"seconds": after["time_seconds"] - before["time_seconds"], "exits": grown, **counts}


def _counts(stats: Document, names: set[str]) -> tuple[Counter[str], Counter[str]]:
    """Return the counts of these guests, added up, and their exits by reason."""
    counts, exits = Counter[str](), Counter[str]()
    for domain in (domain for domain in stats["domains"] if domain["name"] in names):
        counts.update({name: domain[name] or 0.0 for name in COUNTS})
        for vcpu in domain["vcpus"]:
            counts.update({name: vcpu[name] or 0 for name in VCPU_COUNTS})
            exits.update(vcpu["exits"] or {})
    return counts, exits


def main(part: type[Bench] = Bench) -> int:
    """0 when everything was measured."""
    options = parser()
    options.add_argument(
        "--here", action="store_true", help="on a real host: leave its services' weight alone"
    )
    return whole(part(options.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
