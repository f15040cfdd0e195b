# SPDX-License-Identifier: Apache-2.0
"""The real program gangd is told to read its configuration again, with us in systemd's place."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from host.system.dbus_fixtures import ENV, REPO, ended, private_bus

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the policy lets only root own the name")
pytest.importorskip("libvirt")

CONFIG = """[daemon]
libvirt_uri = "test:///default"
state_dir = "{folder}/state"
{interval}
[scheduler]
backend = "none"
[control]
bus = "{bus}"
"""


class Manager:
    """The receiving end of sd_notify."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.socket.settimeout(20)

    def until(self, word: str) -> str:
        """The first message that has this word; others are dropped."""
        while True:
            message = self.socket.recv(4096).decode()
            if word in message.splitlines() or message.startswith(word):
                return message


def test_reload(tmp_path: Path) -> None:
    """SIGHUP: RELOADING with the clock, the new values, READY; a broken file keeps the old ones, and says so;
    a file that is well again is taken up."""
    folder = Path(f"/tmp/gangd-reload-{os.getpid()}")
    folder.mkdir()
    config, log = tmp_path / "gangd.toml", tmp_path / "log"

    def write(interval: str) -> None:
        config.write_text(CONFIG.format(folder=tmp_path, interval=interval, bus=address))

    def reload() -> str:
        began, before = time.monotonic_ns() // 1000, len(log.read_text())
        process.send_signal(signal.SIGHUP)
        stamp = re.search(r"^MONOTONIC_USEC=(\d+)$", manager.until("RELOADING=1"), re.MULTILINE)
        assert stamp and began <= int(stamp[1]) <= time.monotonic_ns() // 1000
        manager.until("READY=1")
        return log.read_text()[before:]

    try:
        with private_bus(folder) as (address, _), log.open("w") as errors:
            manager = Manager(folder / "notify")
            write("interval = 30")
            started = subprocess.Popen(
                [sys.executable, "-m", "gangd", "--config", str(config)],
                env={**ENV, "NOTIFY_SOCKET": str(folder / "notify")},
                cwd=REPO,
                stderr=errors,
                text=True,
            )
            with ended(started) as process:
                manager.until("READY=1")
                write("interval = 5")
                assert "changed: daemon.interval\n" in reload()
                write("interval = never")
                said = reload()
                assert f"the configuration stays as it was: {config}:4: " in said and "Traceback" not in said
                assert "changed: nothing\n" in (write("interval = 5"), reload())[1]
                write('interval = 6\nmeasure_interval = 2\n[exporter]\nlisten = "[::1]:1"')
                said = reload()
                changed = "changed: daemon.interval, daemon.measure_interval"
                assert f"{changed}; not before a restart: exporter.listen\n" in said
                process.terminate()
                assert process.wait(20) == 0
    finally:
        for left in folder.iterdir():
            left.unlink()
        folder.rmdir()
