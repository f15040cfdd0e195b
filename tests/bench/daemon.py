# SPDX-License-Identifier: Apache-2.0
"""gangd beside busy guests: that it gets a CPU, and when it has the guests where a policy wants them."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import settings
from bench.variants import ARMS
from gangd.control import client as control
from lab.guests.domains import Guest
from lab.observe.service import UNIT

SYSTEM_WEIGHT = 1000  # of system.slice, so that libvirtd and gangd get a turn beside the guests
ARRANGE_SECONDS = 120.0  # loading the scheduler beside eight busy vCPU threads
POLL_SECONDS = 0.5
UNDECIDED = "not measured yet"  # the policy says so until it has read a figure, or knows that it cannot


class NotArranged(Exception):
    """The daemon did not get the guests to where they should be."""


def start() -> tuple[Any, int]:
    """Start gangd's service; return a client of it and its process id."""
    subprocess.run(["systemctl", "start", UNIT], check=True)
    client = control.connect()
    # gangd is asked at once: the bus drops a connection that has not spoken for 30 s.
    return client, client.status()["own"]["pid"]


def stop() -> None:
    """Stop gangd's service."""
    subprocess.run(["systemctl", "stop", UNIT], check=False)


def keep_log(result: Path) -> None:
    """Write gangd's journal beside the result."""
    with result.with_name(settings.LOG).open("w") as file:
        subprocess.run(["journalctl", "-u", UNIT, "-o", "short-monotonic"], stdout=file, check=False)


def make_room() -> None:
    """Give the system's services the weight that they need beside busy guests."""
    weigh = ["systemctl", "set-property", "--runtime", "system.slice", f"CPUWeight={SYSTEM_WEIGHT}"]
    subprocess.run(weigh, check=True)


def arranged(client: Any, guests: Sequence[Guest], policy: str) -> list[dict[str, Any]]:
    """Return the daemon's list entries once every guest is as `policy` wants it. Raises NotArranged."""
    deadline = time.monotonic() + ARRANGE_SECONDS
    while True:
        found = listed(client, guests)
        if len(found) == len(guests) and all(is_arranged(d, policy) for d in found):
            return found
        if time.monotonic() > deadline:
            said = "; ".join(f"{d['name']} {d['schedule']}: {d['schedule_reason']}" for d in found)
            raise NotArranged(f"{policy}: not within {ARRANGE_SECONDS:.0f} s: {said}")
        time.sleep(POLL_SECONDS)


def listed(client: Any, guests: Sequence[Guest]) -> list[dict[str, Any]]:
    """Return the entries of these guests in the daemon's list, in their order."""
    found = {entry["name"]: entry for entry in client.domains()["domains"]}
    return [found[guest.name] for guest in guests if guest.name in found]


def is_arranged(summary: dict[str, Any], policy: str) -> bool:
    """True if a guest's entry in the daemon's list says that it is as `policy` wants it."""
    reason = summary["schedule_reason"] or ""
    if policy != "adaptive":
        return bool(summary["schedule"] == policy)
    return UNDECIDED not in reason and summary["schedule"] in ARMS
