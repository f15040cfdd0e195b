# SPDX-License-Identifier: Apache-2.0
"""Outside the VM: prepares the shared folder, boots, watches, and boots again where a VM was lost."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from argparse import Namespace
from pathlib import Path

from demo.lab import CPUS, LEAVE, PAYLOAD, WINDOW
from demo.machine import Sampler, child
from labkit import kernels, kmod
from labkit.errors import LabError, LostVM
from labkit.paths import LAB, REPO
from labkit.vm import Options, boot

from bench.settings import LOG, words

HOME = REPO / "build" / "bench"
RESULT = HOME / "kernel.json"
SHARE = HOME / "share"
BOOTS = 6
SILENCE_SECONDS = 240.0  # no cell takes that long without a word


class Words:
    """A stream that remembers when it was last written to."""

    def __init__(self) -> None:
        self.last = time.monotonic()

    def write(self, data: bytes) -> int:
        """To our own output."""
        if data:
            self.last = time.monotonic()
        return sys.stdout.buffer.write(data)

    def flush(self) -> None:
        """As every stream."""
        sys.stdout.buffer.flush()


class Keeper(threading.Thread):
    """While entered, looks after the VM that is our child.

    Each emulated CPU has a CPU of the machine for itself: two on one take turns, and a barrier is then
    crossed once a tick. A VM that has been silent for too long hangs, and nobody inside can tell: it is
    ended.
    """

    def __init__(self, stream: Words) -> None:
        super().__init__(daemon=True)
        self._stream = stream
        self._stop_now = threading.Event()

    def run(self) -> None:
        """The thread's own life."""
        while not self._stop_now.wait(5):
            pid = child("qemu-system-x86")
            if pid:
                _spread(pid)
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


def _spread(pid: int) -> None:
    """Emulated CPU n on the n-th of the CPUs we may use, if there are enough."""
    cpus = sorted(os.sched_getaffinity(0))
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with contextlib.suppress(OSError):
            found = re.match(r"CPU (\d+)/TCG", (task / "comm").read_text())
            if found and len(cpus) >= CPUS:
                os.sched_setaffinity(int(task.name), {cpus[int(found[1])]})


def matrix(options: Namespace) -> int:
    """The matrix in one VM, in more of them if one is lost: what is measured stays. The driver's status."""
    return _in_vm("bench.driver", options, bare=False)


def overhead(options: Namespace) -> int:
    """The second part, with a VM of its own: neither libvirt nor guests are needed."""
    return _in_vm("bench.overhead", options, bare=True)


def adaptive(options: Namespace) -> int:
    """The third part, with the daemon; of the other two nothing is forgotten."""
    HOME.mkdir(parents=True, exist_ok=True)
    if options.again and RESULT.exists():
        RESULT.write_text(json.dumps({**document(), "adaptive": []}, indent=1) + "\n")
    return _in_vm("bench.adaptive", options, bare=False)


def _in_vm(module: str, options: Namespace, bare: bool) -> int:
    _prepare(options.kernel)
    for attempt in range(1, BOOTS + 1):
        stream = Words()
        console = HOME / f"console-{attempt}"
        settings = Options(smp=CPUS, share=SHARE, timeout=6 * 3600.0, bare=bare, console=console)
        print(f"booting {options.kernel} on {CPUS} emulated CPUs", flush=True)
        try:
            with Sampler(SHARE / "machine.json", CPUS), Keeper(stream):
                verdict = boot(options.kernel, [_command(module, options)], settings, stream)  # type: ignore[arg-type]
            return verdict.status
        except LostVM as lost:
            print(f"lab: {lost}", file=sys.stderr)
            if attempt == BOOTS:
                raise
            print(f"lab: going on where it was, boot {attempt + 1} of {BOOTS}", flush=True)
        finally:
            for found in (SHARE / RESULT.name, SHARE / LOG):
                if found.exists():
                    shutil.copy(found, HOME)
    raise AssertionError


def begin(again: bool) -> None:
    """Keep the last result to go on with, or forget it."""
    HOME.mkdir(parents=True, exist_ok=True)
    if again:
        RESULT.unlink(missing_ok=True)


def document() -> dict[str, object]:
    """What has been measured so far."""
    found: dict[str, object] = json.loads(RESULT.read_text())
    return found


def _prepare(row: str) -> None:
    """The folder that the VM sees as /share: the driver, what it needs, what there is already."""
    shutil.rmtree(SHARE, ignore_errors=True)
    SHARE.mkdir(parents=True)
    unwanted = shutil.ignore_patterns("__pycache__", "lab.py", "*.c")
    for package in ("bench", "demo"):
        shutil.copytree(LAB / package, SHARE / package, ignore=unwanted)
    for file in (LAB / "payload" / "counters.py", PAYLOAD):
        shutil.copy(file, SHARE)
    if RESULT.exists():
        shutil.copy(RESULT, SHARE)
    module = _module(row)
    if module:
        shutil.copy(module, SHARE)
    source = LAB / "bench" / "wakeup.c"
    subprocess.run(["gcc", "-O2", "-pthread", "-o", SHARE / "wakeup", source], check=True)


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
        *("PYTHONPATH=/share", "PYTHONDONTWRITEBYTECODE=1", "exec", "python3", "-m", module),
        *("--result", f"/share/{RESULT.name}", "--machine", "/share/machine.json"),
        *("--payload", f"/share/{PAYLOAD.name}", "--window", str(WINDOW), "--leave", str(LEAVE)),
        *words(options),
    ]
    return " ".join(found)
