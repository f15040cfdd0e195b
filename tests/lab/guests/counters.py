# SPDX-License-Identifier: Apache-2.0
"""The outside view of a gangload guest: its counters in guest memory and its libvirt domain.

layout.h is the other side of the counters; the two must agree. Reading them
(``virDomainMemoryPeek`` with ``VIR_MEMORY_PHYSICAL``, or QEMU's ``pmemsave``)
makes no vCPU exit, so a measurement does not disturb what it measures.
"""

from __future__ import annotations

import struct
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ADDRESS: Final = 0x200000
VERSION: Final = 1
MAX_CPUS: Final = 64
MAGIC: Final = b"GANGLOAD"

LOADS: Final[Mapping[str, int]] = {
    "barrier": 1,
    "spinlock": 2,
    "spin": 3,
    "ipi": 4,
    "sleepwake": 5,
    "halt": 6,
    "duty": 7,
}

# Values of Counters.phase: what vCPU 1 of `duty` does now (0 in all other loads).
PHASE_SPINNING: Final = 1
PHASE_HALTED: Final = 2

_LAYOUT: Final = struct.Struct(f"<8s4IQ{MAX_CPUS}Q")
SIZE: Final = _LAYOUT.size


class NotReadyError(ValueError):
    """The memory holds no counters (yet): the guest is booting, or its load failed to start."""


@dataclass(frozen=True, slots=True)
class Counters:
    """A reading of a guest's counters."""

    version: int
    cpus_online: int
    load_id: int
    phase: int
    iterations: int
    per_cpu: tuple[int, ...]  # of the online vCPUs only

    @classmethod
    def parse(cls, memory: bytes) -> Counters:
        """Read the SIZE bytes found at guest-physical ADDRESS."""
        if len(memory) != SIZE:
            raise ValueError(f"the counters are {SIZE} bytes, not {len(memory)}")
        magic, version, cpus, load_id, phase, iterations, *per_cpu = _LAYOUT.unpack(memory)
        if magic != MAGIC:
            raise NotReadyError("no GANGLOAD counters in this memory")
        if version != VERSION:
            raise ValueError(f"counters of version {version}, expected {VERSION}")
        if not 1 <= cpus <= MAX_CPUS:
            raise ValueError(f"counters of {cpus} vCPUs, expected 1 to {MAX_CPUS}")
        return cls(version, cpus, load_id, phase, iterations, tuple(per_cpu[:cpus]))

    @property
    def load(self) -> str:
        """The name of the load, or its number if this reader does not know it."""
        names = {number: name for name, number in LOADS.items()}
        return names.get(self.load_id, str(self.load_id))


def command_line(load: str, cpus: int, options: Mapping[str, int] | None = None) -> str:
    """The multiboot command line that selects a load, e.g. ``barrier cpus=2 work=300``."""
    words = [load, f"cpus={cpus}", *(f"{key}={value}" for key, value in (options or {}).items())]
    return " ".join(words)


def domain_xml(
    name: str,
    load: str,
    *,
    cpus: int = 2,
    memory_mib: int = 16,
    kernel: str | Path,
    type: str = "kvm",
    serial_log: str | Path | None = None,
    options: Mapping[str, int] | None = None,
) -> str:
    """A libvirt domain with the payload as its kernel and as few devices as libvirt allows.

    ``options`` are further words of the command line (``work``, ``on``, ``off``).
    """
    if any(character.isspace() for character in str(kernel)):
        # QEMU puts the file name before the command line and the guest splits the two at a space.
        raise ValueError(f"the path of the kernel has a space in it: {str(kernel)!r}")
    domain = ET.Element("domain", type=type)
    _text(domain, "name", name)
    _text(domain, "memory", str(memory_mib), unit="MiB")
    _text(domain, "vcpu", str(cpus), placement="static")
    _add_boot(domain, str(kernel), command_line(load, cpus, options))
    _add_machine(domain, type)
    _add_lifecycle(domain)
    _add_devices(domain, serial_log)
    return ET.tostring(domain, encoding="unicode")


def _text(parent: ET.Element, tag: str, text: str, **attributes: str) -> None:
    ET.SubElement(parent, tag, attributes).text = text


def _add_boot(domain: ET.Element, kernel: str, cmdline: str) -> None:
    boot = ET.SubElement(domain, "os")
    # "pc" rather than "q35": no PCIe root ports, SATA controller or watchdog come with it.
    _text(boot, "type", "hvm", arch="x86_64", machine="pc")
    _text(boot, "kernel", kernel)
    _text(boot, "cmdline", cmdline)


def _add_machine(domain: ET.Element, virt_type: str) -> None:
    features = ET.SubElement(domain, "features")
    ET.SubElement(features, "acpi")
    ET.SubElement(features, "apic")
    if virt_type == "kvm":
        ET.SubElement(domain, "cpu", mode="host-passthrough", check="none")
    # As virt-install and OpenStack define theirs: without it a guest may take its tick from QEMU's thread.
    clock = ET.SubElement(domain, "clock", offset="utc")
    ET.SubElement(clock, "timer", name="hpet", present="no")


def _add_lifecycle(domain: ET.Element) -> None:
    """A guest that reset or died must not come back and pass for one that ran all along."""
    for event, action in (("poweroff", "destroy"), ("reboot", "destroy"), ("crash", "preserve")):
        _text(domain, f"on_{event}", action)


def _add_devices(domain: ET.Element, serial_log: str | Path | None) -> None:
    devices = ET.SubElement(domain, "devices")
    ET.SubElement(devices, "controller", type="usb", model="none")
    if serial_log is not None:
        serial = ET.SubElement(devices, "serial", type="file")
        ET.SubElement(serial, "source", path=str(serial_log))
        ET.SubElement(serial, "target", port="0")
    video = ET.SubElement(devices, "video")
    ET.SubElement(video, "model", type="none")
    ET.SubElement(devices, "memballoon", model="none")
