# SPDX-License-Identifier: Apache-2.0
"""gangd-exporter as a process without rights, beside a gangd on a real bus."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gangd.control.client import connect
from host.system.dbus_fixtures import ENV, REPO, ended, fake_gangd, private_bus

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="it becomes another user")

STRANGER = 65534  # one that NSS knows: dbus-daemon turns others away


@pytest.fixture
def folder() -> Iterator[Path]:
    """Open to all, which a temporary folder of pytest is not."""
    path = Path(f"/tmp/gangd-exporter-{os.getpid()}")
    path.mkdir(mode=0o755)
    yield path
    for left in path.iterdir():
        left.unlink()
    path.rmdir()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def scrape(port: int, accept: str = "") -> tuple[int, str, str]:
    """Status, content type and page; waits for somebody to listen."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers={"Accept": accept})
    deadline = time.monotonic() + 20
    while True:
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, answer.headers["Content-Type"], answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, "", ""
        except OSError:
            assert time.monotonic() < deadline, "nobody listens"
            time.sleep(0.1)


def exporter(config: Path, log: Path) -> subprocess.Popen[str]:
    """The program, as the stranger."""
    with log.open("w") as errors:
        return subprocess.Popen(
            [sys.executable, "-m", "gangd.export.main", "--config", str(config)],
            env=ENV,
            cwd=REPO,
            stderr=errors,
            text=True,
            user=STRANGER,
            group=STRANGER,
            extra_groups=[],
        )


def test_it_serves_what_gangd_says(folder: Path, tmp_path: Path) -> None:
    """Both formats are gangd's own page, hostile names included; while gangd is away a scrape fails."""
    port = free_port()
    config = folder / "gangd.toml"
    with private_bus(folder) as (address, _):
        config.write_text(f'[control]\nbus = "{address}"\n[exporter]\nlisten = "127.0.0.1:{port}"\n')
        with ended(exporter(config, tmp_path / "log")) as process:
            with fake_gangd(address, tmp_path / "gangd.log"):
                status, kind, text = scrape(port)
                assert (status, kind) == (200, connect(address).metrics()[0])
                assert text == connect(address).metrics()[1]
                found = {
                    s.labels.get("domain") for f in text_string_to_metric_families(text) for s in f.samples
                }
                assert found >= {"web", "db", "evil\x1b[31m\u202e"}
                _, kind, text = scrape(port, "application/openmetrics-text; version=1.0.0")
                assert kind.startswith("application/openmetrics-text") and text.endswith("# EOF\n")
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10) as answer:
                    assert answer.read().decode() == connect(address).overview()
            assert [scrape(port)[0] for _ in range(3)] == [503] * 3
            process.send_signal(signal.SIGHUP)  # there is no certificate to read again, and nothing stops
            with fake_gangd(address, tmp_path / "gangd.log"):
                assert scrape(port)[0] == 200
            process.terminate()
            assert process.wait(20) == 0
    said = (tmp_path / "log").read_text()
    assert said.count("gangd is not running") == 1
    assert "Traceback" not in said


def test_switched_off_it_ends(folder: Path, tmp_path: Path) -> None:
    """exporter.enabled = false is no failure: nothing listens and nothing runs."""
    config = folder / "gangd.toml"
    config.write_text("[exporter]\nenabled = false\n")
    with ended(exporter(config, tmp_path / "log")) as process:
        assert process.wait(20) == 0
    assert "exporter.enabled" in (tmp_path / "log").read_text()
