# SPDX-License-Identifier: Apache-2.0
"""The QEMU command line of a lab VM, and the machine it describes.

Emulated (TCG), because the lab must run where /dev/kvm does not; the EPYC model because TCG then
emulates SVM with nested paging, so that kvm_amd works inside.

The clock is one of two. `real`: a thread for each emulated CPU, so that they run side by side as long as the
machine has a free CPU for each. `virtual`: one thread, and time is counted in instructions of each CPU
(docs/decisions/0029): slower, and the same whatever else the machine does.

A VM in virtual time is sealed unless a person types into it. Nothing that happens at a time of its own
gets in: its disks are memory, its share is copied in before and out after, idle time passes at once, and it
boots on the same day each time. The same files and the same command are then the same run, to the
instruction (docs/decisions/0031).
"""

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lab.kernels import Kernel

# Virtual time: an instruction takes 8 ns (2^3), and no CPU is further ahead of another than LOCKSTEP_NS,
# which is of the order of what an IPI takes on a real machine.
SHIFT = 3
LOCKSTEP_NS = 10_000


class Clock(enum.Enum):
    """The clock that a VM's seconds follow."""

    REAL = "real"
    VIRTUAL = "virtual"


BIRTHDAY = "2026-01-01T00:00:00"
MIB = 1 << 20
GIB = 1 << 30


def accelerator(clock: Clock, sealed: bool) -> tuple[str, ...]:
    """Return the options of accelerator and clock. If not `sealed`, idle time passes as it does outside."""
    if clock is Clock.REAL:
        return ("-accel", "tcg,thread=multi")
    sleep = "off" if sealed else "on"
    return (
        *("-accel", "tcg,thread=single"),
        *("-icount", f"shift={SHIFT},sleep={sleep},align=off,lockstep={LOCKSTEP_NS}"),
        *("-rtc", f"base={BIRTHDAY},clock=vm" if sealed else "clock=vm", "-seed", "1"),
    )


@dataclass(frozen=True)
class Machine:
    """The hardware of one VM, and the program that emulates it."""

    program: Path
    clock: Clock
    kernel: Kernel
    initrd: Path
    disks: dict[str, Path]
    console: Path
    smp: int
    memory: int
    share: Path | None
    append: str
    interactive: bool
    output: int = -1
    verdict: int = -1
    results: int = -1

    @property
    def sealed(self) -> bool:
        """True if nothing from outside gets in while it runs."""
        return self.clock is Clock.VIRTUAL and not self.interactive


def command_line(machine: Machine) -> list[str]:
    """QEMU's arguments. setpriv: the VM dies with us, however we die."""
    return [
        *("setpriv", "--pdeathsig", "KILL", "--", str(machine.program)),
        *("-nodefaults", "-no-user-config", "-display", "none", "-vga", "none", "-no-reboot"),
        *accelerator(machine.clock, machine.sealed),
        *("-cpu", "EPYC", "-m", _memory(machine)),
        *("-smp", topology(machine.smp)),
        *("-kernel", str(machine.kernel.vmlinux or machine.kernel.vmlinuz), "-initrd", str(machine.initrd)),
        *("-append", kernel_command_line(machine)),
        *("-serial", f"file:{_escaped(machine.console)}"),
        *(_memories(machine.disks) if machine.sealed else _disks(machine.disks)),
        *_ports(machine),
        *_share(None if machine.sealed else machine.share),
    ]


def topology(smp: int) -> str:
    """Return QEMU's -smp: one socket, SMT pairs when the number of CPUs is even."""
    threads = 2 if smp % 2 == 0 else 1
    return f"{smp},sockets=1,cores={smp // threads},threads={threads}"


def kernel_command_line(machine: Machine) -> str:
    """A panic reboots at once, and -no-reboot turns that into QEMU's end.

    loglevel: one more than `quiet`, so that the console gets the backtrace of a lockup,
    and not only the sentence.

    lsm: the modules that a check looks at. Debian's list has bpf too, to which systemd attaches a program:
    4 virtual seconds of a boot.

    damon_stat.enabled: Debian's 6.18 counts accesses to all memory, which took 0.6 of a CPU of a VM with
    6 GiB from its guests after four virtual minutes.

    tsc=reliable: in virtual time one CPU's counter may be LOCKSTEP_NS behind another's. Linux
    would notice, and read the HPET instead, at the price of a system call for every look at the clock.
    """
    words = ["console=ttyS0", "loglevel=5", "softlockup_all_cpu_backtrace=1", "panic=-1"]
    words += ["lsm=lockdown,capability,landlock,yama,apparmor", "damon_stat.enabled=0"]
    words += ["tsc=reliable"] if machine.clock is Clock.VIRTUAL else []
    words += [machine.kernel.row.append, machine.append]
    return " ".join(word for word in words if word)


def _disks(disks: dict[str, Path]) -> Iterator[str]:
    for name, path in disks.items():
        yield from ("-drive", f"file={_escaped(path)},format=raw,if=none,readonly=on,id={name}")
        yield from ("-device", f"virtio-blk-pci,drive={name},serial=lab-{name}")


def _memory(machine: Machine) -> str:
    """Return -m in MiB, and room beside it for disks that are memory, each on a boundary of a GiB."""
    if not machine.sealed:
        return str(machine.memory)
    disks = sum(-(-path.stat().st_size // GIB) + 1 for path in machine.disks.values())
    return f"{machine.memory},slots={len(machine.disks)},maxmem={machine.memory + disks * GIB // MIB}M"


def _memories(disks: dict[str, Path]) -> Iterator[str]:
    """Yield the disks as memory: a block device answers when the machine's own gets to it. The kernel numbers
    them in this order (guest/init), and what it writes stays with this VM."""
    for name, path in disks.items():
        size = path.stat().st_size
        backend = f"memory-backend-file,id={name},mem-path={_escaped(path)},size={size}"
        yield from ("-object", f"{backend},share=off,readonly=on,rom=off")
        yield from ("-device", f"virtio-pmem-pci,memdev={name},id=pmem-{name}")


def _ports(machine: Machine) -> Iterator[str]:
    """ioeventfd=off: what is written is out when the CPU that wrote it goes on."""
    yield from ("-device", f"virtio-serial-pci{',ioeventfd=off' if machine.sealed else ''}")
    ports = {"output": machine.output, "verdict": machine.verdict}
    for name, descriptor in ({**ports, "results": machine.results} if machine.sealed else ports).items():
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
