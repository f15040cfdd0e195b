# SPDX-License-Identifier: Apache-2.0
"""gangd's face on the bus over a FakeService, as a process of its own.

Prints "ready" and then obeys lines on stdin: "disconnect" (libvirt is gone), "connect" (it is back),
"run" (from now on each measurement is 10 s after the one before), "slow" (from now on a mark takes a
second), "crowd" (from now on a mark would make gangs), "crash" (the service starts to raise what is no
GangError), "define NAME", "start NAME", "mark NAME", "undefine NAME" (the name in hexadecimal), "quit".
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace

from fakes import FakeService, advice, guest, snapshot
from gangd.control import authority
from gangd.control.server import serve as serve_bus
from gangd.export.overview import overview
from gangd.export.page import render
from gangd.model.domain import Domain, Mark, Mode
from gangd.model.event import DomainGone, DomainSeen
from gangd.model.mark_change import MarkChange
from gangd.model.snapshot import Snapshot
from gangd.model.state import reduce

EVIL = "evil\x1b[31m\u202e"


class Service(FakeService):
    """Time passes when it is told to; pages are those that gangd makes."""

    runs = False
    mark_seconds = 0.0

    async def measured(self) -> Snapshot:
        if self.runs:
            await self.refresh()
        return self.snapshot()

    async def mark(self, ref: str, change: MarkChange) -> Domain:
        """Mark at the end of that time; a slow service takes every policy."""
        if not self.mark_seconds:
            return await super().mark(ref, change)
        await asyncio.sleep(self.mark_seconds)
        return self._marked(self.resolve(ref), Mark(change.policy, change.weight), change.affect)

    async def metrics(self, openmetrics: bool) -> tuple[str, str]:
        """Return the metrics of the present snapshot."""
        return render(self.now, openmetrics)

    async def overview(self) -> str:
        """Return the page of the present snapshot."""
        return overview(self.now)


async def change(service: FakeService, verb: str, name: str) -> None:
    """Something happens to a domain."""
    if verb == "mark":
        await service.mark(name, MarkChange(None, 7))
        return
    domain = guest(name, 9 if verb == "start" else None)
    event = DomainGone(domain.uuid) if verb == "undefine" else DomainSeen(domain)
    service.now = replace(service.now, state=reduce(service.now.state, event))


async def main(bus: str) -> None:
    """Serve until stdin ends or says quit."""
    authority.ANSWER_SECONDS = 1.0
    service = Service(snapshot(guest("web", 3, mark=Mark()), guest("db"), guest(EVIL, 7, 1)))
    server = await serve_bus(service, bus)
    print("ready", flush=True)
    loop = asyncio.get_running_loop()
    while (line := await loop.run_in_executor(None, sys.stdin.readline)).strip() not in ("", "quit"):
        if line.strip() in ("disconnect", "connect"):
            connected = line.strip() == "connect"
            service.now = replace(service.now, state=replace(service.now.state, connected=connected))
            server.announce()
        elif line.strip() == "run":
            service.runs = True
        elif line.strip() == "slow":
            service.mark_seconds = 1.0
        elif line.strip() == "crowd":
            service.advice = advice(service.now, Mode.RELAXED)
        elif line.strip() == "crash":
            service.fail = RuntimeError("secret detail")
        elif " " in line:
            verb, name = line.split()
            await change(service, verb, bytes.fromhex(name).decode("utf-8", "surrogateescape"))
            server.announce()
        print("done", flush=True)
    server.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
