# SPDX-License-Identifier: Apache-2.0
"""PAUSE-loop exiting, switched by reloading KVM's vendor module."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

# What switches PLE off. (KVM then arms no PAUSE intercept: the host of the RFC's second table.)
OFF = {"kvm_amd": "pause_filter_count=0", "kvm_intel": "ple_gap=0"}
TRIES = 10


def vendor(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The module for this CPU."""
    return "kvm_amd" if "AuthenticAMD" in cpuinfo.read_text() else "kvm_intel"


def ple() -> bool:
    """True if KVM arms the PAUSE intercept now."""
    module = vendor()
    parameter = OFF[module].partition("=")[0]
    return int(Path(f"/sys/module/{module}/parameters/{parameter}").read_text()) > 0


def switch(wanted: bool, *parameters: str) -> None:
    """Reload KVM with PLE on or off, and with further parameters.

    Raises OSError when it cannot, e.g. because guests run.
    """
    module = vendor()
    _call(["modprobe", "-r", module])
    _call(["modprobe", module, *([] if wanted else [OFF[module]]), *parameters])
    if ple() != wanted:
        state = "on" if wanted else "off"
        raise OSError(f"{module} was reloaded, but PLE is not {state}: this CPU or emulator has none")


def _call(words: list[str]) -> None:
    """Try for a while: QEMU processes that libvirt asked for their capabilities linger."""
    for _ in range(TRIES):
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return
        time.sleep(1)
    raise OSError(f"{' '.join(words)}: {done.stderr.strip()}")
