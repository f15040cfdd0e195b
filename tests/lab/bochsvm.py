# SPDX-License-Identifier: Apache-2.0
"""Boots a row of machine "bochs" and runs one command in it: as session.py, on an emulated Intel or AMD host.

The VM has no share and no virtio: it boots from a CD made here, `files` are in its initramfs (/lab/files),
and its output and its verdict leave through serial ports of their own, which Bochs writes to files. It is
meant to be deterministic: time is counted in instructions, the CPUs take turns of QUANTUM of them in one
thread, and nothing of the machine around it is seen (test_intel.py compares two boots).
"""

import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from lab import bochs, image, initramfs, kernels, packages, project
from lab.errors import Cause, LabError, LostVM
from lab.session import Verdict
from lab.shell import call

# Instructions a virtual second of each CPU, as many TSC ticks, and instructions a turn. A thirtieth of what a
# server has: what happens so often a second (timer ticks, slots) costs as many times less to emulate.
IPS = 100_000_000
QUANTUM = 16
MEMORY = 1024
MODELS = {"intel": "corei7_skylake_x", "amd": "ryzen"}
MARK = b"\x00end of output\x00"  # not drawn by lot as lab.session's: the VM's input is the same each time
POLL_SECONDS = 0.5
LINES = 15  # of the console, for a VM that is lost

BOOT = """\
SERIAL 0
DEFAULT lab
PROMPT 0
LABEL lab
 KERNEL /vmlinuz
 INITRD /initrd
 APPEND {words}
"""
# noxsave: the kernel does not agree with this emulator's CPUID about the size of XSAVE areas. panic=0: the
# console is watched, and a reset would only boot again.
WORDS = (
    *("console=ttyS0", "loglevel=5", "softlockup_all_cpu_backtrace=1", "panic=0", "mitigations=off"),
    *("nokaslr", "noxsave", "tsc=reliable", f"tsc_early_khz={IPS // 1000}"),
)
# sync=none: time is counted in instructions only, whatever the machine's clock says.
CONFIGURATION = """\
display_library: nogui
romimage: file={firmware.bios}
vgaromimage: file={firmware.vga}
megs: {memory}
cpu: model={model}, count=1:1:2, ips={ips}, quantum={quantum}, reset_on_triple_fault=0, ignore_bad_msrs=1
clock: sync=none, time0=1700000000
pci: enabled=1, chipset=i440fx
boot: cdrom
ata0: enabled=1, ioaddr1=0x1f0, ioaddr2=0x3f0, irq=14
ata1: enabled=1, ioaddr1=0x170, ioaddr2=0x370, irq=15
ata0-master: type=cdrom, path={folder}/boot.iso, status=inserted
com1: enabled=1, mode=file, dev={console}
com2: enabled=1, mode=file, dev={folder}/output
com3: enabled=1, mode=file, dev={folder}/verdict
log: {folder}/log
panic: action=fatal
error: action=ignore
info: action=ignore
debug: action=ignore
"""
DISK = "{place}: type=disk, mode=volatile, path={path}, journal={folder}/{name}, model=lab-{name}\n"
PLACES = ("ata0-slave", "ata1-master", "ata1-slave")


@dataclass(frozen=True)
class Options:
    """How to boot. model: a key of MODELS. files: what is put into /lab/files, by name; executable."""

    model: str = "intel"
    timeout: float = 1800.0
    files: Mapping[str, bytes] = field(default_factory=dict)
    console: Path | None = None


def boot(row: str, command: Sequence[str], options: Options, stream: BinaryIO | None = None) -> Verdict:
    """Run the command, as root and without systemd; copies its output to `stream` as it comes.

    Raises LostVM when there is no verdict. Seconds of the verdict are the machine's, not the VM's.
    """
    wanted = kernels.row(row)
    if wanted.machine != "bochs":
        raise LabError(f"cannot boot kernel {row} on Bochs: its machine is {wanted.machine}")
    firmware = bochs.installed()
    packages.need(["genisoimage"], "the Intel row boots from a CD")
    kernel = kernels.prepare(wanted)
    disks = {"root": image.root(), "modules": kernel.modules, "project": project.installed()}
    with tempfile.TemporaryDirectory(prefix="lab-") as name:
        folder = Path(name)
        orders = initramfs.Orders(command, MARK, bare=True, share=False, interactive=False)
        words = " ".join([*WORDS, kernel.row.append]).strip()
        _make_cd(folder, firmware, kernel.vmlinuz, initramfs.pack(kernel, orders, options.files), words)
        console = options.console or folder / "console"
        text = CONFIGURATION.format(
            firmware=firmware, memory=MEMORY, model=MODELS[options.model], ips=IPS, quantum=QUANTUM,
            folder=folder, console=console,
        )  # fmt: skip
        for place, (disk, path) in zip(PLACES, disks.items(), strict=True):
            text += DISK.format(place=place, path=path, folder=folder, name=disk)
        (folder / "bochsrc").write_text(text)
        return _Session(
            f"{row} ({options.model})", firmware.program, folder, console, options.timeout
        ).verdict(stream)


