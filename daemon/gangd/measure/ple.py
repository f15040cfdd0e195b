# SPDX-License-Identifier: Apache-2.0
"""Whether pause-loop exiting is switched off in KVM: then no guest takes a PAUSE exit, however it spins.

KVM's vendor modules say it in parameters that do not change while they are loaded: with 0 no PAUSE intercept
is armed (svm_vm_init() in arch/x86/kvm/svm/svm.c, vmx_vm_init() in arch/x86/kvm/vmx/vmx.c). With more it may
not be, either.
"""

from __future__ import annotations

from pathlib import Path

PARAMETERS = ("kvm_amd/parameters/pause_filter_count", "kvm_intel/parameters/ple_gap")


def switched_off(root: Path = Path("/")) -> bool:
    """True when a PAUSE exit cannot be; False when it can, or when nobody says."""
    for name in PARAMETERS:
        try:
            return int((root / "sys/module" / name).read_text()) == 0
        except (OSError, ValueError):
            continue
    return False
