# SPDX-License-Identifier: Apache-2.0
"""The program gangd-exporter: /metrics, and a page for people, served by a process that has no rights.

gangd has rights over the whole host, so it has no network. This process has no rights, reads HTTP
from strangers, and asks gangd over D-Bus for the page, as anybody may. It keeps nothing between
two scrapes: gangd, and the bus, may come and go.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import ssl
import sys
import time
from functools import partial
from pathlib import Path

from gangd import __version__, config, logs
from gangd.config import Config, Exporter
from gangd.control.client import connect
from gangd.errors import GangError
from gangd.export import http
from gangd.notify import notify

log = logging.getLogger(__name__)

RUNBOOKS = Path("/usr/share/doc/gangd/monitoring/runbooks")


def main(argv: list[str] | None = None) -> int:
    """0 after a clean stop or when it is switched off, 1 when it cannot start."""
    args = parser().parse_args(argv)
    logs.setup("gangd-exporter")
    try:
        return asyncio.run(_run(config.load(args.config)))
    except GangError as error:
        for line in error.lines():
            print(f"error: {line}", file=sys.stderr)
        return 1


def parser() -> argparse.ArgumentParser:
    """The options of gangd-exporter; also what its man page is made of."""
    parser = argparse.ArgumentParser(prog="gangd-exporter", description="Serves gangd's metrics over HTTP.")
    parser.add_argument(
        "--config", metavar="FILE", type=Path, help=f"configuration file (default {config.DEFAULT_PATH})"
    )
    parser.add_argument("--version", action="version", version=f"gangd-exporter {__version__}")
    return parser


async def _run(settings: Config) -> int:
    if not settings.exporter.enabled:
        log.info("switched off in the configuration (exporter.enabled)")
        notify("READY=1")
        return 0
    exporter, stopping, loop = settings.exporter, asyncio.Event(), asyncio.get_running_loop()
    tls = http.secure(exporter.certificate, exporter.key) if exporter.certificate else None
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    loop.add_signal_handler(signal.SIGHUP, _reload, tls, exporter)
    bus = settings.control.bus
    pages = {"/": partial(front, bus), "/metrics": partial(page, bus)}
    server = await http.serve(exporter.listen, pages, tls, runbooks())
    notify("READY=1")
    await stopping.wait()
    server.close()
    return 0


def _reload(tls: ssl.SSLContext | None, exporter: Exporter) -> None:
    """Read the certificate again: it is renewed oftener than the exporter is restarted."""
    notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")
    try:
        if tls:
            http.present(tls, exporter.certificate, exporter.key)
    except GangError as error:
        log.error("%s; the one that was read before stays in use", error.cause)
    notify("READY=1")


def runbooks(folder: Path = RUNBOOKS) -> dict[str, bytes]:
    """The pages that alerts point to, by name; none where documentation is not installed."""
    try:
        return {file.name: file.read_bytes() for file in sorted(folder.glob("*.md"))}
    except OSError as error:
        log.warning("cannot read the runbooks below %s: %s", folder, error.strerror)
        return {}


async def page(bus: str, openmetrics: bool) -> tuple[str, str]:
    """Content type and text of /metrics, from the gangd on that bus. Raises GangError.

    A scrape starts no gangd, and waits no longer for one that hangs than its client is waited for.
    """
    return await asyncio.to_thread(lambda: connect(bus, http.TIMEOUT_SECONDS, False).metrics(openmetrics))


async def front(bus: str, _openmetrics: bool) -> tuple[str, str]:
    """Content type and text of the page for people, as page()."""
    made = await asyncio.to_thread(lambda: connect(bus, http.TIMEOUT_SECONDS, False).overview())
    return http.HTML, made


if __name__ == "__main__":
    sys.exit(main())
