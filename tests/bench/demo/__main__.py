# SPDX-License-Identifier: Apache-2.0
"""`make demo`: in the lab, from inside the toolbox; with --host on this machine itself.

The work is beside this file: boot.py boots, driver.py measures.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

from bench.demo import settings
from lab.observe import host
from lab.paths import PAYLOAD

NEEDED = {
    "/dev/kvm": host.KVM,
    "/sys/kernel/sched_ext": "sched_ext in its kernel (6.12 or newer, CONFIG_SCHED_CLASS_EXT)",
}


def main() -> int:
    """0: gangd did its work, 1: it did not, 69: there is no verdict."""
    parser = argparse.ArgumentParser(description="Guests with the default scheduler, pinned, and as gangs.")
    parser.add_argument("--kernel", default="6.18", help="row of kernels.toml (%(default)s)")
    parser.add_argument("--host", action="store_true", help="measure on this machine, not in the lab")
    parser.add_argument(
        "--clock", choices=("virtual", "real"), default="virtual", help="of the VM (%(default)s)"
    )
    parser.add_argument("--strict", action="store_true", help="a missed figure fails, too")
    parser.add_argument("--write", action="store_true", help="write what came out into README.md")
    settings.add_options(parser)
    options = parser.parse_args()
    # A terminated demo must end its VM: turn the signal into an exception.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    return on_host(options) if options.host else in_lab(options)


def in_lab(options: argparse.Namespace) -> int:
    """Boot a VM for it."""
    from bench.demo import boot
    from lab.cli import NO_VERDICT
    from lab.errors import LabError
    from lab.qemu import Clock

    options.clock = Clock(options.clock)
    try:
        return boot.in_vm(options)
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return NO_VERDICT


def on_host(options: argparse.Namespace) -> int:
    """The driver here, if this machine has what it needs."""
    missing = host.missing(NEEDED, ("virsh", "bpftool", "systemctl", "gangctl"))
    if missing:
        print(f"error: cannot run the demo on this machine: it has no {missing}", file=sys.stderr)
        return 1
    # Imported late: these need libvirt.
    from bench.demo import boot, outcome
    from bench.demo.driver import main as drive

    files = ["--payload", str(PAYLOAD), "--result", str(boot.RESULT)]
    drive([*files, *linux_guests(boot.HOME / "initrd"), *settings.words(options)])
    return outcome.finish(boot.RESULT, options.strict)


def linux_guests(initrd: Path) -> list[str]:
    """The stock Linux guests' kernel is this host's own; where it is not to be found there are none."""
    from bench.demo import boot

    kernel = Path(f"/boot/vmlinuz-{os.uname().release}")
    if not kernel.exists():
        return []
    initrd.write_bytes(boot.linux_initrd())
    return ["--linux-kernel", str(kernel), "--linux-initrd", str(initrd)]


if __name__ == "__main__":
    sys.exit(main())
