# SPDX-License-Identifier: Apache-2.0
"""A private dbus-daemon and a fake gangd on it, each ended by its process id."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[3]
POLICY = REPO / "systemd" / "org.gangd.Gangd1.conf"
NOBODY = 65534  # a user without rights
ENV = {
    **os.environ,
    "PYTHONPATH": f"{REPO / 'daemon'}:{REPO / 'policies'}:{REPO / 'tests'}",
    "PYTHONUNBUFFERED": "1",
}

# Debian's system.conf decides this before the bus reads a service's own file; polkit's file does the rest.
SYSTEM_CONF = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>system</type>
  <auth>EXTERNAL</auth>
  <listen>unix:path={socket}</listen>
  <policy context="default">
    <allow user="*"/>
    <deny own="*"/>
    <deny send_type="method_call"/>
    <allow send_type="signal"/>
    <allow send_requested_reply="true" send_type="method_return"/>
    <allow send_requested_reply="true" send_type="error"/>
    <allow receive_type="method_call"/>
    <allow receive_type="method_return"/>
    <allow receive_type="error"/>
    <allow receive_type="signal"/>
    <allow send_destination="org.freedesktop.DBus" send_interface="org.freedesktop.DBus"/>
  </policy>
  <policy user="root">
    <allow own="org.freedesktop.PolicyKit1"/>
  </policy>
  <policy context="default">
    <allow send_destination="org.freedesktop.PolicyKit1"/>
  </policy>
  <include>{policy}</include>
</busconfig>
"""


@contextmanager
def ended(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """The process, killed and reaped when the block ends."""
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


@contextmanager
def private_bus(folder: Path, policy: Path = POLICY) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The address of a system-like bus under our policy file, and its daemon."""
    daemon = shutil.which("dbus-daemon")
    if daemon is None:
        pytest.skip("dbus-daemon is not installed")
    folder.chmod(0o755)
    config = folder / "bus.conf"
    config.write_text(SYSTEM_CONF.format(socket=folder / "bus", policy=policy))
    started = subprocess.Popen(
        [daemon, f"--config-file={config}", "--nofork", "--print-address"],
        stdout=subprocess.PIPE,
        text=True,
    )
    with ended(started) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address, "dbus-daemon did not start"
        yield address, process


class FakeDaemon:
    """tests/host/system/fake_gangd.py as a process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", "fake gangd did not start"

    def say(self, line: str) -> None:
        """Send one line and wait until it was obeyed."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"

    def change(self, verb: str, name: str) -> None:
        """define, start, mark or undefine a domain, whatever it is called."""
        self.say(f"{verb} {name.encode('utf-8', 'surrogateescape').hex()}")


@contextmanager
def fake_gangd(address: str, log: Path) -> Iterator[FakeDaemon]:
    """A fake gangd on the bus at `address`; its stderr goes to `log`."""
    script = Path(__file__).with_name("fake_gangd.py")
    with log.open("w") as errors:
        started = subprocess.Popen(
            [sys.executable, str(script), address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=ENV,
        )
    with ended(started) as process:
        yield FakeDaemon(process)


def gangctl(address: str, *words: str, user: int | None = None) -> subprocess.CompletedProcess[str]:
    """gangctl as a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", "import sys; from gangd.cli.main import main; sys.exit(main())", *words],
        env={**ENV, "GANGD_BUS": address},
        stdin=subprocess.DEVNULL,  # nobody to ask for a password
        capture_output=True,
        text=True,
        timeout=60,
        user=user,
        check=False,
    )


def busctl(address: str, *words: str, user: int | None = None) -> subprocess.CompletedProcess[str]:
    """busctl as a process of its own."""
    tool = shutil.which("busctl")
    if tool is None:
        pytest.skip("busctl is not installed")
    command = [tool, f"--address={address}", "--json=short", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, user=user, check=False)


def call(address: str, *words: str, user: int | None = None) -> subprocess.CompletedProcess[str]:
    return busctl(
        address, "call", "org.gangd.Gangd1", "/org/gangd/Gangd1", "org.gangd.Gangd1", *words, user=user
    )


class Monitor:
    """The signals of a bus as dbus-monitor prints them."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.lines: list[str] = []
        threading.Thread(target=lambda: self.lines.extend(process.stdout or ()), daemon=True).start()

    def until(self, *texts: str, seconds: float = 10.0) -> str:
        """Everything seen, once each of `texts` was, and what came with them."""
        deadline = time.monotonic() + seconds
        while not all(text in "".join(self.lines) for text in texts):
            assert time.monotonic() < deadline, f"{texts} not in:\n{''.join(self.lines)}"
            time.sleep(0.02)
        seen = -1
        while seen != len(self.lines):
            seen = len(self.lines)
            time.sleep(0.05)
        return "".join(self.lines)


@contextmanager
def monitor(address: str, rule: str) -> Iterator[Monitor]:
    """Follows the signals that match `rule`, from now on."""
    command = ["dbus-monitor", "--address", address, rule]
    with ended(subprocess.Popen(command, stdout=subprocess.PIPE, text=True)) as process:
        found = Monitor(process)
        found.until("NameAcquired")  # its own: from here on nothing is missed
        yield found


@contextmanager
def interrupted(address: str, method: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A gangctl that got Ctrl-C after it had called that method."""
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"  # nohup ignores it
    code = f"import sys; {heard}; from gangd.cli.main import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "--bus", address, *words]
    with (
        monitor(address, "type='method_call',interface='org.gangd.Gangd1'") as seen,
        ended(subprocess.Popen(command, stdin=subprocess.DEVNULL, text=True, env=ENV)) as started,
    ):
        seen.until(f"member={method}\n")
        started.send_signal(signal.SIGINT)
        yield started
