# SPDX-License-Identifier: Apache-2.0
"""Boots a VM, runs one command in it, and returns the verdict, or raises LostVM if there was none.

Two virtio-serial ports lead out of the VM: the command's output, and the verdict ("started", then
"status N"). Neither shares a channel with the kernel's console, which goes to a file and is looked
at only to explain a lost VM. Of a sealed VM (lab/qemu.py) there is a third: archives of its share.
"""

import contextlib
import io
import secrets
import selectors
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from lab import emulator, image, initramfs, kernels, project
from lab.errors import Cause, LabError, LostVM
from lab.qemu import Clock, Machine, command_line
from lab.shell import say

CONSOLE_LINES = 15


@dataclass(frozen=True)
class Verdict:
    """The outcome of the command in the VM. `boot_seconds` passed before it started, `seconds` in all."""

    status: int
    output: str
    seconds: float
    boot_seconds: float


@dataclass(frozen=True)
class Options:
    """How to boot; every field has the value that suits most tests.

    clock: by the real one a VM on a busy machine may miss a timer's interrupt, and hang at boot.
    """

    smp: int = 2
    memory: int = 4096
    share: Path | None = None
    timeout: float = 300
    append: str = ""
    bare: bool = False
    console: Path | None = None
    project: bool = True
    interactive: bool = False
    clock: Clock = Clock.VIRTUAL


def run(
    row: str,
    command: str | Sequence[str],
    *,
    smp: int = 2,
    share: Path | None = None,
    timeout: float = 300,
    bare: bool = False,
    append: str = "",
    memory: int = 4096,
    project: bool = True,
    console: Path | None = None,
    clock: Clock = Clock.VIRTUAL,
) -> Verdict:
    """Boot the row's kernel and run the command as root: a string by the shell, a sequence as it is."""
    options = Options(smp, memory, share, timeout, append, bare, console, project, clock=clock)
    return boot(row, [command] if isinstance(command, str) else command, options, stream=None)


def boot(row: str, command: Sequence[str], options: Options, stream: BinaryIO | None) -> Verdict:
    """Boot as `run` does; also copy the output to `stream` as it comes."""
    if options.share and not options.share.is_dir():
        raise LabError(f"cannot share {options.share} with the VM: it is not a directory")
    kernel = kernels.prepare(kernels.row(row))
    disks = {"root": image.root(), "modules": kernel.modules}
    if options.project:
        disks["project"] = project.installed()
    mark = f"\x00end of output {secrets.token_hex(16)}\x00".encode()
    with tempfile.TemporaryDirectory(prefix="lab-") as folder:
        console = options.console or Path(folder, "console")
        machine = Machine(
            program=emulator.program(),
            clock=options.clock,
            kernel=kernel,
            initrd=Path(folder, "initrd"),
            disks=disks,
            console=console,
            smp=options.smp,
            memory=options.memory,
            share=options.share,
            append=options.append,
            interactive=options.interactive,
        )
        machine.initrd.write_bytes(initramfs.pack(kernel, _orders(machine, options.bare, command, mark)))
        return _Session(machine, mark, options.timeout, stream).verdict()


def _orders(machine: Machine, bare: bool, command: Sequence[str], mark: bytes) -> initramfs.Orders:
    shared = machine.share if machine.sealed else None
    disks = [f"lab-{name}" for name in machine.disks] if machine.sealed else []
    share = machine.share is not None
    return initramfs.Orders(command, mark, bare, share, machine.interactive, shared, disks)


