# SPDX-License-Identifier: Apache-2.0
"""The four guests: flat payloads (tests/lab/payload) as libvirt domains, and whether they live."""

from __future__ import annotations

import contextlib
import time
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import libvirt
from counters import ADDRESS, SIZE, Counters, NotReadyError, domain_xml

from gangd.events.threads import qemu_pid, vcpu_threads

PREFIX = "gangd-demo-"
READY_SECONDS = 60.0


class GuestDied(Exception):
    """A guest is not what it should be; under the lab's emulator that is the lab's own failure."""


@dataclass(frozen=True)
class Load:
    """What all guests run. options: words of the payload's command line."""

    name: str
    cpus: int = 2
    options: Mapping[str, int] | None = None


class Guest:
    """One running domain."""

    def __init__(self, domain: Any) -> None:
        self.domain = domain
        self.name: str = domain.name()
        self.uuid: str = domain.UUIDString()
        pid = qemu_pid(self.name, self.uuid)
        if pid is None:
            raise GuestDied(f"{self.name} has no process")
        self.pid = pid

    def threads(self) -> dict[int, int]:
        """vCPU number -> thread id."""
        return {vcpu: thread.tid for vcpu, thread in vcpu_threads(self.pid).items()}

    def iterations(self) -> tuple[float, int]:
        """When the guest's counter was read (monotonic seconds), and its value."""
        try:
            begin = time.monotonic()
            memory = self.domain.memoryPeek(ADDRESS, SIZE, libvirt.VIR_MEMORY_PHYSICAL)
            moment = (begin + time.monotonic()) / 2
            return moment, Counters.parse(memory).iterations
        except (libvirt.libvirtError, ValueError) as error:
            raise GuestDied(f"{self.name}: its counters cannot be read: {error}")

    def check(self) -> None:
        """Raise GuestDied unless libvirt says that it runs."""
        try:
            state, reason = self.domain.state()
        except libvirt.libvirtError as error:
            raise GuestDied(f"{self.name}: {error}")
        if state != libvirt.VIR_DOMAIN_RUNNING:
            raise GuestDied(f"{self.name} is in state {state} ({reason}) instead of running")

    def destroy(self) -> None:
        """End it and forget it, whatever state it is in."""
        remove(self.domain)


def remove(domain: Any) -> None:
    """Destroy and undefine."""
    for verb in (domain.destroy, domain.undefine):
        with contextlib.suppress(libvirt.libvirtError):
            verb()


def connect(uri: str) -> Any:
    """A connection; libvirt's habit of printing every error is switched off."""
    libvirt.registerErrorHandler(lambda *_: None, None)
    return libvirt.open(uri)


def refuse_leftovers(connection: Any) -> None:
    """Raise OSError if a domain has a name we want: it is not ours to remove."""
    for domain in connection.listAllDomains():
        if domain.name().startswith(PREFIX):
            raise OSError(f"there is already a domain {domain.name()}: remove it first (virsh undefine)")


def start(connection: Any, kernel: Path, load: Load, number: int) -> list[Guest]:
    """Define and start `number` guests, at once; they run when this returns.

    They are started paused, so that no guest is in the way of the next one's start.
    """
    texts = [
        domain_xml(f"{PREFIX}{i}", load.name, cpus=load.cpus, kernel=kernel, options=load.options)
        for i in range(number)
    ]
    domains: list[Any] = []
    try:
        domains.extend(connection.defineXML(text) for text in texts)
        with ThreadPoolExecutor(number) as pool:
            list(pool.map(lambda d: d.createWithFlags(libvirt.VIR_DOMAIN_START_PAUSED), domains))
        for domain in domains:
            domain.resume()
        guests = [Guest(domain) for domain in domains]
        _wait_until_counting(guests)
    except BaseException:
        for domain in domains:
            remove(domain)
        raise
    return guests


def _wait_until_counting(guests: list[Guest]) -> None:
    deadline = time.monotonic() + READY_SECONDS
    for guest in guests:
        while not _counts(guest):
            guest.check()
            if time.monotonic() > deadline:
                raise GuestDied(f"{guest.name} does not count {READY_SECONDS:.0f} s after its start")
            time.sleep(0.2)


def _counts(guest: Guest) -> bool:
    try:
        return guest.iterations()[1] > 0
    except GuestDied as error:
        if isinstance(error.__context__, NotReadyError):
            return False
        raise


def linux_xml(kernel: Path, initrd: Path, log: Path, *, cpus: int = 2, memory_mib: int = 256) -> str:
    """A stock Linux guest: the same few devices, and a serial port that writes to `log`."""
    text = domain_xml(
        f"{PREFIX}linux", "linux", cpus=cpus, memory_mib=memory_mib, kernel=kernel, serial_log=log
    )
    domain = ET.fromstring(text)
    boot = domain.find("os")
    cmdline = domain.find("os/cmdline")
    assert boot is not None and cmdline is not None
    cmdline.text = "console=ttyS0 quiet panic=-1"
    ET.SubElement(boot, "initrd").text = str(initrd)
    return ET.tostring(domain, encoding="unicode")
