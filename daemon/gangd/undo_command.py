# SPDX-License-Identifier: Apache-2.0
"""`gangd --undo`: has what a gangd that died had changed put back; actuate/steps.py undoes each setting.

After a clean stop there is nothing, and nothing of the daemon is imported to find that out: systemd runs this
after every stop. A restart leaves it to the gangd that starts next. The configuration may be another one by
now, or no longer be one: the undo looks wherever the dead daemon's journal can be.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from pathlib import Path

from gangd import config
from gangd.actuate.journal import Journal, claim, was_handed_over
from gangd.config import Config
from gangd.errors import GangError, InvalidConfig

log = logging.getLogger("gangd")


def remember(folder: Path) -> None:
    """Have `gangd --undo` find the journal in `folder`, should this daemon die: the unit runs it with
    whatever configuration there is then."""
    ours = str(config.RUNTIME) in os.environ.get("RUNTIME_DIRECTORY", "").split(":")  # the unit started us
    if ours and folder != config.RUNTIME:
        try:
            _link().unlink(missing_ok=True)
            _link().symlink_to(folder)
        except OSError as error:
            log.warning("cannot make %s, for the undo after a crash: %s", _link(), error.strerror)


def run(path: Path | None) -> int:
    """0 when nothing is left to undo, 1 when something stays or was lost. path: of the configuration."""
    settings, left = _settings(path), 0
    for folder in _folders(Path(settings.daemon.state_dir)):
        try:
            left |= _undone_in(folder, settings)
        except GangError as error:
            left = 1
            for line in error.lines():
                print(f"error: {line}", file=sys.stderr)
    if not left:
        with contextlib.suppress(OSError):
            _link().unlink()
    return left


def _settings(path: Path | None) -> Config:
    try:
        return config.load(path)
    except InvalidConfig as error:
        print(f"warning: {error.cause}: the defaults are used for the undo", file=sys.stderr)
        return Config().with_state_dir(config.RUNTIME)


def _folders(configured: Path) -> list[Path]:
    """Return where the dead daemon's journal can be: each folder once."""
    found = [configured]
    with contextlib.suppress(OSError):
        found += [config.RUNTIME] if (config.RUNTIME / "journal").exists() else []
        found += [_link().readlink()]
    return list(dict.fromkeys(found))


def _link() -> Path:
    return config.RUNTIME / "state_dir"


def _undone_in(folder: Path, settings: Config) -> int:
    with claim(folder):
        successor_is_there = folder == Path(settings.daemon.state_dir)
        if was_handed_over(folder) and successor_is_there:
            return 0
        journal = Journal(folder / "journal")
    if journal.problem:  # the next to read the journal finds it mended
        print(f"error: {journal.problem}", file=sys.stderr)
    stays = _undone(settings.with_state_dir(folder)) if journal.entries else 0
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
