# SPDX-License-Identifier: Apache-2.0
"""`gangd --undo`: puts back what a gangd that died had changed.

After a clean stop there is nothing, and nothing of the daemon is imported to find that out: systemd runs this
after every stop.
"""

from __future__ import annotations

import sys
from pathlib import Path

from gangd.actuate.journal import Journal, claim
from gangd.config import Config


def run(settings: Config) -> int:
    """0 when nothing is left to undo, 1 when something stays or was lost. Raises GangError."""
    folder = Path(settings.daemon.state_dir)
    with claim(folder):
        journal = Journal(folder / "journal")
    if journal.problem:  # the next to read the journal finds it mended
        print(f"error: {journal.problem}", file=sys.stderr)
    stays = _undone(settings) if journal.entries else 0
    return 1 if journal.problem else stays


def _undone(settings: Config) -> int:
    import asyncio

    return asyncio.run(_undo(settings))


async def _undo(settings: Config) -> int:
    from gangd.host_thread import Host

    host = Host(settings)
    report = await host.undo()
    await host.close()
    for failure in report.failures:
        print(f"error: {failure}", file=sys.stderr)
    if kept := len(host.journal.entries):
        print(f"error: {kept} settings stay in {host.journal.path} for the next gangd", file=sys.stderr)
    if report.undone:
        print(f"{report.undone} settings put back")
    return 1 if report.failures else 0
