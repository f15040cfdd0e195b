# SPDX-License-Identifier: Apache-2.0
"""Outside the VM: prepares the shared folder, boots, samples the machine, and starts the driver inside."""

from __future__ import annotations

import shutil
import sys
from argparse import Namespace
from pathlib import Path

from labkit import kernels
from labkit.cpio import Archive
from labkit.paths import LAB, REPO
from labkit.vm import Options, boot

from demo.linux import INIT
from demo.machine import Sampler
from demo.settings import words

HOME = REPO / "build" / "demo"
RESULT = HOME / "result.json"
PAYLOAD = REPO / "build" / "payload" / "loads.elf"
BUSYBOXES = (Path("/usr/bin/busybox"), REPO / "build" / "lab" / "root" / "usr" / "bin" / "busybox")
TIMEOUT_SECONDS = 900.0
CPUS = 2
# The emulator has no pause filter and exits at every PAUSE: the payload counts to a usual filter's window.
WINDOW = 3000
# It also enters a guest now and then so that no interrupt makes it leave again (tests/lab/payload/README.md).
LEAVE = 64
# Eight spinning vCPU threads leave half of two slow CPUs to everything else: a gangctl takes 25 s.
SYSTEM_WEIGHT = 1000


def in_vm(options: Namespace) -> int:
    """Boot the row and run the driver in it. Returns its exit status; LabError: there is none."""
    share = prepared_share(kernels.prepare(kernels.row(options.kernel)).vmlinuz)
    settings = Options(smp=CPUS, share=share, timeout=TIMEOUT_SECONDS, console=HOME / "console")
    print(f"booting {options.kernel} on {CPUS} emulated CPUs", flush=True)
    try:
        with Sampler(share / "machine.json", CPUS):
            verdict = boot(options.kernel, [" ".join(driver_command(options))], settings, sys.stdout.buffer)
    finally:
        for name in ("result.json", "gangd.log"):
            if (share / name).exists():
                shutil.copy(share / name, HOME)
    print(f"all figures: {RESULT.relative_to(REPO)}; {verdict.seconds:.0f} s, "
          f"of which {verdict.boot_seconds:.0f} s boot")  # fmt: skip
    return verdict.status


def prepared_share(vmlinuz: Path) -> Path:
    """The folder that the VM sees as /share: the driver, what it needs, what the guests boot from."""
    share = HOME / "share"
    shutil.rmtree(share, ignore_errors=True)
    share.mkdir(parents=True)
    for name in ("result.json", "gangd.log"):
        (HOME / name).unlink(missing_ok=True)
    unwanted = shutil.ignore_patterns("__pycache__", "lab.py")
    shutil.copytree(Path(__file__).parent, share / "demo", ignore=unwanted)
    for file in (LAB / "payload" / "counters.py", PAYLOAD):
        shutil.copy(file, share)
    shutil.copy(vmlinuz, share / "vmlinuz")
    (share / "initrd").write_bytes(linux_initrd(BUSYBOXES[0]))
    return share


def linux_initrd(busybox: Path) -> bytes:
    """The stock Linux guest's initramfs."""
    archive = Archive()
    archive.directory("dev")
    archive.file("bin/busybox", busybox.read_bytes(), 0o755)
    archive.file("init", INIT.encode(), 0o755)
    return archive.finish()


def driver_command(options: Namespace) -> list[str]:
    """The driver as the VM's shell starts it."""
    return [
        *("PYTHONPATH=/share", "PYTHONDONTWRITEBYTECODE=1", "exec", "python3", "-m", "demo.driver"),
        *("--payload", "/share/loads.elf", "--machine", "/share/machine.json"),
        # The lab's kernels come up without nested paging (labkit/qemu.py). The flat guests live longer so,
        # but a guest that turns paging on does not survive shadow paging under this emulator.
        *("--linux-kvm", "npt=1"),
        *("--linux-kernel", "/share/vmlinuz", "--linux-initrd", "/share/initrd"),
        *("--result", "/share/result.json", "--window", str(WINDOW), "--leave", str(LEAVE)),
        *("--system-weight", str(SYSTEM_WEIGHT), "--time-limit", str(TIMEOUT_SECONDS - 120)),
        *words(options),
    ]
