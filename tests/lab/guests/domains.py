# SPDX-License-Identifier: Apache-2.0
"""Guests: flat payloads (tests/lab/guests/flat) as libvirt domains, and whether they live."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import libvirt

from gangd.events.threads import qemu_pid, vcpu_threads
from lab.guests.counters import ADDRESS, SIZE, Counters, NotReadyError, domain_xml

PREFIX = "gangd-demo-"
READY_SECONDS = 120.0
# The emulator has no pause filter and exits at every PAUSE: the payload counts to a usual filter's window.
WINDOW = 3000


class GuestDied(Exception):
    """A guest is not what it should be."""


@dataclass(frozen=True)
class Load:
    """The load that all guests run. options: words of the payload's command line."""

    name: str
    cpus: int = 2
    options: Mapping[str, int] | None = None


class Guest:
    """A domain with the flat payload."""

    def __init__(self, domain: Any) -> None:
        self.domain = domain
        self.name: str = domain.name()
        self.uuid: str = domain.UUIDString()

    @functools.cached_property
    def pid(self) -> int:
        """The guest's QEMU process. Raises GuestDied if there is none."""
        return self.process()

    def process(self) -> int:
        """Return the guest's QEMU process of now. Raises GuestDied if there is none."""
        pid = qemu_pid(self.name, self.uuid)
        if pid is None:
            raise GuestDied(f"{self.name} has no process")
        return pid

    def threads(self) -> dict[int, int]:
        """Return the host thread of every vCPU."""
        return {vcpu: thread.tid for vcpu, thread in vcpu_threads(self.pid).items()}

    def counters(self) -> Counters:
        """Return the payload's counters, at no VM exit for the guest. Raises NotReadyError while it boots."""
        return Counters.parse(self.domain.memoryPeek(ADDRESS, SIZE, libvirt.VIR_MEMORY_PHYSICAL))

    def reading(self) -> tuple[float, int]:
        """Return when the guest's counter was read (monotonic seconds), and its value. Raises GuestDied."""
        try:
            begin = time.monotonic()
            count = self.counters().iterations
            return (begin + time.monotonic()) / 2, count
        except (libvirt.libvirtError, ValueError) as error:
            raise GuestDied(f"{self.name}: its counters cannot be read: {error}")

    def counts(self) -> bool:
        """True if a first iteration was counted."""
        try:
            return self.reading()[1] > 0
        except GuestDied as error:
            if isinstance(error.__context__, NotReadyError):
                return False
            raise

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
    """Define and start `number` flat guests, at once; they run when this returns."""
    texts = [
        domain_xml(f"{PREFIX}{i}", load.name, cpus=load.cpus, kernel=kernel, options=load.options)
        for i in range(number)
    ]
    with paused(connection, texts) as domains:
        guests = [Guest(domain) for domain in domains]
        resume(guests)
    return guests


@contextlib.contextmanager
def paused(connection: Any, texts: list[str]) -> Iterator[list[Any]]:
    """New domains, started at once but paused: none is in the way of the next one's start.

    If the body fails they are removed.
    """
    domains: list[Any] = []
    try:
        domains.extend(connection.defineXML(text) for text in texts)
        with ThreadPoolExecutor(len(texts)) as pool:
            list(pool.map(lambda d: d.createWithFlags(libvirt.VIR_DOMAIN_START_PAUSED), domains))
        yield domains
    except BaseException:
        for domain in domains:
            remove(domain)
        raise


def resume(guests: Sequence[Guest], seconds: float = READY_SECONDS) -> None:
    """Let them run, and wait until all of them count. Raises GuestDied if one does not within `seconds`."""
    for guest in guests:
        guest.domain.resume()
    _wait_until_counting(guests, seconds)


def _wait_until_counting(guests: Sequence[Guest], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    for guest in guests:
        while not guest.counts():
            guest.check()
            if time.monotonic() > deadline:
                raise GuestDied(f"{guest.name} does not count {seconds:.0f} s after its start")
            time.sleep(0.2)
