# SPDX-License-Identifier: Apache-2.0
"""The BPF probes (kernel-helper/bpf/lhp.bpf.c): which threads they watch, what they counted.

The probes need a kernel with BTF, and the kvm module for VM exits. A part that
cannot be had is left out and named; what it would have counted is then unknown.
Nothing is loaded while no guest runs.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from gangd import bpf
from gangd.bpf import abi
from gangd.measure import ple
from gangd.measure.exit_reasons import reason_name
from gangd.model.domain import Domain
from gangd.trouble import Trouble

EXIT_PROGRAM = "on_exit"
# The map of exit counts has its whole index in memory at once, 16 bytes an entry: as many as the host needs.
REASONS = 32  # that one vCPU takes; some twenty are usual
VCPUS_MIN, VCPUS_PER_CPU = 1024, 32
# KVM tells which vCPU runs, waits or sleeps, at no cost for other tasks; where it cannot, the scheduler does.
OF_KVM = ("on_load", "on_put", "on_rcuwait")
OF_SCHEDULER = ("on_switch", "on_wakeup")
PROGRAMS = (*OF_KVM, *OF_SCHEDULER, "on_task_exit", EXIT_PROGRAM)


class VcpuCount(NamedTuple):
    """Counters of one vCPU since it was first watched; None where no probe counts them, or, for pause_exits
    and lhp_exits, where pause-loop exiting is off: none were taken then, which says nothing. cpu: where it
    ran last, None = it has not run yet."""

    exits: Mapping[str, int] | None = None
    pause_exits: int | None = None
    lhp_exits: int | None = None
    cpu: int | None = None


@dataclass(frozen=True)
class GuestCount:
    """Counters of one guest: seconds with a vCPU on CPU, those with none waiting, those with one."""

    run_seconds: float
    corun_seconds: float
    costop_seconds: float
    vcpus: Mapping[int, VcpuCount] = field(default_factory=dict)


class Probes:
    """Follows the running guests. `sync()` and `read()` raise nothing; `reason` says what is missing,
    `failing` what the kernel refuses of probes that are loaded. by_kvm: KVM tells them of transitions, and
    the host's other tasks pay nothing."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._object: bpf.Object | None = None
        self._links: list[bpf.Link] = []
        self._exits = self.by_kvm = False
        self._guests: dict[str, int] = {}
        self._threads: dict[int, tuple[int, int, int]] = {}
        self.reason = "no guest runs"
        self.log = ""
        self._watching = Trouble("watch the threads of guests")
        self._reading = Trouble("read the counters of the probes")

    @property
    def failing(self) -> str:
        """Return what fails in one sentence, "" when nothing does."""
        return "; ".join(filter(None, (self._watching.reason, self._reading.reason)))

    @property
    def active(self) -> bool:
        """The probes are loaded."""
        return self._object is not None

    def sync(self, domains: Iterable[Domain]) -> None:
        """Watch exactly the vCPU threads of the running `domains`; of too many those that come first."""
        with self._watching.catching():
            self._sync(domains)

    def _sync(self, domains: Iterable[Domain]) -> None:
        running = [d for d in domains if d.running and d.pid and any(v.tid for v in d.vcpus)]
        if not running:
            self.close("no guest runs")
            return
        if self._kvm_came():
            self.close("VM exits can be counted from now on")
        if self._object is None and not self._load():
            return
        seen = list(_fitting(running))
        self._number([d.uuid for d in seen])
        wanted = {
            vcpu.tid: (domain.pid or 0, self._guests[domain.uuid], vcpu.index)
            for domain in seen
            for vcpu in domain.vcpus
            if vcpu.tid
        }
        self._watch(wanted)

    def read(self) -> dict[str, GuestCount]:
        """Counters by domain UUID; empty while the probes are not loaded, or cannot be read."""
        with self._reading.catching():
            return self._read()
        return {}

    def _read(self) -> dict[str, GuestCount]:
        if self._object is None:
            return {}
        names = {number: uuid for uuid, number in self._guests.items()}
        exits, blind = self._read_exits(), ple.switched_off(self._root)
        vcpus: dict[int, dict[int, VcpuCount]] = defaultdict(dict)
        for _, value in self._object.map("vcpus").items():
            vcpu = abi.LhpVcpu.unpack(value)
            vcpus[vcpu.guest][vcpu.vcpu] = self._count(vcpu, exits, blind)
        return {uuid: self._read_guest(number, vcpus[number]) for number, uuid in names.items()}

    def close(self, reason: str) -> None:
        """Unload the probes, forget every thread."""
        if self._object is not None:
            self._object.close()
        self._object = None
        self._links.clear()
        self._guests.clear()
        self._threads.clear()
        self.reason = reason

    def _count(
        self, vcpu: abi.LhpVcpu, exits: Mapping[tuple[int, int], Mapping[str, int]], blind: bool
    ) -> VcpuCount:
        cpu = vcpu.cpu - 1 if vcpu.cpu else None
        if not self._exits:
            return VcpuCount(cpu=cpu)
        own = exits.get((vcpu.guest, vcpu.vcpu), {})
        if blind and not vcpu.pause_exits:
            return VcpuCount(own, cpu=cpu)
        return VcpuCount(own, vcpu.pause_exits, vcpu.lhp_exits, cpu)

    def _read_guest(self, number: int, vcpus: Mapping[int, VcpuCount]) -> GuestCount:
        assert self._object is not None
        guest = abi.LhpGuest.unpack(self._object.map("guests").lookup(struct.pack("=I", number)) or b"")
        run = guest.corun_ns + guest.costop_ns
        return GuestCount(run / 1e9, guest.corun_ns / 1e9, guest.costop_ns / 1e9, vcpus)

    def _read_exits(self) -> dict[tuple[int, int], dict[str, int]]:
        found: dict[tuple[int, int], dict[str, int]] = defaultdict(lambda: defaultdict(int))
        if self._object is None or not self._exits:
            return found
        for raw, value in self._object.map("exits").items():
            key = abi.LhpExitKey.unpack(raw)
            name = reason_name(key.isa, key.reason)
            found[key.guest, key.vcpu][name] += int.from_bytes(value, "little")
        return found

    def _kvm_present(self) -> bool:
        return (self._root / "sys/module/kvm").exists()

    def _kvm_came(self) -> bool:
        """The kvm module was loaded after the probes were."""
        return self._object is not None and not self._exits and self._kvm_present()

    def _load(self) -> bool:
        kvm = self._kvm_present()
        for tells in (OF_KVM, OF_SCHEDULER)[not kvm :]:
            wanted = {*tells, "on_task_exit", *([EXIT_PROGRAM] if kvm else [])}
            try:
                self._attach(wanted)
            except bpf.BpfError as error:
                self.reason = f"the probes cannot be loaded: {error}"
                self.log = error.log
                continue
            self._exits, self.by_kvm = kvm, tells is OF_KVM
            self.reason = "" if kvm else "VM exits are not counted: the kvm module is not loaded"
            return True
        return False

    def _attach(self, wanted: Set[str]) -> None:
        """Load the object with these programs alone, and attach them. Raises BpfError."""
        probes = bpf.Object(bpf.object_path("lhp"))
        try:
            for program in PROGRAMS:
                probes.set_autoload(program, program in wanted)
            probes.set_max_entries("exits", REASONS * _vcpus_max())
            probes.load()
            self._links = [probes.attach(program) for program in PROGRAMS if program in wanted]
        except bpf.BpfError:
            probes.close()
            raise
        self._object = probes

    def _number(self, uuids: list[str]) -> None:
        """Give each guest a number, take numbers back from those that left."""
        for uuid in set(self._guests) - set(uuids):
            self._release(self._guests[uuid])
            del self._guests[uuid]  # not before: the next holder of the number would have its counters
        taken = set(self._guests.values())
        free = (n for n in range(1, abi.MAX_GUESTS) if n not in taken)
        self._guests |= {uuid: next(free) for uuid in uuids if uuid not in self._guests}

    def _release(self, number: int) -> None:
        """Clear a guest's counters, so that the next holder of its number starts at zero."""
        assert self._object is not None
        self._unwatch([tid for tid, (_, guest, _) in self._threads.items() if guest == number])
        self._object.map("guests").update(struct.pack("=I", number), abi.LhpGuest().pack())

    def _watch(self, wanted: dict[int, tuple[int, int, int]]) -> None:
        assert self._object is not None
        self._unwatch([tid for tid, who in self._threads.items() if wanted.get(tid) != who])
        vcpus = self._object.map("vcpus")
        for tid, (pid, guest, index) in wanted.items():
            if tid not in self._threads:
                vcpus.update(struct.pack("=I", tid), abi.LhpVcpu(tgid=pid, guest=guest, vcpu=index).pack())
                self._threads[tid] = (pid, guest, index)

    def _unwatch(self, tids: list[int]) -> None:
        """Forget these threads and the exits of their vCPUs: a thread that follows one starts at zero."""
        assert self._object is not None
        left = set()
        for tid in tids:
            self._object.map("vcpus").delete(struct.pack("=I", tid))
            left.add(self._threads.pop(tid)[1:])
        exits = self._object.map("exits")
        for raw in exits.keys() if left else ():
            key = abi.LhpExitKey.unpack(raw)
            if (key.guest, key.vcpu) in left:
                exits.delete(raw)


def _vcpus_max() -> int:
    return min(abi.MAX_MEMBERS, max(VCPUS_MIN, VCPUS_PER_CPU * bpf.possible_cpus()))


def _fitting(guests: Iterable[Domain]) -> Iterator[Domain]:
    """The guests that there are numbers for, and of whose vCPUs every exit finds room."""
    left = _vcpus_max()
    for guest in islice(guests, abi.MAX_GUESTS - 1):
        if len(guest.vcpus) <= left:
            left -= len(guest.vcpus)
            yield guest
