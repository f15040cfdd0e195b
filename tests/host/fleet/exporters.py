# SPDX-License-Identifier: Apache-2.0
"""Pages of gangd's exporter for hosts that differ in contention: 127.77.0.N:9752 has the N-th share.

usage: exporters.py SHARE...

The page is gangd's own; its counters are made: a guest of four vCPUs that waits for that share of its time.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

from fakes import counters, guest, snapshot
from gangd.export import http
from gangd.export.page import render

PORT = 9752
BEGUN = time.monotonic()


def page(number: int, share: float) -> Callable[[bool], Awaitable[tuple[str, str]]]:
    """The page of a host on which a guest waits for this share of its time."""

    async def now(openmetrics: bool) -> tuple[str, str]:
        seconds = 1000 + time.monotonic() - BEGUN
        vm = guest(f"instance-{number:08x}", 3, 4)
        made = counters(vm, seconds)
        vcpus = tuple(
            vcpu._replace(cpu_seconds=seconds * (1 - share), run_delay_seconds=seconds * share)
            for vcpu in made.vcpus
        )
        stats = {vm.uuid: replace(made, vcpus=vcpus)}
        return render(snapshot(vm, stats=stats), openmetrics)

    return now


async def main() -> None:
    """Serve the pages until killed."""
    for number, share in enumerate(map(float, sys.argv[1:]), 1):
        await http.serve(f"127.77.0.{number}:{PORT}", {"/metrics": page(number, share)})
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
