# SPDX-License-Identifier: Apache-2.0
"""Runs in the VM, as root: what the policy `adaptive` makes of every load, under the real daemon.

The same running guests are marked `off`, `balance`, `relaxed` and `adaptive` in turn. Each time
the daemon is given the time it needs to arrange them; for `adaptive` that is until it has decided for each
of them, which is timed. Then their throughput is measured, as in the matrix (cells.py).
"""

from __future__ import annotations

import copy
import shutil
import sys
import time
from argparse import Namespace
from collections.abc import Mapping
from statistics import median
from typing import Any

from bench import daemon, stats
from bench.daemon import NotArranged, arranged, listed, make_room
from bench.driver import QUIET_AFTER_START_SECONDS, WORK, Harness, parser, say, whole
from bench.guest_pool import GuestPool, Starved
from bench.records import Comparison
from bench.result import key_of
from bench.variants import ADAPTIVE as POLICIES
from bench.variants import ARMS
from lab.guests.domains import Load, start
from lab.observe import kvm
from lab.observe.service import cpu_seconds

SETTLE_SECONDS = 2.0


def begun(load: str, ple: bool, guests: int) -> Comparison:
    """Return the comparison of one load without a round. It outlives guests that die."""
    rates: dict[str, list[float]] = {policy: [] for policy in POLICIES}
    return Comparison(0, load=load, ple=ple, guests=guests, rates=rates, daemon=copy.deepcopy(rates))


def conclude(found: Comparison) -> None:
    """Fill in what follows from the rounds: the medians, and adaptive against the best of the others, round
    by round, as a geometric mean with its interval (stats.py)."""
    found.medians = {policy: median(rates) if rates else None for policy, rates in found.rates.items()}
    ratio = stats.paired(against_best(found.rates))
    found.rounds, found.ratio, found.low, found.high = ratio.rounds, ratio.ratio, ratio.low, ratio.high
    found.reasons = sorted(set(found.reasons))


def against_best(rates: Mapping[str, list[float]]) -> list[tuple[float, float]]:
    """Return by round `adaptive` and the best of the others, by the medians of the *other* rounds: a round
    that chose its own divisor would take the luckiest of some that are equal."""
    rounds = [
        dict(zip(POLICIES, found, strict=True)) for found in zip(*map(rates.get, POLICIES), strict=False)
    ]
    pairs = []
    for number, one in enumerate(rounds):
        others = rounds[:number] + rounds[number + 1 :] or rounds
        best = max(ARMS, key=lambda arm: median(found[arm] for found in others))
        pairs.append((one["adaptive"], one[best]))
    return pairs


class Bench(Harness):
    """The rounds of all loads, one load after the other."""

    def __init__(self, options: Namespace) -> None:
        super().__init__(options)
        self._client: Any = None
        self._pid = 0

    def run(self) -> bool:
        """Measure; False when a load had to be left."""
        self._connect()
        shutil.copy(self._options.payload, WORK)
        make_room()
        complete = True
        for word in self._options.ple.split(","):
            ple = kvm.ple() if word == "loaded" else word == "on"
            for number in map(int, self._options.guests.split(",")):
                for load in self._options.loads.split(","):
                    complete &= self._has(load, ple, number) or self._load(load, ple, number)
        return complete

    def close(self) -> None:
        """Stop gangd and keep its log beside the result."""
        daemon.stop()
        self._leave()
        super().close()

    def _leave(self) -> None:
        daemon.keep_log(self._options.result)

    def _save(self) -> None:
        """Save the result with the conclusions of the load that was measured last."""
        conclude(self._document.adaptive[-1])
        super()._save()

    def _has(self, load: str, ple: bool, number: int) -> bool:
        return any(
            key_of(c) == (load, ple, number)
            and all(len(rates) >= self._options.rounds for rates in c.rates.values())
            for c in self._document.adaptive
        )

    def _load(self, load: str, ple: bool, number: int) -> bool:
        """Measure a load, with new guests whenever one died; False when that was too often."""
        if kvm.ple() != ple:
            daemon.stop()
            kvm.switch(ple)
        self._client, self._pid = daemon.start()
        found = begun(load, ple, number)
        kept = [each for each in self._document.adaptive if key_of(each) != key_of(found)]
        self._document.adaptive = [*kept, found]
        kernel = WORK / self._options.payload.name
        guest = Load(load, self._options.vcpus, {"window": self._options.window})

        def begin() -> GuestPool:
            say(f"starting {number} guests: {load}, PLE {'on' if ple else 'off'}")
            pool = GuestPool(start(self._connection, kernel, guest, number))
            time.sleep(QUIET_AFTER_START_SECONDS)
            return pool

        return self._outlive(load, [found], begin, self._rounds, lambda death: f"adaptive, {load}: {death}")

    def _rounds(self, pool: GuestPool, found: Comparison) -> None:
        for number in range(self._options.rounds):
            at = number % len(POLICIES)  # no policy twice in a row: a bad minute would be its alone
            for policy in (*POLICIES[at:], *POLICIES[:at]):
                if len(found.rates[policy]) <= number:
                    self._turn(pool, policy, found)
            last = ", ".join(f"{policy} {rates[-1]:,.0f}" for policy, rates in found.rates.items())
            say(f"{found.load}, round {number + 1}: {last}; decided within {found.decided_seconds[-1]:.1f} s")

    def _turn(self, pool: GuestPool, policy: str, found: Comparison) -> None:
        """Mark all guests, wait until they are arranged, measure."""
        for guest in pool.guests:
            guest.check()
            self._client.mark(guest.name, policy=policy)
        begin, failed = time.monotonic(), ""
        try:
            summaries = arranged(self._client, pool.guests, policy)
        except NotArranged as failure:
            failed, summaries = str(failure), listed(self._client, pool.guests)
        decided = time.monotonic() - begin
        time.sleep(SETTLE_SECONDS)
        start, before = pool.progress(pool.guests), cpu_seconds(self._pid)
        time.sleep(self._options.seconds)
        end, used = pool.progress(pool.guests), cpu_seconds(self._pid) - before
        rate = sum((end[n][1] - start[n][1]) / (end[n][0] - start[n][0]) for n in start)
        if failed and policy != "adaptive":  # which has a rate before it has decided, too
            rate = 0.0
        try:
            pool.check(pool.guests, start)
        except Starved as starved:
            failed = failed or f"{policy}: {starved}"
        found.rates[policy].append(rate)
        found.daemon[policy].append(used / self._options.seconds)
        found.failed += [failed] if failed else []
        if policy == "adaptive":
            self._decided(found, decided, summaries)

    def _decided(self, found: Comparison, seconds: float, summaries: list[dict[str, Any]]) -> None:
        """Note when and what `adaptive` has decided, and which guests have another mode since."""
        found.decided_seconds.append(seconds)
        found.chosen += [summary["schedule"] for summary in summaries]
        found.reasons += [summary["schedule_reason"] for summary in summaries]
        modes = {d["name"]: d["schedule"] for d in self._client.domains()["domains"]}
        found.restless += sum(s["schedule"] != modes.get(s["name"]) for s in summaries)


def main() -> int:
    """0 when every load was measured."""
    return whole(Bench(parser().parse_args()))


if __name__ == "__main__":
    sys.exit(main())
