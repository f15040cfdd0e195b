# SPDX-License-Identifier: Apache-2.0
"""`make bench-seeds HOST=1`: the same on this machine itself, with its own libvirt, gangd and KVM.

Guests have as many vCPUs as the machine has CPUs, as the RFC's had. The result is in the form of the lab's,
and can stand beside that.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

from bench import conditions, settings, store
from bench.records import Origin
from bench.seeds import image
from lab import project
from lab.guests.counters import MAX_CPUS

RESULT = store.HOME / "seeds-host.json"
SHARE = store.HOME / "share-seeds-host"


def measure(options: Namespace, kernel: Path) -> int:
    """Return the driver's status. kernel: that the guests boot."""
    options = settings.complete(whole_machine(options), "seeds")
    store.begin("seeds", origin(options), RESULT, options.again)
    SHARE.mkdir(parents=True, exist_ok=True)
    for load in options.loads.split(","):
        shutil.copy(image.HOME / f"{load}.initrd", SHARE)
    shutil.copy(kernel, SHARE / "kernel")
    shutil.copy(RESULT, SHARE / store.SHARED)
    words = [sys.executable, "-m", conditions.MODULES["seeds"], "--result", str(SHARE / store.SHARED)]
    words += ["--payload", "none", "--here", *settings.words(options)]
    try:
        return subprocess.run(words, check=False).returncode
    finally:
        store.collect(RESULT, SHARE, 0.0)


def whole_machine(options: Namespace) -> Namespace:
    """Return the options for all CPUs; PLE is as KVM has it, unless it is named."""
    cpus = min(os.cpu_count() or 1, MAX_CPUS)
    chosen = {"smp": cpus, "vcpus": cpus, "ple": options.ple or "loaded", "clock": "real"}
    return Namespace(**{**vars(options), **chosen})


def origin(options: Namespace) -> Origin:
    """Return what the figures depend on: instead of an emulator there is a processor."""
    model = next((line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                  if line.startswith("model name")), "unknown")  # fmt: skip
    return Origin(
        sources=project.measured(False),
        module=False,
        processor=model,
        clock=options.clock,
        row=os.uname().release,
        guest=image.fingerprint(),
        driver=conditions.driver("seeds"),
        **settings.of_origin(options),
    )
