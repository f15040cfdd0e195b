# SPDX-License-Identifier: Apache-2.0
"""A host of many guests, without the guests: what gangd costs is measured on it.

Real are libvirtd and its wire (the test driver behind it), dbus-daemon, gangd as a process of its
own, the D-Bus calls, the journal's file system. Made up are the kernel's two ends: files where /proc, /sys
and /run are (a tree of them), probes and scheduler (`gangd_on_fakes.py`).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import libvirt

from gangd.control import client
from gangd.errors import GangError
from gangd.events import loop
from gangd.model.domain import NAMESPACE, Mark
from gangd.model.mark import format_mark
from host.system.conftest import Libvirtd
from host.system.dbus_fixtures import private_bus
from unit.model.shapes import Shape

REPO = Path(__file__).resolve().parents[3]
HOST = Shape(cores=4, threads=2)  # as many CPUs as the test driver shows pins of
FIRST_PID = 100_000
PIDS = 64  # numbers a guest's threads may have
# The repository itself, for the entry points that `make build` writes there.
PATHS = (REPO / "daemon", REPO / "policies", REPO)
ENV = {
    **os.environ,
    "PYTHONPATH": ":".join(map(str, PATHS)),
    "PYTHONUNBUFFERED": "1",
    "MALLOC_ARENA_MAX": "1",  # as in gangd.service
}
MARK = format_mark(Mark("relaxed"))
GUEST = """<domain type='test'><name>{name}</name><uuid>{uuid}</uuid><memory unit='MiB'>32</memory>
<vcpu>{vcpus}</vcpu><os><type>hvm</type></os><metadata>{mark}</metadata></domain>"""


@dataclass(frozen=True)
class Usage:
    """The usage of gangd's process: CPU seconds since it started, resident bytes, open files, threads."""

    cpu_seconds: float
    rss: int
    files: int
    threads: int


class Stage:
    """Guests come and go on it; gangd watches."""

    def __init__(self, folder: Path, conn: Any, root: Path, uri: str, address: str) -> None:
        self.folder, self.root, self.uri, self.address = folder, root, uri, address
        self.conn = conn
        self.client = client.connect(address)
        # In memory, as /run is: the journal is flushed at every change.
        self.state = tempfile.TemporaryDirectory(prefix="gangd-state-", dir="/dev/shm")
        self.gangd: subprocess.Popen[str] | None = None
        self._slots: list[int] = []
        self._made = 0

    def start(self, settings: str = "", fake: str = "") -> None:
        """Start gangd; returns when it answers. fake: what is wrong with the host, see gangd_on_fakes.py."""
        config = self.folder / "gangd.toml"
        config.write_text(
            f'[daemon]\nlibvirt_uri = "{self.uri}"\nstate_dir = "{self.state.name}"\n'
            f'[control]\nbus = "{self.address}"\n[exporter]\nenabled = false\n{settings}'
        )
        words = [sys.executable, str(Path(__file__).with_name("gangd_on_fakes.py"))]
        log = (self.folder / "gangd.log").open("w")
        self.gangd = subprocess.Popen(
            [*words, str(self.root), str(config), fake], stdout=log, stderr=log, env=ENV
        )
        deadline = time.monotonic() + 120
        while True:
            try:
                self.client = client.connect(self.address)
                if self.client.status()["libvirt"]["connected"]:
                    return
            except GangError:
                if self.gangd.poll() is not None or time.monotonic() > deadline:
                    print(self.log(), file=sys.stderr)
                    raise
            time.sleep(0.1)

    def log(self) -> str:
        """Return gangd's log so far."""
        return (self.folder / "gangd.log").read_text()

    def define(self, name: str, vcpus: int = 2, marked: bool = False) -> Any:
        """A persistent guest that does not run; a virDomain."""
        mark = MARK.replace("<gang ", f'<gangd:gang xmlns:gangd="{NAMESPACE}" ') if marked else ""
        text = GUEST.format(name=name, uuid=uuid.uuid4(), vcpus=vcpus, mark=mark)
        return self.conn.defineXML(text)

    def run(self, dom: Any, vcpus: int = 2) -> None:
        """Start it: its threads are there when libvirt tells."""
        pid = self._slots.pop() if self._slots else FIRST_PID + PIDS * self._made
        self._made += 1
        process = self.root / f"proc/{pid}"
        for index in range(vcpus):
            task = process / f"task/{pid + 1 + index}"
            task.mkdir(parents=True)
            (task / "comm").write_text(f"CPU {index}/KVM\n")
            numbers = " ".join(["0"] * 18)
            (task / "stat").write_text(f"{pid + 1 + index} (CPU {index}/KVM) S {numbers} {self._made} 0 0\n")
            (task / "schedstat").write_text("5000000000 250000000 9000\n")
            (task / "status").write_text(
                "Name:\tCPU\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t2\n"
            )
        (process / "cmdline").write_bytes(b"qemu\0-uuid\0" + dom.UUIDString().encode() + b"\0")
        (process / "cgroup").write_text("0::/\n")
        (self.root / f"run/libvirt/qemu/{dom.name()}.pid").write_text(f"{pid}\n")
        dom.create()

    def end(self, dom: Any) -> None:
        """Destroy it; its threads go, their numbers are used again."""
        file = self.root / f"run/libvirt/qemu/{dom.name()}.pid"
        pid = int(file.read_text())
        dom.destroy()
        file.unlink()
        shutil.rmtree(self.root / f"proc/{pid}")
        self._slots.append(pid)

    def usage(self) -> Usage:
        """Return the present usage of gangd."""
        assert self.gangd is not None
        base = Path(f"/proc/{self.gangd.pid}")
        fields = (base / "stat").read_text().rpartition(")")[2].split()
        ticks = int(fields[11]) + int(fields[12])
        pages = int((base / "statm").read_text().split()[1])
        return Usage(
            ticks / os.sysconf("SC_CLK_TCK"),
            pages * os.sysconf("SC_PAGE_SIZE"),
            len(list((base / "fd").iterdir())),
            len(list((base / "task").iterdir())),
        )

    def end_gangd(self) -> None:
        """End gangd and wait for it."""
        if self.gangd is not None:
            self.gangd.terminate()
            self.gangd.wait(120)
            self.gangd = None

    def close(self) -> None:
        """End what was started."""
        self.end_gangd()
        self.state.cleanup()


@contextlib.contextmanager
def stage() -> Iterator[Stage]:
    """Everything but gangd; ends what it started."""
    loop.start()
    with tempfile.TemporaryDirectory(prefix="gangd-") as name:
        folder = Path(name)
        daemon = Libvirtd(folder, "[]")
        try:
            daemon.start()
            root = folder / "root"
            for file, text in HOST.tree().items():
                (root / file).parent.mkdir(parents=True, exist_ok=True)
                (root / file).write_text(text + "\n")
            (root / "run/libvirt/qemu").mkdir(parents=True)
            uri = daemon.uri.replace("qemu+unix:///system", "test+unix:///default")
            conn = libvirt.open(uri)
            for dom in conn.listAllDomains():
                dom.destroy()
                dom.undefine()
            (folder / "bus").mkdir()
            with private_bus(folder / "bus") as (address, _process):
                made = Stage(folder, conn, root, uri, address)
                try:
                    yield made
                finally:
                    made.close()
        finally:
            daemon.close()
