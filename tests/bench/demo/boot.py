# SPDX-License-Identifier: Apache-2.0
"""Outside the VM: prepares the shared folder, boots, samples the machine, and starts the driver inside."""

from __future__ import annotations

import shutil
import sys
import time
from argparse import Namespace
from pathlib import Path

from bench import grid
from bench.demo.outcome import finish
from bench.demo.report import NO_VERDICT
from bench.demo.settings import words
from lab import kernels
from lab.cpio import Archive
from lab.errors import Cause, LabError, LostVM
from lab.guests.domains import WINDOW
from lab.observe.machine import sampled
from lab.paths import PAYLOAD, REPO
from lab.qemu import Clock
from lab.session import Options, boot
from lab.share import add, python

HOME = REPO / "build" / "demo"
RESULT = HOME / "result.json"
SPINNER = HOME / "spinner"
TIMEOUT_SECONDS = 2400.0  # several times what it takes: machines may be slower, or very busy
CPUS = 2


def in_vm(options: Namespace) -> int:
    """Boot the row, run the driver in it, and say what came out. LabError: nothing did."""
    share = prepared_share(kernels.prepare(kernels.row(options.kernel)).vmlinuz)
    settings = Options(
        smp=CPUS, share=share, timeout=TIMEOUT_SECONDS, console=HOME / "console", clock=options.clock
    )
    print(f"booting {options.kernel} on {CPUS} emulated CPUs, {options.clock.value} time", flush=True)
    lost, begin = None, time.monotonic()
    try:
        with sampled(share / "machine.json", CPUS, options.clock is Clock.REAL):
            boot(options.kernel, [" ".join(driver_command(options))], settings, sys.stdout.buffer)
    except LostVM as found:
        lost = found
        print(f"lab: {lost}", file=sys.stderr)
    finally:
        for name in (RESULT.name, "gangd.log"):
            if (share / name).exists():
                shutil.copy(share / name, HOME)
    print(f"{time.monotonic() - begin:.0f} s of wall time")
    if not RESULT.exists():
        raise lost or LabError("the driver has left no result")
    status = finish(RESULT, options.strict, options.write and lost is None)
    # A kernel panic under our scheduler is our fault until a test has shown that it is not.
    panicked = lost is not None and lost.cause in (Cause.PANICKED, Cause.WENT_DOWN)
    return 1 if panicked else status or (NO_VERDICT if lost else 0)


def prepared_share(vmlinuz: Path) -> Path:
    """The folder that the VM sees as /share: the driver, what it needs, what the guests boot from."""
    share = HOME / "share"
    shutil.rmtree(share, ignore_errors=True)
    share.mkdir(parents=True)
    for name in (RESULT.name, "gangd.log"):
        (HOME / name).unlink(missing_ok=True)
    add(share, ("bench/demo", "lab/guests", "lab/observe"), ("boot.py", "outcome.py"))
    shutil.copy(Path(grid.__file__), share / "bench")
    shutil.copy(PAYLOAD, share)
    shutil.copy(vmlinuz, share / "vmlinuz")
    (share / "initrd").write_bytes(linux_initrd())
    return share


def linux_initrd() -> bytes:
    """The stock Linux guests' initramfs: one program."""
    archive = Archive()
    archive.directory("dev")
    archive.file("init", SPINNER.read_bytes(), 0o755)
    return archive.finish()


def driver_command(options: Namespace) -> list[str]:
    """The driver as the VM's shell starts it."""
    real = ("--machine", "/share/machine.json")
    return [
        *python("bench.demo.driver"),
        *("--payload", "/share/loads.elf", "--linux-kernel", "/share/vmlinuz"),
        *("--linux-initrd", "/share/initrd", "--result", f"/share/{RESULT.name}", "--window", str(WINDOW)),
        *(("--virtual",) if options.clock is Clock.VIRTUAL else real),
        *words(options),
    ]
