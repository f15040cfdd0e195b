# SPDX-License-Identifier: Apache-2.0
"""The QEMU command line of a lab VM, and the machine it describes.

Emulated (TCG), because the lab must run where /dev/kvm does not; the EPYC model because TCG then
emulates SVM with nested paging, so that kvm_amd works inside.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from labkit.kernels import Kernel


@dataclass(frozen=True)
class Machine:
    """The hardware of one VM."""

    kernel: Kernel
    initrd: Path
    disks: dict[str, Path]
    console: Path
    output: int
    verdict: int
    smp: int
    memory: int
    share: Path | None
    append: str
    interactive: bool


def command_line(machine: Machine) -> list[str]:
    """QEMU's arguments. setpriv: the VM dies with us, however we die."""
    return [
        *("setpriv", "--pdeathsig", "KILL", "--", "qemu-system-x86_64"),
        *("-nodefaults", "-no-user-config", "-display", "none", "-vga", "none", "-no-reboot"),
        *("-accel", "tcg,thread=multi", "-cpu", "EPYC", "-m", str(machine.memory)),
        *("-smp", topology(machine.smp)),
        *("-kernel", str(machine.kernel.vmlinuz), "-initrd", str(machine.initrd)),
        *("-append", kernel_command_line(machine)),
        *("-serial", f"file:{_escaped(machine.console)}"),
        *_disks(machine.disks),
        *_ports(machine),
        *_share(machine.share),
    ]


def topology(smp: int) -> str:
    """One socket; SMT pairs when the number of CPUs is even."""
    threads = 2 if smp % 2 == 0 else 1
    return f"{smp},sockets=1,cores={smp // threads},threads={threads}"


def kernel_command_line(machine: Machine) -> str:
    """A panic reboots at once, and -no-reboot turns that into QEMU's end.

    loglevel: one more than `quiet`, so that the console gets the backtrace of a lockup,
    and not only the sentence.

    kvm_amd.npt=0: with nested paging the emulator now and then runs the first
    instruction after a #VMEXIT as if the guest still ran (seen in its own log: a
    PAUSE exit, then an NPF exit with the host's RIP), and the guest dies. With
    shadow paging four guests taking 2,000 PAUSE exits a second each live on.
    """
    words = ["console=ttyS0", "loglevel=5", "softlockup_all_cpu_backtrace=1", "panic=-1", "kvm_amd.npt=0"]
    words += [machine.kernel.row.append, machine.append]
    return " ".join(word for word in words if word)


def _disks(disks: dict[str, Path]) -> Iterator[str]:
    for name, path in disks.items():
        yield from ("-drive", f"file={_escaped(path)},format=raw,if=none,readonly=on,id={name}")
        yield from ("-device", f"virtio-blk-pci,drive={name},serial=lab-{name}")


def _ports(machine: Machine) -> Iterator[str]:
    yield from ("-device", "virtio-serial-pci")
    for name, descriptor in (("output", machine.output), ("verdict", machine.verdict)):
        yield from ("-chardev", f"socket,id={name},fd={descriptor}")
        yield from ("-device", f"virtserialport,chardev={name},name=lab.{name}")
    if machine.interactive:
        yield from ("-chardev", "stdio,id=terminal,signal=off", "-device", "virtconsole,chardev=terminal")


def _share(share: Path | None) -> Iterator[str]:
    if share:
        yield "-virtfs"
        yield f"local,path={_escaped(share)},mount_tag=share,security_model=none,multidevs=remap"


def _escaped(path: Path) -> str:
    return str(path).replace(",", ",,")
