# SPDX-License-Identifier: Apache-2.0
"""A private D-Bus with a fake gangd on it, and a private libvirtd.

libvirtd: own socket, own network, own /run, /etc/libvirt and /var/lib/libvirt.

Nothing of the machine's own libvirt is seen or touched: libvirtd lives in a
mount namespace of its own, and its view of the files is /proc/PID/root, which
is what gangd gets as its root. Guests are `type='qemu'` and need no /dev/kvm.
At the end a private bus with a fake gangd on it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pytest

from gangd.control.client import Client, connect
from host.system.dbus_fixtures import FakeDaemon, fake_gangd, private_bus

PRIVATE = ("/run", "/etc/libvirt", "/var/lib/libvirt", "/var/log/libvirt")
START_TIMEOUT = 120.0  # seconds; the first capability probe took 64 s once
DAEMON_CONF = 'auth_unix_ro = "none"\nauth_unix_rw = "none"\n'
QEMU_CONF = (
    'stdio_handler = "file"\nsecurity_driver = "none"\nuser = "root"\ngroup = "root"\nnamespaces = []\n'
    'save_image_format = "gzip"\n'  # read through a pipe: some QEMUs refuse the file that libvirt hands them
)
GUEST = """<domain type='qemu'><name>{name}</name><uuid>{uuid}</uuid><memory unit='MiB'>32</memory>
<vcpu current='2'>3</vcpu><os><type arch='x86_64' machine='pc'>hvm</type></os>
<metadata>{metadata}</metadata><features><acpi/></features><devices>
<emulator>{emulator}</emulator><memballoon model='none'/></devices></domain>"""


def namespace() -> list[str]:
    """The command that makes a mount namespace out of which no mount can leak; skips without one."""
    if subprocess.run(["unshare", "-m", "-n", "true"], capture_output=True, check=False).returncode == 0:
        return ["unshare", "-m", "-n"]
    # In a chroot "/" is no mount point and cannot be made private; fine if nothing is shared.
    if " shared:" in Path("/proc/self/mountinfo").read_text():
        pytest.skip("cannot make a private mount namespace here")
    command = ["unshare", "-m", "-n", "--propagation", "unchanged"]
    if subprocess.run([*command, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("cannot make a mount namespace here")
    return command


class Libvirtd:
    """A private libvirtd. controllers: value of qemu.conf's cgroup_controllers, None = libvirt's choice."""

    def __init__(self, directory: Path, controllers: str | None) -> None:
        self.directory = directory
        self.uri = f"qemu+unix:///system?socket={directory}/libvirt-sock"
        conf = QEMU_CONF + (f"cgroup_controllers = {controllers}\n" if controllers else "")
        (directory / "qemu.conf").write_text(conf)
        log = f'log_outputs = "3:file:{directory}/libvirtd.log"\n'
        (directory / "libvirtd.conf").write_text(f'unix_sock_dir = "{directory}"\n{log}{DAEMON_CONF}')
        # One namespace for all lives of the daemon, held by a process that only waits.
        mounts = " && ".join(f"mkdir -p {path} && mount -t tmpfs tmpfs {path}" for path in PRIVATE)
        script = f"{mounts} && cp {directory}/qemu.conf /etc/libvirt/ && echo ready && exec sleep infinity"
        self.holder = subprocess.Popen([*namespace(), "sh", "-c", script], stdout=subprocess.PIPE)
        assert self.holder.stdout is not None
        assert self.holder.stdout.readline() == b"ready\n", "could not make a private namespace"
        self.root = Path(f"/proc/{self.holder.pid}/root")
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start and wait until it answers."""
        import libvirt

        enter = ["nsenter", "-t", str(self.holder.pid), "-m", "-n", "-r", "-w", "--"]
        command = ["libvirtd", "-f", f"{self.directory}/libvirtd.conf", "-p", f"{self.directory}/pid"]
        self.process = subprocess.Popen([*enter, *command])
        deadline = time.monotonic() + START_TIMEOUT
        while True:
            try:
                libvirt.open(self.uri).getCapabilities()
                return
            except libvirt.libvirtError:
                assert self.process.poll() is None, (self.directory / "libvirtd.log").read_text()
                assert time.monotonic() < deadline, "libvirtd does not answer"
                time.sleep(0.1)

    def stop(self) -> None:
        """End the daemon; guests stay."""
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                # Seen once in some hundred times, on a busy machine; it is not what is tested here.
                warnings.warn("libvirtd hung while it ended and was killed", stacklevel=2)
                self.process.kill()
                self.process.wait()
            self.process = None

    def kill(self) -> None:
        """End the daemon at once, whatever it is doing; guests stay."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def close(self) -> None:
        """End guests, daemon and namespace, each by its own PID."""
        guests = [
            int(path.read_text())
            for path in (self.root / "run/libvirt/qemu").glob("*.pid")
            if path.stat().st_size
        ]
        self.stop()
        for pid in guests:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.holder.kill()
        self.holder.wait()


@pytest.fixture(scope="module", params=["cgroups", "affinity only"])
def libvirtd(request: pytest.FixtureRequest) -> Iterator[Libvirtd]:
    """Yield a libvirtd with the controllers libvirt finds, and one with none of them."""
    pytest.importorskip("libvirt")
    missing = [tool for tool in ("libvirtd", "qemu-system-x86_64", "unshare") if not shutil.which(tool)]
    if missing or os.geteuid() != 0:
        pytest.skip(f"needs {', '.join(missing) or 'root'}")
    from gangd.events import loop

    loop.start()
    before = set(Path("/sys/fs/cgroup").glob("*/machine"))
    # Not tmp_path: a socket's path must stay below 108 characters.
    with tempfile.TemporaryDirectory(prefix="gangd-") as directory:
        daemon = Libvirtd(Path(directory), "[]" if request.param == "affinity only" else None)
        try:
            daemon.start()
            yield daemon
        finally:
            daemon.close()
    for left in set(Path("/sys/fs/cgroup").glob("*/machine")) - before:
        for path in sorted([left, *left.rglob("*/")], reverse=True):
            with contextlib.suppress(OSError):
                path.rmdir()


@pytest.fixture
def conn(libvirtd: Libvirtd) -> Any:
    """A connection of the test's own."""
    import libvirt

    return libvirt.open(libvirtd.uri)


