# SPDX-License-Identifier: Apache-2.0
"""KVM guests with the flat payload, straight from QEMU: without libvirt, systemd or the daemon."""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from gangd.model.domain import Domain, Vcpu
from vm.checks.inside.check import SHARE, wait_for


def domain(name: str, pid: int, tids: list[int]) -> Domain:
    """A process as if it were a guest."""
    vcpus = tuple(Vcpu(number, tid) for number, tid in enumerate(tids))
    return Domain(name, name, pid, pid, "running", vcpus)


@contextlib.contextmanager
def payload_guest(load: str, window: int = 500, name: str = "lab") -> Iterator[Domain]:
    """A two-vCPU KVM guest with the payload, straight from QEMU."""
    subprocess.run(["modprobe", "kvm_amd"], check=True)
    words = "-accel kvm -smp 2 -m 16 -nodefaults -no-user-config -display none"
    words += f" -name {name},debug-threads=on"
    payload = ["-kernel", str(SHARE / "loads.elf"), "-append", f"{load} cpus=2 window={window}"]
    process = subprocess.Popen(["qemu-system-x86_64", *words.split(), "-cpu", "host", *payload])
    try:
        wait_for(lambda: len(vcpu_tids(process.pid)) == 2 or process.poll() is not None, 30, "vCPUs appear")
        yield domain(name, process.pid, vcpu_tids(process.pid))
        assert process.poll() is None, "QEMU ended"
    finally:
        process.kill()
        process.wait()


def vcpu_tids(pid: int) -> list[int]:
    """Return the vCPU threads of a QEMU by number, by the names QEMU gives them."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            if match := re.match(r"CPU (\d+)/KVM", (task / "comm").read_text()):
                found[int(match[1])] = int(task.name)
    return [found[number] for number in sorted(found)]
