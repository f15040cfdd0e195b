# SPDX-License-Identifier: Apache-2.0
"""Read whether pause-loop exiting is off in KVM: then no guest takes a PAUSE exit, however it spins.

KVM's vendor modules say it in parameters that do not change while they are loaded: with a 0 in one of them
no PAUSE intercept is armed (arch/x86/kvm: svm_vm_init() in svm/svm.c, vmx_vm_init() in vmx/vmx.c). An AMD
processor whose filter has a count but no threshold reads 0 for that, and is as blind. Where none reads 0 an
intercept may still not be armed.
"""

from __future__ import annotations

from pathlib import Path

PARAMETERS = (
    "kvm_amd/parameters/pause_filter_count",
    "kvm_amd/parameters/pause_filter_thresh",
    "kvm_intel/parameters/ple_gap",
)


def switched_off(root: Path = Path("/")) -> bool:
    """True when a PAUSE exit cannot be; False when it can, or when nobody says."""
    return any(_read(root / "sys/module" / name) == 0 for name in PARAMETERS)


def _read(parameter: Path) -> int | None:
    try:
        return int(parameter.read_text())
    except (OSError, ValueError):
        return None