class _Session:
    """A run of QEMU, from its start to its end."""

    def __init__(self, machine: Machine, mark: bytes, timeout: float, stream: BinaryIO | None) -> None:
        self._machine = machine
        self._mark = mark
        self._timeout = timeout
        self._stream = stream
        self._output = bytearray()
        self._streamed = 0
        self._words = bytearray()
        self._results = bytearray()
        self._started: float | None = None

    def verdict(self) -> Verdict:
        """Run the VM to its verdict; however this ends, QEMU has ended too."""
        begin = time.monotonic()
        stdin = None if self._machine.interactive else subprocess.DEVNULL
        with contextlib.ExitStack() as stack:
            complaints = stack.enter_context(tempfile.TemporaryFile())
            pairs = [socket.socketpair() for _ in range(3)]
            ours, theirs = ([stack.enter_context(one) for one in side] for side in zip(*pairs, strict=True))
            ports = [one.fileno() for one in theirs]
            machine = replace(self._machine, output=ports[0], verdict=ports[1], results=ports[2])
            qemu = subprocess.Popen(command_line(machine), stdin=stdin, stderr=complaints, pass_fds=ports)
            for one in theirs:
                one.close()
            try:
                self._listen(ours[0], ours[1], ours[2], begin + self._timeout)
                status = self._status()
                if status is None:
                    raise self._lost(qemu, complaints, begin)
            finally:
                _end(qemu)
                self._unpack(ours[2])
        started = self._started or time.monotonic()
        return Verdict(status, self._text(), time.monotonic() - begin, started - begin)

    def _listen(
        self, output: socket.socket, verdict: socket.socket, results: socket.socket, deadline: float
    ) -> None:
        """Collect from all ports until the verdict and the end of the output are in, or QEMU has gone."""
        with selectors.DefaultSelector() as selector:
            selector.register(output, selectors.EVENT_READ, self._on_output)
            selector.register(verdict, selectors.EVENT_READ, self._on_verdict)
            selector.register(results, selectors.EVENT_READ, self._results.extend)
            while selector.get_map() and not self._complete():
                left = deadline - time.monotonic()
                if left <= 0:
                    return
                for key, _ in selector.select(min(left, 60)):
                    assert isinstance(key.fileobj, socket.socket)
                    data = _receive(key.fileobj)
                    if data:
                        key.data(data)
                    else:
                        selector.unregister(key.fileobj)

    def _on_output(self, data: bytes) -> None:
        self._output += data
        if self._stream:
            # Bytes that may begin the end mark stay back until more is known.
            end = self._output.find(self._mark)
            safe = end if end >= 0 else self._without_partial_mark()
            self._stream.write(self._output[self._streamed : safe])
            self._stream.flush()
            self._streamed = max(self._streamed, safe)

    def _on_verdict(self, data: bytes) -> None:
        self._words += data
        if self._started is None and b"started\n" in self._words:
            self._started = time.monotonic()

    def _unpack(self, results: socket.socket) -> None:
        """The share of a sealed VM as it was last saved. Of an archive without an end, a lost VM's, each file
        is taken whole or not at all. A pipe, a device, a link that leads out of the share are left out."""
        while data := _receive(results):
            self._results += data
        if not self._results or not self._machine.share:
            return
        stream = io.BytesIO(self._results)
        with (
            tempfile.TemporaryDirectory(prefix="lab-") as folder,
            contextlib.suppress(tarfile.ReadError),
            tarfile.open(fileobj=stream, ignore_zeros=True) as archives,
        ):
            for member in archives:
                try:
                    archives.extract(member.replace(mtime=time.time()), folder, filter="data")
                except tarfile.FilterError as error:
                    say(f"left out of the share: {error}")
                    continue
                target = self._machine.share / member.name
                if member.isdir():
                    target.mkdir(parents=True, exist_ok=True)
                else:
                    shutil.move(Path(folder, member.name), target)

    def _without_partial_mark(self) -> int:
        for length in range(min(len(self._mark), len(self._output)), 0, -1):
            if self._output.endswith(self._mark[:length]):
                return len(self._output) - length
        return len(self._output)

    def _complete(self) -> bool:
        return self._status() is not None and self._mark in self._output

    def _status(self) -> int | None:
        for line in self._words.split(b"\n")[:-1]:
            word, _, number = line.partition(b" ")
            if word == b"status":
                return int(number)
        return None

    def _text(self) -> str:
        end = self._output.find(self._mark)
        return bytes(self._output if end < 0 else self._output[:end]).decode(errors="replace")

    def _lost(self, qemu: subprocess.Popen[bytes], complaints: BinaryIO, begin: float) -> LostVM:
        """The reason why there is no verdict, in one sentence, and the console's last words."""
        seconds = time.monotonic() - begin
        log = _console(self._machine.console)
        complaints.seek(0)
        said = complaints.read().decode(errors="replace").strip() or "it said nothing"
        if seconds >= self._timeout:
            cause, what = Cause.HUNG, f"stopped after {seconds:.0f} s"
        elif (status := qemu.wait(timeout=60)) != 0 or "terminating on signal" in said:
            cause, what = Cause.EMULATOR_DIED, f"QEMU exited with status {status} ({said})"
        elif any("Kernel panic" in line for line in log):
            cause, what = Cause.PANICKED, f"its kernel panicked after {seconds:.0f} s"
        else:
            cause, what = Cause.WENT_DOWN, f"it went down after {seconds:.0f} s"
        stage = "while its command ran"
        if self._started is None:
            stage = "before its command started"
            cause = cause if cause is Cause.EMULATOR_DIED else Cause.NOT_STARTED
        name = f"the VM with kernel {self._machine.kernel.row.name}"
        return LostVM(cause, f"{name} gave no verdict: {what}, {stage}", _last_words(log))


def _receive(port: socket.socket) -> bytes:
    try:
        return port.recv(65536)
    except ConnectionError:
        return b""


def _console(path: Path) -> list[str]:
    text = path.read_bytes().decode(errors="replace") if path.exists() else ""
    printable = "".join(letter for letter in text if letter.isprintable() or letter == "\n")
    return [line for line in printable.splitlines() if line.strip()]


def _last_words(log: list[str]) -> list[str]:
    """The end of the log, and the line that names the panic if its trace pushed that out."""
    tail = log[-CONSOLE_LINES:]
    return [line for line in log[:-CONSOLE_LINES] if "Kernel panic" in line] + tail


def _end(qemu: subprocess.Popen[bytes]) -> None:
    """Nothing in the VM is worth a clean shutdown: its disks are read-only."""
    if qemu.poll() is None:
        qemu.terminate()
        try:
            qemu.wait(timeout=10)
        except subprocess.TimeoutExpired:
            qemu.kill()
            qemu.wait()
    sys.stdout.flush()
