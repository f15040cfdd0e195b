# SPDX-License-Identifier: Apache-2.0
"""Stock Linux guests: the kernel of the host itself, booted from an initrd of their load."""

from __future__ import annotations

import subprocess
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.guests.counters import ADDRESS, domain_xml
from lab.guests.domains import PREFIX, Guest, paused, resume

FEATURES = {"pv": "", "nopvspin": "nopvspin"}  # what a guest is told of its host's paravirtual locks
BOOT_SECONDS = 400.0  # of eight guests at once, on two emulated CPUs
LINES = 4  # of a console
MEMORY_MIB = {"dbench": 512, "compile": 512, "pgbench": 512}
BRIDGE, HOST, GUEST = "seeds0", "10.31.0.254/24", "10.31.0.1"  # guest/card.h
NETWORK = (
    ["modprobe", "-a", "bridge", "tun", "vhost_net"],
    ["ip", "link", "add", BRIDGE, "type", "bridge"],
    ["ip", "addr", "add", HOST, "dev", BRIDGE],
    ["ip", "link", "set", BRIDGE, "up"],
)
PAGE = f"memmap=4K${ADDRESS:#x}"  # that the kernel leaves alone: the load counts there


@dataclass(frozen=True)
class Kind:
    """A kind of guest. features: one of FEATURES; kernel, initrd: the files it boots from."""

    load: str
    features: str
    cpus: int
    kernel: Path
    initrd: Path


def start(connection: Any, kind: Kind, number: int) -> list[Guest]:
    """Define and start `number` guests, at once; their load runs when this returns. Raises GuestDied."""
    with paused(connection, [xml(f"{PREFIX}{i}", kind) for i in range(number)]) as domains:
        guests = [Guest(domain) for domain in domains]
        resume(guests, BOOT_SECONDS)
    return guests


def last_words(kind: Kind, number: int) -> str:
    """Return what the consoles of `number` guests say of their end: words of the load, a panic."""
    found = []
    for i, file in enumerate(console(kind, f"{PREFIX}{i}") for i in range(number)):
        lines = file.read_text(errors="replace").splitlines() if file.exists() else []
        said = [line for line in lines if "Kernel panic" in line or not line.startswith("[")]
        found += [f"{PREFIX}{i}'s console: {' | '.join(said[-LINES:]) or 'nothing'}"]
    return "; ".join(found)


def console(kind: Kind, name: str) -> Path:
    """Return the file of a guest's serial port."""
    return kind.initrd.parent / f"{name}.console"


def bridge() -> None:
    """Make the bridge of the guests' cards, unless it is there since the guests before."""
    for words in NETWORK:
        subprocess.run(words, check=False, stderr=subprocess.DEVNULL)


def xml(name: str, kind: Kind, card: bool = False, disk: str = "") -> str:
    """The few devices of a flat guest, and a serial port for a kernel that panics. card: has one on the
    bridge (vhost-net); disk: the file of one."""
    memory = MEMORY_MIB.get(kind.load, 192)
    text = domain_xml(
        name, kind.load, cpus=kind.cpus, memory_mib=memory, kernel=kind.kernel, serial_log=console(kind, name)
    )
    found = ET.fromstring(text)
    boot, cmdline, devices = found.find("os"), found.find("os/cmdline"), found.find("devices")
    assert boot is not None and cmdline is not None and devices is not None
    # The kernel's tests of its ciphers would take a vCPU for a minute beside the load.
    words = ["console=ttyS0 quiet panic=-1 oops=panic cryptomgr.notests", PAGE, FEATURES[kind.features]]
    words += ["--", kind.load]  # the arguments of init
    cmdline.text = " ".join(word for word in words if word)
    ET.SubElement(boot, "initrd").text = str(kind.initrd)
    if disk:
        device = ET.SubElement(devices, "disk", type="file", device="disk")
        ET.SubElement(device, "driver", name="qemu", type="raw")
        ET.SubElement(device, "source", file=disk)
        ET.SubElement(device, "target", dev="vda", bus="virtio")
    if card:
        device = ET.SubElement(devices, "interface", type="bridge")
        ET.SubElement(device, "source", bridge=BRIDGE)
        ET.SubElement(device, "model", type="virtio")
        ET.SubElement(device, "rom", enabled="no")  # no guest boots from the network
    return ET.tostring(found, encoding="unicode")
