# SPDX-License-Identifier: Apache-2.0
"""gangd as a service: the daemon, its place on D-Bus and what systemd is told, from start to stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from pathlib import Path

from gangd import __version__, config, logs, systemd, undo_command, virt
from gangd.config import Config
from gangd.control import server as control
from gangd.daemon import Daemon
from gangd.errors import GangError
from gangd.host_thread import LOAD_SECONDS
from gangd.notify import keep, kept, notify, watchdog_seconds

log = logging.getLogger("gangd")

HEARTBEAT_SECONDS = 5.0
SCHEDULER = "scheduler"  # the name of its descriptors, while systemd keeps them
NEWS_SECONDS = 0.2  # between signals on D-Bus: what changes together is told together


def run(settings: Config, path: Path | None) -> int:
    """Until SIGTERM; 0 then. path: of the configuration, for a reload. Raises GangError."""
    virt.quiet()
    return asyncio.run(_run(settings, path))


async def _run(settings: Config, path: Path | None) -> int:
    daemon = Daemon(settings, before=kept(SCHEDULER))
    undo_command.remember(Path(settings.daemon.state_dir))
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    loop.add_signal_handler(signal.SIGHUP, _reload, daemon, path)
    if daemon.host.journal.problem:
        log.warning("%s", daemon.host.journal.problem)
    bus = await control.serve(daemon.answers, settings.control.bus)
    work = asyncio.create_task(daemon.follow())
    beat = asyncio.create_task(_heartbeat(daemon))
    news = asyncio.create_task(_tell(daemon, bus))
    stopped = asyncio.create_task(stopping.wait())
    log.info("gangd %s is up", __version__)
    notify("READY=1")
    done, _ = await asyncio.wait({work, beat, news, stopped}, return_when=asyncio.FIRST_COMPLETED)
    # Nothing is undone before the load is over.
    slow = [f"EXTEND_TIMEOUT_USEC={round(LOAD_SECONDS * 1e6)}"] if daemon.host.loading else []
    notify("STOPPING=1", *slow)
    try:
        for task in done - {stopped}:
            task.result()  # a loop that ended is a fault: show it
    finally:
        bus.close()
        beat.cancel()
        news.cancel()
        stopped.cancel()
        if not await _handed_over(daemon):
            # libvirt is needed to undo, so its loop ends last
            await daemon.stop()
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError, BaseExceptionGroup):
            await work
    return 0


async def _handed_over(daemon: Daemon) -> bool:
    """Leave the host as it is to the gangd that systemd starts next, if it does; False: it does not, or there
    is something in the way."""
    if not os.environ.get("NOTIFY_SOCKET") or not systemd.booted():
        return False
    try:
        if not await asyncio.to_thread(systemd.Systemd().restarts_us):
            return False
        descriptors = await daemon.hand_over()
    except GangError as error:
        log.warning("a restart cannot leave the host as it is: %s", error)
        return False
    keep(SCHEDULER, descriptors)
    log.info("the host stays as it is for the gangd that systemd starts next")
    return True


async def _tell(daemon: Daemon, bus: control.Server) -> None:
    """Signal on D-Bus what changed, as it changes."""
    while True:
        await daemon.news.wait()
        daemon.news.clear()
        bus.announce()
        await asyncio.sleep(NEWS_SECONDS)


def _reload(daemon: Daemon, path: Path | None) -> None:
    """Read the configuration again; one that cannot be used changes nothing.

    What systemd is told stands in systemd.service(5), Type=notify-reload.
    """
    notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")
    try:
        daemon.reload(config.load(path))
    except GangError as error:
        log.error("the configuration stays as it was: %s", error.cause, extra=logs.about("reload-failed"))
    finally:
        notify("READY=1")


async def _heartbeat(daemon: Daemon) -> None:
    """Tell systemd's watchdog that the event loop and the host thread answer. Nothing else happens so often
    while nothing happens: what there is to announce is announced when it is news."""
    period = min(watchdog_seconds() or HEARTBEAT_SECONDS, HEARTBEAT_SECONDS)
    status = ""
    while True:
        now = f"STATUS={await daemon.alive()}"
        notify("WATCHDOG=1", *([now] if now != status else []))
        status = now
        await asyncio.sleep(period)
