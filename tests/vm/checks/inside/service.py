# SPDX-License-Identifier: Apache-2.0
"""gangd in the VM, and what it says of itself."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from gangd.control.client import Client, connect
from vm.checks.inside import host

CONFIGURATION = Path("/etc/gangd/gangd.toml")


def configure(text: str) -> None:
    """Write the configuration that gangd reads when it is started next."""
    CONFIGURATION.parent.mkdir(exist_ok=True)
    CONFIGURATION.write_text(text)


def start(how: str = "start") -> Client:
    """Start it, or as systemctl's word `how` says; a client that can talk to it."""
    host.systemctl(how, "gangd")
    client = connect()
    client.status()  # a connection that never spoke is dropped by the bus after 30 s
    return client


def stats(client: Client) -> dict[str, dict[str, Any]]:
    """Return gangd's counters by guest, read now."""
    time.sleep(0.25)  # a younger reading would be given again
    return {domain["name"]: domain for domain in client.stats()["domains"]}


def gang_counters(client: Client) -> dict[str, dict[str, Any]]:
    """Return the scheduler's counts of every gang so far, read now."""
    return {name: domain["gang"] for name, domain in stats(client).items() if domain["gang"]}
