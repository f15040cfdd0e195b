# SPDX-License-Identifier: Apache-2.0
"""Outside the VM: prepares the shared folder, boots, watches, and boots again where a VM was lost."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from argparse import Namespace
from pathlib import Path

from bench import settings, store
from bench.conditions import LINUX, MODULES, PROGRAMS, origin
from bench.seeds import image
from bench.settings import words
from bench.tile import image as tile
from bench.tile.settings import settled
from lab import kernels, kmod
from lab.errors import LabError, LostVM
from lab.guests.domains import WINDOW
from lab.observe.machine import child
from lab.observe.module import UNIT
from lab.paths import PAYLOAD, REPO
from lab.qemu import Clock
from lab.session import Options, boot
from lab.share import add, python
from lab.shell import lock

MEMORY_MIB = {"seeds": 10240, "tile": 6144}  # Linux guests, and what they boot from
BOOTS = 6
SILENCE_SECONDS = 1200.0  # no cell takes that long without a word, also with 16 CPUs on one


class Words:
    """A stream that remembers when it was last written to."""

    def __init__(self) -> None:
        self.last = time.monotonic()

    def write(self, data: bytes) -> int:
        """Write `data` to our own output, and note the time."""
        if data:
            self.last = time.monotonic()
        return sys.stdout.buffer.write(data)

    def flush(self) -> None:
        """Flush our own output."""
        sys.stdout.buffer.flush()


class Keeper(threading.Thread):
    """While entered, watches the VM that is our child, and kills it when it has been silent for too long: it
    hangs, and nothing inside can tell. A process has one at a time (lanes.py)."""

    def __init__(self, stream: Words) -> None:
        super().__init__(daemon=True)
        self._stream = stream
        self._stop_now = threading.Event()

    def run(self) -> None:
        """Watch the VM until the thread is told to stop."""
        while not self._stop_now.wait(5):
            pid = child("qemu-system-x86")
            if pid and time.monotonic() - self._stream.last > SILENCE_SECONDS:
                print(f"lab: the VM has been silent for {SILENCE_SECONDS:.0f} s: it is ended", flush=True)
                self._stream.last = time.monotonic()
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def __enter__(self) -> Keeper:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_now.set()
        self.join()


def measure(part: str, options: Namespace, place: Path | None = None) -> int:
    """Measure one part in a VM of its own, in more of them if one is lost. Returns the driver's status."""
    options = settings.complete(settled(options) if part == "tile" else options, part)
    place = place or store.HOME / f"{store.name_of(part, options)}.json"
    store.begin(part, origin(part, options), place, options.again)
    share = store.HOME / f"share-{place.stem}"
    _prepare(options.kernel, place, share)
    if part in LINUX:
        _prepare_linux(part, options, share)
    for attempt in range(1, BOOTS + 1):
        stream, started = Words(), time.monotonic()
        console = store.HOME / f"console-{place.stem}-{attempt}"
        clock = Clock(options.clock)
        machine = Options(
            smp=options.smp,
            memory=memory(part),
            share=share,
            timeout=6 * 3600.0,
            console=console,
            clock=clock,
        )
        print(f"booting {options.kernel} on {options.smp} emulated CPUs, {clock.value} time", flush=True)
        try:
            with Keeper(stream):
                command = _command(MODULES[part], options)
                verdict = boot(options.kernel, [command], machine, stream)  # type: ignore[arg-type]
            return verdict.status
        except LostVM as lost:
            print(f"lab: {lost}", file=sys.stderr)
            if attempt == BOOTS:
                raise
            print(f"lab: going on where it was, boot {attempt + 1} of {BOOTS}", flush=True)
        finally:
            store.collect(place, share, time.monotonic() - started)
    raise AssertionError


def memory(part: str) -> int:
    """Return the memory of a part's VM in MiB."""
    return MEMORY_MIB.get(part, 4096)


def _prepare(row: str, place: Path, share: Path) -> None:
    """The folder that the VM sees as /share: the driver, what it needs, what there is already."""
    shutil.rmtree(share, ignore_errors=True)
    share.mkdir(parents=True)
    add(share, ("bench", "lab/guests", "lab/observe"), ("boot.py", "demo", "seeds", "tile"))
    shutil.copy(PAYLOAD, share)
    shutil.copy(place, share / store.SHARED)
    module = _module(row)
    if module:
        shutil.copy(module, share)
        shutil.copy(REPO / "systemd" / UNIT, share)
    for source in PROGRAMS.values():
        subprocess.run(["gcc", "-O2", "-pthread", "-o", share / source.stem, source], check=True)


def _prepare_linux(part: str, options: Namespace, share: Path) -> None:
    """Copy what the Linux guests boot from into the share, too."""
    folders = ("bench/seeds", "bench/tile") if part == "tile" else ("bench/seeds",)
    add(share, folders, ("image.py", "page.py", "head.md", "guest"))
    kernel = kernels.prepare(kernels.row(options.kernel))
    # Unpacking its own kernel is most of a guest's boot under emulation.
    shutil.copy(kernel.vmlinux or kernel.vmlinuz, share / "kernel")
    with lock("guests"):  # what they run is compiled in one place
        for load in options.loads.split(","):
            (share / f"{load}.initrd").write_bytes(_packed(part, load, kernel))


def _packed(part: str, load: str, kernel: kernels.Kernel) -> bytes:
    """Return the initrd of a load."""
    if part == "latency":
        return image.latency_initrd(kernel)
    return tile.initrd(kernel) if load == "tile" else image.initrd(load)


def _module(row: str) -> Path | None:
    """gang.ko for the row; None, and a sentence, where it cannot be built: the rest is measured without."""
    try:
        return kmod.module(kernels.row(row))
    except LabError as error:
        print(f"measuring without gang.ko: {error}", flush=True)
        return None


def _command(module: str, options: Namespace) -> str:
    """The driver as the VM's shell starts it."""
    found = [
        *python(module),
        *("--result", f"/share/{store.SHARED}", "--payload", f"/share/{PAYLOAD.name}"),
        *("--window", str(WINDOW), *words(options)),
    ]
    return " ".join(found)
