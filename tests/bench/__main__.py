# SPDX-License-Identifier: Apache-2.0
"""`python3 -m bench`, the command line (command.py) on a machine that has what it needs."""

import os
import sys

from lab.observe.host import KVM, missing

KERNEL = f"/boot/vmlinuz-{os.uname().release}"


def main() -> int:
    """Return the exit status; with --host a sentence says what the machine lacks."""
    if "--host" in sys.argv:
        lacks = missing({KERNEL: KERNEL, "/dev/kvm": KVM}, ("virsh", "systemctl", "gangctl"))
        if lacks:
            sys.exit(f"error: cannot measure on this machine: it has no {lacks}")
    from bench.command import main as measure  # it needs libvirt

    return measure(KERNEL)


sys.exit(main())
