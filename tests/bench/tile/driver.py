# SPDX-License-Identifier: Apache-2.0
"""Runs in the VM, as root: guests that all do something else, at once, beside the real daemon.

The same running guests go through every arm (arms.py) in every round, and a round is a history of its own, as
in the seeds' tables.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.driver import WORK, say
from bench.guest_pool import GuestPool
from bench.seeds import driver as seeds
from bench.seeds import guests
from bench.seeds.driver import SETTLE_SECONDS, WARM_SECONDS, Bench, Document
from bench.seeds.guests import BOOT_SECONDS
from bench.tile import others, plan
from bench.tile.arms import TileArms
from bench.tile.backup import Backup
from bench.tile.parties import BACKUP, GUESTS, Party
from bench.tile.pool import Tile
from lab.guests.counters import domain_xml
from lab.guests.domains import PREFIX, Guest, paused, resume

SPIN = Path("/share/spin")


class TileBench(Bench):
    """The tile in its worlds."""

    part = plan.LOAD
    arms = plan.ARMS
    turns = staticmethod(plan.turns)
    long_rounds = True

    def _missing(self) -> Iterator[tuple[bool, str, str, list[int]]]:
        """Yield the worlds of which the result lacks rounds."""
        number = int(self._options.guests)
        for ple, features in plan.WORLDS:
            left = plan.lacks(self._cell(plan.LOAD, ple, features, number), self._options.rounds)
            if left and ("on" if ple else "off") in self._ple():
                yield ple, features, plan.LOAD, [number]

    def _scheduling(self) -> TileArms:
        bystanders = frozenset(f"{PREFIX}{i}" for i, party in enumerate(GUESTS) if not party.marked)
        return TileArms(self._client, self._options.smp, bystanders)

    def _started(self, load: str, features: str, number: int) -> GuestPool:
        parties = GUESTS[:number]
        say(f"starting {', '.join(party.name for party in parties)}: {features}")
        guests.bridge()
        shutil.copy(self._options.payload, WORK)
        texts = [self._xml(f"{PREFIX}{i}", party, features) for i, party in enumerate(parties)]
        with paused(self._connection, texts) as domains, contextlib.ExitStack() as left:
            found = [Guest(domain) for domain in domains]
            # The busy ones last: beside them a boot takes long.
            for busy in (False, True):
                resume(
                    [g for g, p in zip(found, parties, strict=True) if busy != bool(p.initrd)], BOOT_SECONDS
                )
            backup = Backup(SPIN)
            left.callback(backup.close)
            pool = Tile(parties, found, backup)
            left.pop_all()
        pool.only(found)
        time.sleep(WARM_SECONDS)
        say(f"web has vhost-net: {'yes' if has_vhost(pool) else 'no'}")
        return pool

    def _xml(self, name: str, party: Party, features: str) -> str:
        cpus = party.vcpus(self._options.smp)
        if not party.initrd:
            payload, options = WORK / self._options.payload.name, {"window": self._options.window}
            return domain_xml(name, party.load, cpus=cpus, kernel=payload, options=options)
        kind = replace(self._kind(party.initrd, features), load=party.load, cpus=cpus)
        return guests.xml(name, kind, card=party.load == "web")

    def _figures(self, found: Document) -> str:
        return f"{told(found)} {found['schedules']}"

    def _observe(self, pool: GuestPool, running: Sequence[Any]) -> Document:
        """Return each party's speed in one round (plan.py). rate: CPUs that all have together.

        waited: the share of the round in which the host's task waited for a CPU; others: CPUs of the host's
        other threads, by name.
        """
        assert isinstance(pool, Tile)
        time.sleep(self._options.settle - SETTLE_SECONDS)
        waited = pool.backup.times().run_delay_seconds or 0.0
        threads = others.seconds()
        before, used, first = pool.progress(running), seconds(pool), time.monotonic()
        time.sleep(self._options.seconds)
        after, last, end = pool.progress(running), seconds(pool), time.monotonic()
        beside = others.between(threads, others.seconds(), pool.threads(), end - first)
        waited = ((pool.backup.times().run_delay_seconds or 0.0) - waited) / (end - first)
        cpus = {name: (last[name] - used[name]) / (end - first) for name in used}
        speeds = {BACKUP: cpus[BACKUP]}
        p50, p99 = {}, {}
        for party, guest in pool.parties.items():
            (then, start), (now, count) = before[guest.name], after[guest.name]
            speeds[party.name] = (count - start) / (now - then)
            if party.latency:
                if party.load == "web":
                    delays = [1e6 * delay for delay in pool.client.seconds(first, end)]
                else:
                    delays = [float(delay) for delay in pool.idle(guest).delays(start, count)]
                p50[party.name], p99[party.name] = quantile(delays, 0.5), quantile(delays, 0.99)
                speeds[party.name] = 1e6 / p99[party.name]
        found = {"speeds": speeds, "p50_us": p50, "p99_us": p99, "cpus": cpus, "others": beside}
        return {"rate": sum(cpus.values()), "waited": waited, **found}


def seconds(pool: Tile) -> dict[str, float]:
    """Return the CPU seconds of each party so far."""
    found = {party.name: pool.cpu_seconds([guest]) for party, guest in pool.parties.items()}
    return found | {BACKUP: pool.backup.times().cpu_seconds or 0.0}


def quantile(delays: list[float], share: float) -> float:
    """Return the delay below which `share` of them lie; a party without any has waited for ever."""
    found = sorted(delays)
    return found[min(len(found) - 1, int(share * len(found)))] if found else float("inf")


def told(found: Document) -> str:
    """Return a round's figures in words."""
    p99 = {name: f"p99 {us / 1000:,.1f} ms" for name, us in found["p99_us"].items()}
    figures = {name: p99.get(name, f"{speed:,.4g}/s") for name, speed in found["speeds"].items()}
    parties = (f"{name} {figure} ({found['cpus'][name]:.2f})" for name, figure in figures.items())
    return ", ".join([*parties, others.told(found["others"])])


def has_vhost(pool: Tile) -> bool:
    """True if the kernel moves web's packets itself."""
    pid = next(guest.pid for party, guest in pool.parties.items() if party.load == "web")
    threads = Path(f"/proc/{pid}/task").glob("*/comm")
    return any(comm.read_text().startswith("vhost-") for comm in threads)


if __name__ == "__main__":
    sys.exit(seeds.main(TileBench))
