# SPDX-License-Identifier: Apache-2.0
"""`gangd --undo`: puts back what a gangd that died had changed.

After a clean stop there is nothing, and nothing of the daemon is imported to find that out: systemd runs this
after every stop.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gangd.actuate.journal import Journal, claim
from gangd.config import Config
from gangd.errors import NoLibvirt


def run(settings: Config) -> int:
    """0 when nothing is left to undo, 1 when something stays. Raises GangError."""
    folder = Path(settings.daemon.state_dir)
    with claim(folder):
        if not Journal(folder / "journal").entries:
            return 0
    import asyncio

    return asyncio.run(_undo(settings))


async def _undo(settings: Config) -> int:
    from gangd.host import Host

    host = Host(settings, _connector(settings.daemon.libvirt_uri))
    report = await host.undo()
    await host.close()
    for failure in report.failures:
        print(f"error: {failure}", file=sys.stderr)
    if kept := len(host.journal.entries):
        print(f"error: {kept} settings stay in {host.journal.path} for the next gangd", file=sys.stderr)
    if report.undone:
        print(f"{report.undone} settings put back")
    return 1 if report.failures else 0


def _connector(uri: str) -> Callable[[], Any]:
    """Connects to libvirt when first asked; one that is away is not asked again for every setting."""
    import libvirt

    from gangd import virt

    virt.quiet()
    answers: list[tuple[Any, str]] = []

    def connection() -> Any:
        if not answers:
            try:
                answers.append((libvirt.open(uri or None), ""))
            except libvirt.libvirtError as error:
                answers.append((None, virt.translate(error).cause))
        found, cause = answers[0]
        if found is None:
            raise NoLibvirt(f"libvirt is not reachable: {cause}")
        return found

    return connection
