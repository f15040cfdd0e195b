# SPDX-License-Identifier: Apache-2.0
"""A stock Linux guest, alone: marked, scheduled, unmarked, and alive all the time."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from demo.guests import Guest, GuestDied, linux_xml, remove
from demo.service import gangctl

BOOT_SECONDS = 90.0
GANG_SECONDS = 4.0
BEAT = "beat "
TRIES = 4

# Two endless loops keep both vCPUs busy; the third process shows on the console that the guest lives.
INIT = f"""#!/bin/busybox sh
/bin/busybox mount -t devtmpfs dev /dev
exec >/dev/ttyS0 2>&1 </dev/null
spin() {{ while :; do :; done; }}
spin & spin &
n=0
while :; do n=$((n + 1)); echo "{BEAT}$n"; /bin/busybox sleep 0.5; done
"""


@dataclass
class LinuxRun:
    """What became of it. slots: its gang slots while it was marked; failures: of the lab, sentences."""

    uuid: str | None = None
    slots: int | None = None
    corun: float | None = None
    alive: bool = False
    failures: list[str] = field(default_factory=list)


def run(connection: Any, kernel: Path, initrd: Path, log: Path, say: Callable[[str], None]) -> LinuxRun:
    """Try until it lives to the end, but not for ever."""
    result = LinuxRun()
    while not result.alive and len(result.failures) < TRIES:
        say("a stock Linux guest boots")
        log.unlink(missing_ok=True)
        domain = connection.defineXML(linux_xml(kernel, initrd, log))
        try:
            _once(domain, log, result, say)
        except GuestDied as death:
            result.failures.append(str(death))
            say(f"lab failure, thrown away: {death}")
        finally:
            remove(domain)
    return result


def _once(domain: Any, log: Path, result: LinuxRun, say: Callable[[str], None]) -> None:
    domain.create()
    guest = Guest(domain)
    result.uuid = guest.uuid
    _wait_for_beat(guest, log, 0, BOOT_SECONDS)
    call = gangctl("mark", guest.name)
    say(f"  {call.output.strip()}  ({call.seconds:.1f} s)")
    time.sleep(GANG_SECONDS)
    _wait_for_beat(guest, log, beats(log), 20)
    stats = json.loads(gangctl("--json", "stats", guest.name).output)["domains"][0]
    gang = stats["gang"] or {}
    result.slots, result.corun = gang.get("slots"), stats["corun_ratio"]
    say(f"  alive, {result.slots} slots")
    call = gangctl("unmark", guest.name)
    say(f"  {call.output.strip()}  ({call.seconds:.1f} s)")
    _wait_for_beat(guest, log, beats(log), 20)
    result.alive = True


def _wait_for_beat(guest: Guest, log: Path, last: int, seconds: float) -> None:
    """Until the console shows a beat after number `last`."""
    deadline = time.monotonic() + seconds
    while beats(log) <= last:
        guest.check()
        if time.monotonic() > deadline:
            raise GuestDied(
                f"{guest.name} gave no sign of life for {seconds:.0f} s; it had said {beats(log)}"
            )
        time.sleep(0.5)


def beats(log: Path) -> int:
    """How many signs of life the console has shown; whole lines only."""
    try:
        lines = log.read_text(errors="replace").split("\n")[:-1]
    except OSError:
        return 0
    return sum(line.startswith(BEAT) for line in lines)