def _make_cd(folder: Path, firmware: bochs.Installed, vmlinuz: Path, initrd: bytes, words: str) -> None:
    tree = folder / "cd"
    (tree / "isolinux").mkdir(parents=True)
    (tree / "initrd").write_bytes(initrd)
    (tree / "vmlinuz").write_bytes(vmlinuz.read_bytes())
    for file in (firmware.isolinux, firmware.ldlinux):
        (tree / "isolinux" / file.name).write_bytes(file.read_bytes())
    (tree / "isolinux" / "isolinux.cfg").write_text(BOOT.format(words=words))
    start = ("-b", "isolinux/isolinux.bin", "-c", "isolinux/boot.cat", "-no-emul-boot")
    table = ("-boot-load-size", "4", "-boot-info-table")
    target = folder / "boot.iso"
    call(["genisoimage", "-quiet", "-R", *start, *table, "-o", target, tree], f"make {target.name}")


class _Session:
    """A run of Bochs, from its start to its end."""

    def __init__(self, name: str, program: Path, folder: Path, console: Path, timeout: float) -> None:
        self._name = name
        self._program = program
        self._folder = folder
        self._console = console
        self._timeout = timeout
        self._streamed = 0

    def verdict(self, stream: BinaryIO | None) -> Verdict:
        """Run the VM to its verdict; however this ends, Bochs has ended too."""
        begin = time.monotonic()
        # setpriv: the VM dies with us, however we die.
        command = ["setpriv", "--pdeathsig", "KILL", "--", str(self._program), "-q"]
        command += ["-f", str(self._folder / "bochsrc")]
        with (self._folder / "said").open("wb") as said:
            emulator = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        started: float | None = None
        try:
            while (status := self._status()) is None or MARK not in self._read("output"):
                if started is None and b"started\n" in self._read("verdict"):
                    started = time.monotonic()
                self._copy(stream)
                if lost := self._lost(emulator, time.monotonic() - begin, started is not None):
                    raise LostVM(*lost, self._last_words())
                time.sleep(POLL_SECONDS)
        finally:
            emulator.kill()  # nothing in the VM is worth a clean shutdown: its disks are only read
            emulator.wait()
        self._copy(stream)
        output = self._read("output").split(MARK)[0].decode(errors="replace")
        now = time.monotonic()
        return Verdict(status, output, now - begin, (started or now) - begin)

    def _status(self) -> int | None:
        for line in self._read("verdict").split(b"\n")[:-1]:
            word, _, number = line.partition(b" ")
            if word == b"status":
                return int(number)
        return None

    def _copy(self, stream: BinaryIO | None) -> None:
        """Write the new output to `stream`, except what may be the beginning of the end mark."""
        safe = self._read("output").split(MARK[:1])[0]
        if stream:
            stream.write(safe[self._streamed :])
            stream.flush()
        self._streamed = len(safe)

    def _lost(
        self, emulator: subprocess.Popen[bytes], seconds: float, started: bool
    ) -> tuple[Cause, str] | None:
        """Return cause and sentence if there will be no verdict any more."""
        name = f"the VM with kernel {self._name} gave no verdict"
        if b"Kernel panic" in self._read("console"):
            return Cause.PANICKED, f"{name}: its kernel panicked after {seconds:.0f} s"
        if (status := emulator.poll()) is not None:
            tail = (self._read("said") + self._read("log")).decode(errors="replace").strip().splitlines()[-5:]
            cause = Cause.EMULATOR_DIED if status else Cause.WENT_DOWN
            return cause, f"{name}: Bochs ended with {status} after {seconds:.0f} s: {' / '.join(tail)}"
        if seconds >= self._timeout:
            cause = Cause.HUNG if started else Cause.NOT_STARTED
            return cause, f"{name}: stopped after {seconds:.0f} s"
        return None

    def _last_words(self) -> list[str]:
        text = self._read("console").decode(errors="replace")
        lines = ["".join(filter(str.isprintable, line)) for line in text.splitlines()]
        return [line for line in lines if line.strip()][-LINES:]

    def _read(self, name: str) -> bytes:
        """A file of the VM; empty while there is none."""
        path = self._console if name == "console" else self._folder / name
        return path.read_bytes() if path.exists() else b""