@pytest.fixture
def define(conn: Any) -> Iterator[Callable[..., Any]]:
    """Defines a guest of two running and three possible vCPUs; started unless told not to."""
    import libvirt

    made: list[str] = []

    def make(metadata: str = "", name: str = "", start: bool = True) -> Any:
        identity = str(uuid.uuid4())
        emulator = shutil.which("qemu-system-x86_64")
        called = escape(name or f"t{identity[:8]}")
        text = GUEST.format(name=called, uuid=identity, metadata=metadata, emulator=emulator)
        made.append(identity)
        dom = conn.defineXML(text)
        if start:
            dom.create()
        return dom

    yield make
    for identity in made:
        for verb, *args in (("destroy",), ("undefineFlags", libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE)):
            with contextlib.suppress(libvirt.libvirtError):
                getattr(libvirt.open(conn.getURI()).lookupByUUIDString(identity), verb)(*args)


@pytest.fixture
def bus(tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    # Not below tmp_path: its parents are closed to other users.
    folder = Path(f"/tmp/gangd-bus-{os.getpid()}-{tmp_path.name[-20:]}")
    folder.mkdir()
    try:
        with private_bus(folder) as found:
            yield found
    finally:
        for left in folder.iterdir():
            left.unlink()
        folder.rmdir()


@pytest.fixture
def address(bus: tuple[str, subprocess.Popen[str]]) -> str:
    return bus[0]


@pytest.fixture
def daemon(address: str, tmp_path: Path) -> Iterator[FakeDaemon]:
    with fake_gangd(address, tmp_path / "gangd.log") as found:
        yield found


@pytest.fixture
def client(address: str, daemon: FakeDaemon) -> Client:
    return connect(address)
