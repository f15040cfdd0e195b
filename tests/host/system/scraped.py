# SPDX-License-Identifier: Apache-2.0
"""The exporter in this process, and a real Prometheus that scrapes it."""

from __future__ import annotations

import asyncio
import http
import json
import shutil
import socket
import ssl
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest

from gangd.export import http as exporter
from gangd.export.overview import overview
from gangd.export.page import render
from gangd.model.snapshot import Snapshot

RULES = Path(__file__).resolve().parents[3] / "docs/monitoring/gangd.rules.yml"
SECONDS = 30.0


@contextmanager
def served(
    what: Snapshot | Exception | Callable[[], Snapshot],
    tls: ssl.SSLContext | None = None,
    runbook: bytes = b"# GangdDown\n",
) -> Iterator[int]:
    """The exporter in a loop of its own thread; the port. `what`: a snapshot, or what makes one a scrape.

    runbook: the text of /runbooks/GangdDown.md.
    """
    ready, stop, port = Event(), Event(), [0]

    def now() -> Snapshot:
        if isinstance(what, Exception):
            raise what
        return what() if callable(what) else what

    async def page(openmetrics: bool) -> tuple[str, str]:
        return render(now(), openmetrics)

    async def front(_openmetrics: bool) -> tuple[str, str]:
        return exporter.HTML, overview(now())

    async def main() -> None:
        server = await exporter.serve(
            "127.0.0.1:0", {"/": front, "/metrics": page}, tls, {"GangdDown.md": runbook}
        )
        port[0] = server.sockets[0].getsockname()[1]
        ready.set()
        while not stop.is_set():
            await asyncio.sleep(0.02)
        server.close()

    thread = Thread(target=lambda: asyncio.run(main()))
    thread.start()
    try:
        assert ready.wait(10)
        yield port[0]
    finally:
        stop.set()
        thread.join(10)


class Prometheus:
    """A Prometheus at a port of this host."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/api/v1/query?query="

    def ask(self, query: str) -> list[float]:
        """The values of an instant query, none while Prometheus starts. Raises OSError if it is malformed."""
        return [value for _, value in self.samples(query)]

    def samples(self, query: str) -> list[tuple[dict[str, str], float]]:
        """Return a query's values, each with its labels. An answer that is no instant vector has none."""
        try:
            with urllib.request.urlopen(self._url + urllib.parse.quote(query), timeout=5) as answer:
                data = json.load(answer)["data"]
                some = data["result"] if data["resultType"] == "vector" else []
                return [(found["metric"], float(found["value"][1])) for found in some]
        except urllib.error.HTTPError as error:
            if error.code == http.HTTPStatus.SERVICE_UNAVAILABLE:  # it listens, and is not ready yet
                return []
            raise OSError(f"{query}: {error.read().decode(errors='replace')}")
        except OSError:
            return []

    def wait(self, query: str) -> list[float]:
        """The values once there are some that are not all 0; after half a minute what there is."""
        deadline = time.monotonic() + SECONDS
        while not any(found := self.ask(query)) and time.monotonic() < deadline:
            time.sleep(0.2)
        return found


@contextmanager
def prometheus(folder: Path, *ports: int) -> Iterator[Prometheus]:
    """A Prometheus with the rules of docs/monitoring, which scrapes these ports of 127.0.0.1 as job gangd."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("prometheus is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        listen = free.getsockname()[1]
    config, targets = folder / "prometheus.yml", [f"127.0.0.1:{port}" for port in ports]
    config.write_text(
        "global: {scrape_interval: 200ms, evaluation_interval: 200ms}\n"
        f"rule_files: ['{RULES}']\n"
        f"scrape_configs: [{{job_name: gangd, static_configs: [{{targets: {targets}}}]}}]\n"
    )
    words = [f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [program, *words, f"--web.listen-address=127.0.0.1:{listen}"], stdout=log, stderr=log
        )
    try:
        yield Prometheus(listen)
    finally:
        process.terminate()
        process.wait(30)
