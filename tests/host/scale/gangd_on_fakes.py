# SPDX-License-Identifier: Apache-2.0
"""gangd as it is, on a tree of files and with a kernel that only remembers: ROOT CONFIG FAKE.

The scheduler writes a line per order to ROOT/orders: when (CLOCK_MONOTONIC, seconds) and the gang's number.
ROOT/seen-reconcile says how many seconds the first reconcile took, ROOT/seen-call how many the longest call
of the event loop since then, and which it was. FAKE: "missing", the kernel has no scheduler; "hung", libvirt
answers nothing about guest-0; "", nothing is wrong.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from gangd import __main__, host_thread, service
from gangd.actuate.backend import Backend
from gangd.actuate.gang_setting import CacheSetting, GangSetting
from gangd.bpf import abi
from gangd.daemon import Daemon
from gangd.events import libvirt as events
from gangd.measure.probes import GuestCount, VcpuCount
from gangd.model.domain import Domain

REASONS = ("hlt", "pause", "external_interrupt", "msr", "io_instruction", "npf", "cpuid", "interrupt_window")


class Scheduler:
    """Takes every order."""

    def __init__(self, orders: Path) -> None:
        self._orders = orders

    def set_cache(self, index: int, setting: CacheSetting) -> None:
        """Nothing to remember."""

    def set_gang(self, number: int, setting: GangSetting, columns: dict[int, int]) -> None:
        """When, and who."""
        with self._orders.open("a") as file:
            file.write(f"{time.monotonic()} {number}\n")

    def limit(self, setting: GangSetting) -> str | None:
        """None."""

    def drop_gang(self, number: int, setting: GangSetting) -> None:
        """Nothing to remember."""

    def gang_stats(self, number: int) -> abi.GangStats:
        """Return as many turns as there were milliseconds."""
        return abi.GangStats(turns=int(time.monotonic() * 1000))

    def counters(self) -> dict[str, int]:
        """Return one counter."""
        return {"turns": int(time.monotonic() * 1000)}

    def histograms(self) -> dict[str, list[int]]:
        """Return one histogram of two buckets."""
        return {"start_skew": [1, 2]}

    def ejected(self) -> None:
        """Never."""

    def close(self) -> None:
        """Nothing is held."""


class Probes:
    """Counts by the clock, for every vCPU of every guest."""

    active, by_kvm = True, True
    reason = failing = log = ""

    def __init__(self, root: Path = Path("/")) -> None:
        self._watched: list[Domain] = []

    def sync(self, domains: Iterable[Domain]) -> None:
        """The running ones."""
        self._watched = [domain for domain in domains if domain.running]

    def read(self) -> dict[str, GuestCount]:
        """Return a value per guest, vCPU and reason, as the real probes do."""
        now = time.monotonic()
        return {
            domain.uuid: GuestCount(
                now * 0.5,
                now * 0.4,
                now * 0.1,
                {
                    v.index: VcpuCount(dict.fromkeys(REASONS, int(now)), int(now), int(now), v.index)
                    for v in domain.vcpus
                },
            )
            for domain in self._watched
        }

    def close(self, reason: str) -> None:
        """Nothing is held."""


def _counts(domain: Domain, count: int) -> dict[int, VcpuCount]:
    return {vcpu.index: VcpuCount(dict.fromkeys(REASONS, count), count, count) for vcpu in domain.vcpus}


def time_reconcile(root: Path) -> None:
    """Note how long the first one takes, and from then on the longest call of the loop."""
    reconcile, run = host_thread.Host.reconcile, asyncio.Handle._run
    longest = 0.0

    async def first(*given: Any) -> Any:
        host_thread.Host.reconcile = reconcile  # type: ignore[method-assign]
        begin = time.monotonic()
        report = await reconcile(*given)
        (root / "seen-reconcile").write_text(str(time.monotonic() - begin))
        asyncio.Handle._run = timed  # type: ignore[method-assign]
        return report

    def timed(handle: asyncio.Handle) -> Any:
        nonlocal longest
        begin = time.monotonic()
        run(handle)
        if (took := time.monotonic() - begin) > longest:
            longest = took
            (root / "seen-call").write_text(f"{took} {handle}")

    host_thread.Host.reconcile = first  # type: ignore[method-assign, assignment]


def hang(name: str) -> None:
    """libvirt never answers about this guest."""
    read = events.read_domain

    def reads(dom: Any, root: Path) -> Domain:
        if dom.name() == name:
            threading.Event().wait()
        return read(dom, root)

    events.read_domain = reads


def main(root: Path, config: str, fake: str) -> int:
    """gangd's own main."""
    missing = "not in this kernel" if fake == "missing" else None
    if fake == "hung":
        hang("guest-0")
    time_reconcile(root)
    backend = Backend(
        "fake", lambda: missing, lambda: Scheduler(root / "orders"), lambda: "loaded", roams=True
    )
    host_thread._backends = lambda *_: [backend]  # type: ignore[assignment]
    host_thread.Probes = Probes  # type: ignore[assignment, misc]
    service.Daemon = partial(Daemon, root=root)  # type: ignore[assignment, misc]
    return __main__.main(["--config", config])


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
