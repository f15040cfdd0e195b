# SPDX-License-Identifier: Apache-2.0
"""The program gangd: runs the daemon, or undoes what a dead one left (`gangd --undo`)."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import faulthandler
import logging
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gangd import __version__, config, logs, virt
from gangd.config import Config
from gangd.control import server as control
from gangd.daemon import Daemon
from gangd.errors import GangError, NoLibvirt
from gangd.host import Host
from gangd.notify import notify, watchdog_seconds

log = logging.getLogger("gangd")

HEARTBEAT_SECONDS = 5.0
NEWS_SECONDS = 0.2  # between signals on D-Bus: what changes together is told together


def main(argv: list[str] | None = None) -> int:
    """0 after a clean stop, 1 when gangd cannot start or the undo left something."""
    args = parser().parse_args(argv)
    logs.setup("gangd", args.verbose)
    # A daemon that seems to hang: kill -USR1 writes where each of its threads is.
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    virt.quiet()
    try:
        settings = config.load(args.config)
        if args.undo:
            return asyncio.run(_undo(settings))
        return asyncio.run(_run(settings, args.config))
    except GangError as error:
        for line in error.lines():
            print(f"error: {line}", file=sys.stderr)
        return 1


def parser() -> argparse.ArgumentParser:
    """The options of gangd; also what its man page is made of."""
    parser = argparse.ArgumentParser(prog="gangd", description="Gang scheduling for libvirt KVM guests.")
    parser.add_argument(
        "--config", metavar="FILE", type=Path, help=f"configuration file (default {config.DEFAULT_PATH})"
    )
    parser.add_argument("--undo", action="store_true", help="put back what a gangd that died had changed")
    parser.add_argument("--verbose", action="store_true", help="log more, also why a program was refused")
    parser.add_argument("--version", action="version", version=__version__)
    return parser


async def _run(settings: Config, path: Path | None) -> int:
    daemon = Daemon(settings)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    loop.add_signal_handler(signal.SIGHUP, _reload, daemon, path)
    if daemon.host.journal.problem:
        log.warning("%s", daemon.host.journal.problem)
    bus = await control.serve(daemon, settings.control.bus)
    work = asyncio.create_task(daemon.follow())
    beat = asyncio.create_task(_heartbeat(daemon))
    news = asyncio.create_task(_tell(daemon, bus))
    stopped = asyncio.create_task(stopping.wait())
    log.info("gangd %s is up", __version__)
    notify("READY=1")
    done, _ = await asyncio.wait({work, beat, news, stopped}, return_when=asyncio.FIRST_COMPLETED)
    notify("STOPPING=1")
    try:
        for task in done - {stopped}:
            task.result()  # a loop that ended is a fault: show it
    finally:
        bus.close()
        beat.cancel()
        news.cancel()
        stopped.cancel()
        # libvirt is needed to undo, so its loop ends last
        await daemon.stop()
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError, BaseExceptionGroup):
            await work
    return 0


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
    """Tell systemd's watchdog that both threads answer. Nothing else happens so often while nothing happens:
    what there is to announce is announced when it is news."""
    period = min(watchdog_seconds() or HEARTBEAT_SECONDS, HEARTBEAT_SECONDS)
    status = ""
    while True:
        await daemon.alive()
        now = f"STATUS={len(daemon.plan.gangs)} gangs; {daemon.backend.name}: {daemon.backend.reason}"
        notify("WATCHDOG=1", *([now] if now != status else []))
        status = now
        await asyncio.sleep(period)


async def _undo(settings: Config) -> int:
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


if __name__ == "__main__":
    sys.exit(main())
