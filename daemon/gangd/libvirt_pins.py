# SPDX-License-Identifier: Apache-2.0
"""Takes pins out of libvirt's definitions of a domain: those that an older gangd left there.

Nobody can tell them from an operator's, so the caller names the domain. libvirt has no call that removes
a pin. From the persistent definition and from that of a saved image pins go by writing it anew. In the live
definition, which nobody can write, libvirt replaces a pin with another: there it gets the CPUs that the
thread would have without one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import libvirt

from gangd import virt
from gangd.errors import GangError, InvalidArgument, VerifyFailed
from gangd.model.pin_xml import Pin, pins, unpinned, without_pins

LIVE, CONFIG, SAVED = "live", "config", "saved"
_CALLED = {LIVE: "live definition", CONFIG: "persistent definition", SAVED: "saved image's definition"}


@dataclass(frozen=True)
class Row:
    """A pin, and which definition has it. free: the CPUs that the thread would have without the pin."""

    where: str
    pin: Pin
    free: frozenset[int]

    @property
    def limits(self) -> bool:
        """Whether the thread would be allowed other CPUs without the pin."""
        return self.pin.cpus != self.free

    @property
    def removable(self) -> bool:
        """Whether libvirt can do more about it than to have a live pin that limits nothing."""
        return self.limits or self.where != LIVE


@dataclass(frozen=True)
class Pinned:
    """A domain and the pins in its definitions, live ones first. id: None while it does not run."""

    uuid: str
    name: str
    id: int | None
    rows: tuple[Row, ...]

    @property
    def removable(self) -> tuple[Row, ...]:
        """The pins that `Libvirt.remove` removes."""
        return tuple(row for row in self.rows if row.removable)


class Libvirt:
    """The libvirt at `uri`, "" = its own choice. Raises GangError in place of every error of libvirt's."""

    def __init__(self, uri: str) -> None:
        virt.quiet()
        with _translated("connect to libvirt"):
            self._conn = libvirt.open(uri or None)
            self._size = int(self._conn.getCPUMap()[0])

    def domains(self) -> tuple[list[Pinned], list[str]]:
        """All domains, by name; and a sentence for each that could not be read."""
        found, failures = [], []
        with _translated("list domains"):
            listed = self._conn.listAllDomains(0)
        for dom in listed:
            try:
                found.append(self._read(dom))
            except GangError as error:
                failures.append(error.cause)
        return sorted(found, key=lambda domain: (domain.name, domain.uuid)), failures

    def find(self, ref: str) -> Pinned:
        """The domain with that id, name or UUID. Raises GangError, NoSuchDomain if there is none."""
        return self._read(virt.lookup(self._conn, ref))

    def remove(self, domain: Pinned) -> dict[str, str]:
        """Remove all pins of a domain as it was read. The definitions where that failed: a sentence each."""
        failures = {}
        for where in _CALLED:
            rows = [row for row in domain.removable if row.where == where]
            if not rows:
                continue
            try:
                with _translated(f"remove the pins of the {_CALLED[where]} of '{domain.name}'"):
                    dom = self._conn.lookupByUUIDString(domain.uuid)
                    self._widen(dom, rows) if where == LIVE else self._redefine(dom, where, rows)
            except GangError as error:
                failures[where] = error.cause
        return failures

    def _read(self, dom: Any) -> Pinned:
        name, number, rows = dom.name(), dom.ID(), list[Row]()
        for where, called in _CALLED.items():
            with _translated(f"read the {called} of '{name}'"):
                rows += self._rows(dom, where)
        return Pinned(dom.UUIDString(), name, number if number >= 0 else None, tuple(rows))

    def _rows(self, dom: Any, where: str) -> list[Row]:
        try:
            text = _text(dom, where)
        except libvirt.libvirtError as error:
            if not virt.is_gone(error):
                raise
            text = None
        if text is None:
            return []
        free = unpinned(text) or frozenset(range(self._size))
        return [Row(where, pin, free) for pin in pins(text)]

    def _widen(self, dom: Any, rows: list[Row]) -> None:
        for row in rows:
            size = max(self._size, *(cpu + 1 for cpu in row.free))
            cpus = tuple(cpu in row.free for cpu in range(size))
            _pin_call(dom, row.pin)(cpus, libvirt.VIR_DOMAIN_AFFECT_LIVE)
        threads = {(row.pin.thread, row.pin.number) for row in rows}
        left = [row for row in self._rows(dom, LIVE) if row.limits]
        if any((row.pin.thread, row.pin.number) in threads for row in left):
            raise VerifyFailed("libvirt accepted other pins and still names the former ones")

    def _redefine(self, dom: Any, where: str, rows: list[Row]) -> None:
        """Raises VerifyFailed, the former definition put back, if more than the pins is changed."""
        before = _text(dom, where, secret=True)
        if before is None or pins(before) != [row.pin for row in rows]:
            raise GangError("somebody changed it meanwhile")
        wanted = without_pins(before)
        self._define(dom, where, wanted)
        if _text(dom, where, secret=True) != wanted:
            self._define(dom, where, before)
            raise VerifyFailed("more than its pins changed; the former definition was put back")

    def _define(self, dom: Any, where: str, text: str) -> None:
        if where == SAVED:
            dom.managedSaveDefineXML(text, 0)
        else:
            self._conn.defineXMLFlags(text, libvirt.VIR_DOMAIN_DEFINE_VALIDATE)


def _text(dom: Any, where: str, secret: bool = False) -> str | None:
    """A definition, None = the domain has no such one. secret: with its passwords, as to define it anew."""
    if where == SAVED:
        flags = libvirt.VIR_DOMAIN_SAVE_IMAGE_XML_SECURE if secret else 0
        return str(dom.managedSaveGetXMLDesc(flags)) if dom.hasManagedSaveImage(0) else None
    if not (dom.isActive() if where == LIVE else dom.isPersistent()):
        return None
    flags = libvirt.VIR_DOMAIN_XML_SECURE if secret else 0
    return str(dom.XMLDesc(flags | (0 if where == LIVE else libvirt.VIR_DOMAIN_XML_INACTIVE)))


def _pin_call(dom: Any, pin: Pin) -> Callable[[tuple[bool, ...], int], Any]:
    """libvirt's call that pins this thread."""
    if pin.thread == "emulator":
        return lambda cpus, flags: dom.pinEmulator(cpus, flags)
    call = dom.pinVcpuFlags if pin.thread == "vcpu" else dom.pinIOThread
    return lambda cpus, flags: call(pin.number, cpus, flags)


@contextmanager
def _translated(what: str) -> Iterator[None]:
    """Errors of libvirt's as GangErrors, and all of them with what could not be done."""
    try:
        yield
    except libvirt.libvirtError as error:
        failure = virt.translate(error)
        raise type(failure)(f"cannot {what}: {failure.cause}")
    except GangError as error:
        raise type(error)(f"cannot {what}: {error.cause}")
    except ValueError as error:  # a text that is no UTF-8
        raise InvalidArgument(f"cannot {what}: {error}")
