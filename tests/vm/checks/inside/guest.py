# SPDX-License-Identifier: Apache-2.0
"""libvirt guests with the flat payload, seen from inside the VM. To have few VM exits, they wait 3,000 turns
before they PAUSE (tests/lab/guests/flat/README.md, `window`)."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import libvirt

from lab.guests import domains
from lab.guests.counters import NotReadyError, domain_xml
from lab.observe.symptoms import symptoms
from vm.checks.inside import host
from vm.checks.inside.check import SHARE, wait_for

URI = "qemu:///system"
KERNEL = Path("/var/lib/libvirt/images/loads.elf")
OPTIONS = {"window": 3000}
START_SECONDS = 40.0

Pins = tuple[tuple[int, ...], ...]


def prepare() -> Any:
    """Load KVM, put the payload where QEMU may read it, connect to libvirt, and remove what an earlier script
    left."""
    subprocess.run(["modprobe", "kvm_amd"], check=True)
    KERNEL.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(SHARE / "loads.elf", KERNEL)
    conn = domains.connect(URI)
    for dom in conn.listAllDomains():
        if dom.isActive():
            dom.destroy()
        dom.undefineFlags(libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE)
    return conn


class Guest(domains.Guest):
    """A domain of `cpus` vCPUs that runs one load of the payload. It may be started anew."""

    def __init__(self, conn: Any, name: str, load: str, cpus: int = 2, **options: int) -> None:
        words = {**OPTIONS, **options}
        super().__init__(conn.defineXML(domain_xml(name, load, cpus=cpus, kernel=KERNEL, options=words)))

    @property
    def pid(self) -> int:
        """The guest's QEMU process of now."""
        return self.process()

    def start(self) -> Guest:
        """Start it and wait until it counts."""
        self.domain.create()
        wait_for(lambda: self.iterations() > 0, START_SECONDS, f"{self.name} counts")
        return self

    def destroy(self) -> None:
        """End the guest, and have libvirt forget it. Raises libvirtError if libvirt cannot forget it."""
        with contextlib.suppress(libvirt.libvirtError):
            self.domain.destroy()
        self.domain.undefine()

    @property
    def running(self) -> bool:
        """True if libvirt says that the guest runs."""
        return bool(self.domain.state()[0] == libvirt.VIR_DOMAIN_RUNNING)

    def iterations(self) -> int:
        """Return the payload's iterations since it started; 0 while it boots."""
        try:
            return self.counters().iterations
        except NotReadyError:
            return 0

    def progress(self, seconds: float) -> int:
        """Iterations done within the next `seconds`."""
        before = self.iterations()
        time.sleep(seconds)
        return self.iterations() - before

    def lost(self) -> str | None:
        """Return why the guest does not count any more, None while it runs and counts. The symptoms of its
        threads are read first: a cause of starvation may be over in a moment."""
        try:
            if not self.running:
                return f"{self.name} is in state {self.domain.state()}"
            before, found = self.iterations(), symptoms(self.pid, self.threads())
            if self.iterations() > before:
                return None
            if found.starved:
                return f"{self.name} was starved by the scheduler: {found}"
            return None if self.progress(5.0) else f"{self.name} runs but counts no more: {found}"
        except libvirt.libvirtError as error:
            return f"{self.name}: {error}"

    def pin(self, vcpu: int, *cpus: int) -> None:
        """Pin a vCPU as `virsh vcpupin --live` does."""
        self.domain.pinVcpuFlags(vcpu, tuple(cpu in cpus for cpu in range(2)), libvirt.VIR_DOMAIN_AFFECT_LIVE)

    def confine(self, vcpu: int, *cpus: int) -> None:
        """Set a vCPU thread's affinity as `taskset -p` does: gangd need not keep it as an operator's wish."""
        os.sched_setaffinity(self.threads()[vcpu], cpus)

    def pins(self) -> Pins:
        """Return libvirt's live pin of every vCPU, as CPU numbers."""
        found = self.domain.vcpuPinInfo(libvirt.VIR_DOMAIN_AFFECT_LIVE)
        return tuple(tuple(cpu for cpu, on in enumerate(cpus) if on) for cpus in found)

    def affinities(self) -> Pins:
        """Return the CPUs on which each vCPU's thread may run."""
        return tuple(tuple(sorted(os.sched_getaffinity(tid))) for _, tid in sorted(self.threads().items()))

    def settings(self) -> dict[str, object]:
        """Return every setting of this guest on the host that gangd could have changed."""
        pid = self.pid
        threads = sorted(int(path.name) for path in Path(f"/proc/{pid}/task").iterdir())
        vcpus = self.threads()
        return {
            "id and process": (self.domain.ID(), pid),
            "pins": self.pins(),
            "affinity": {vcpu: os.sched_getaffinity(tid) for vcpu, tid in vcpus.items()},
            "cpusets": _cpusets(pid),
            "classes": {vcpu: os.sched_getscheduler(tid) for vcpu, tid in vcpus.items()},
            "nice": {vcpu: os.getpriority(os.PRIO_PROCESS, tid) for vcpu, tid in vcpus.items()},
            "other classes": {os.sched_getscheduler(tid) for tid in threads},
            "parameters": self.domain.schedulerParameters(),
        }


def first_loss(guests: Iterable[Guest]) -> str | None:
    """Return why the first guest that does not count any more does not, None while all count."""
    return next(filter(None, (guest.lost() for guest in guests)), None)


class Guests(dict[str, Guest]):
    """The guests of a script, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.conn = prepare()

    def start(self, name: str, load: str, **options: int) -> Guest:
        """Start one more guest."""
        self[name] = Guest(self.conn, name, load, **options).start()
        return self[name]

    def keep_only(self, *names: str) -> None:
        """Remove the other guests."""
        for name in set(self) - set(names):
            self.pop(name).destroy()

    def lost(self) -> str | None:
        """Return why a guest does not count any more; None while all do."""
        return first_loss(self.values())

    def go(self, seconds: float = 30.0) -> None:
        """Remove all guests; fail unless the scheduler goes with them."""
        self.keep_only()
        wait_for(lambda: host.scheduler() == "disabled", seconds, "the scheduler is unloaded")


def differences(before: dict[str, object], after: dict[str, object]) -> dict[str, tuple[object, object]]:
    """Return the settings that changed, each with its value before and after."""
    return {key: (before[key], after[key]) for key in before if before[key] != after[key]}


def _cpusets(pid: int) -> dict[str, str]:
    """cpuset and weight of every cgroup of the guest."""
    group = Path(f"/proc/{pid}/cgroup").read_text().split("::")[-1].strip().removesuffix("/emulator")
    found = {}
    for name in ("cpuset.cpus", "cpu.weight", "cpu.max"):
        for path in sorted(Path(f"/sys/fs/cgroup{group}").rglob(name)):
            found[str(path)] = path.read_text().strip()
    return found
