# SPDX-License-Identifier: Apache-2.0
"""The daemon on D-Bus: object /org/gangd/Gangd1, interface and name org.gangd.Gangd1.

Replies that are documents are JSON text, not nested variants: a{sv} inside
aa{sv} helps nobody (no binding makes it typed, every reader must unwrap it), and
one schema, docs/json.md, then serves the bus, `gangctl --json` and tests alike.

Who may call what is decided twice: by the bus (systemd/org.gangd.Gangd1.conf), and
by sd-bus itself, which refuses a method without DbusUnprivilegedFlag to callers
that are neither of our user nor have CAP_SYS_ADMIN, should the policy file be
missing or replaced by a laxer one.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable
from typing import Any, TypeVar

from sdbus import (
    DbusInterfaceCommonAsync,
    DbusPropertyConstFlag,
    DbusPropertyEmitsChangeFlag,
    DbusUnprivilegedFlag,
    SdBus,
    dbus_method_async,
    dbus_property_async,
    dbus_signal_async,
)
from sdbus.sd_bus_internals import SdBusBaseError, SdBusRequestNameError

from gangd.control.changes import changes
from gangd.control.requests import Requests
from gangd.control.service import Service
from gangd.control.text import printable
from gangd.control.wire import INTERFACE, NAME, PATH, open_bus, to_wire, where
from gangd.errors import GangError
from gangd.model.snapshot import Snapshot

log = logging.getLogger(__name__)

DOCUMENT = ("document",)
T = TypeVar("T")


async def _send(answer: Awaitable[T]) -> T:
    try:
        return await answer
    except GangError as error:
        raise to_wire(error) from None


class Gangd1(DbusInterfaceCommonAsync, interface_name=INTERFACE):
    """The object on the bus. Holds no logic: see gangd.control.requests."""

    def __init__(self, service: Service) -> None:
        super().__init__()
        self._requests = Requests(service)
        self._seen = service.snapshot()

    @dbus_method_async("sa{sv}", "s", 0, DOCUMENT, ("domain", "options"))
    async def mark(self, domain: str, options: dict[str, tuple[str, Any]]) -> str:
        """Mark a domain; options: policy (s), weight (u)."""
        return await self._and_announce(self._requests.mark(domain, options))

    @dbus_method_async("s", "s", 0, DOCUMENT, ("domain",))
    async def unmark(self, domain: str) -> str:
        """Take a domain's mark away."""
        return await self._and_announce(self._requests.unmark(domain))

    @dbus_method_async("b", "s", DbusUnprivilegedFlag, DOCUMENT, ("all",))
    async def list(self, all: bool) -> str:
        """Running domains, or all of them."""
        return await _send(self._requests.list(all))

    @dbus_method_async("s", "s", DbusUnprivilegedFlag, DOCUMENT, ("domain",))
    async def domain_info(self, domain: str) -> str:
        """One domain in full."""
        return await _send(self._requests.domain_info(domain))

    @dbus_method_async("s", "s", DbusUnprivilegedFlag, DOCUMENT, ("domain",))
    async def vcpu_info(self, domain: str) -> str:
        """The vCPUs of one domain."""
        return await _send(self._requests.vcpu_info(domain))

    @dbus_method_async("", "s", DbusUnprivilegedFlag, DOCUMENT)
    async def topology(self) -> str:
        """The host's CPUs and who is placed where."""
        return await _send(self._requests.topology())

    @dbus_method_async("s", "s", DbusUnprivilegedFlag, DOCUMENT, ("domain_or_empty",))
    async def plan(self, domain_or_empty: str) -> str:
        """What is wanted and what would be changed; changes nothing."""
        return await _send(self._requests.plan(domain_or_empty))

    @dbus_method_async("s", "s", DbusUnprivilegedFlag, DOCUMENT, ("domain_or_empty",))
    async def stats(self, domain_or_empty: str) -> str:
        """Counters of one domain, or of all running ones."""
        return await _send(self._requests.stats(domain_or_empty))

    @dbus_method_async("", "s", DbusUnprivilegedFlag, DOCUMENT)
    async def status(self) -> str:
        """Which parts of gangd work."""
        return await _send(self._requests.status())

    @dbus_method_async("", "s", DbusUnprivilegedFlag, DOCUMENT)
    async def policies(self) -> str:
        """The installed policies."""
        return await _send(self._requests.policies())

    @dbus_method_async("", "", 0)
    async def refresh(self) -> None:
        """Read libvirt and the kernel now."""
        await self._and_announce(self._requests.refresh())

    @dbus_property_async("s", DbusPropertyConstFlag)
    def version(self) -> str:
        """The daemon's version."""
        return str(_properties(self._requests.service.snapshot())["Version"][1])

    @dbus_property_async("s", DbusPropertyEmitsChangeFlag)
    def backend(self) -> str:
        """The backend in use, "" when there is none."""
        return str(_properties(self._requests.service.snapshot())["Backend"][1])

    @dbus_property_async("b", DbusPropertyEmitsChangeFlag)
    def connected(self) -> bool:
        """Whether libvirt answers."""
        return bool(_properties(self._requests.service.snapshot())["Connected"][1])

    @dbus_signal_async("s", DOCUMENT)
    def event(self) -> str:
        """Something happened: gangd.control.changes, one signal each."""
        raise NotImplementedError  # what sdbus wants of a signal

    def announce(self) -> None:
        """Signal what changed since the last call.

        A bus that is gone is no reason to stop scheduling: that is logged, not raised.
        """
        before, self._seen = self._seen, self._requests.service.snapshot()
        then, now = _properties(before), _properties(self._seen)
        changed = {key: value for key, value in now.items() if value != then[key]}
        try:
            if changed:
                self.properties_changed.emit((INTERFACE, changed, []))
            for event in changes(before, self._seen):
                # ASCII only, as in Requests
                self.event.emit(json.dumps(event, allow_nan=False, separators=(",", ":")))
        except (SdBusBaseError, OSError) as error:
            log.warning("cannot signal a change on D-Bus: %s", error)

    async def _and_announce(self, answer: Awaitable[T]) -> T:
        """Who listens need not wait for the daemon's next look at itself."""
        try:
            return await _send(answer)
        finally:
            self.announce()


def _properties(snapshot: Snapshot) -> dict[str, tuple[str, Any]]:
    return {
        "Version": ("s", printable(snapshot.version)),
        "Backend": ("s", printable(snapshot.backend.name) if snapshot.backend.active else ""),
        "Connected": ("b", snapshot.state.connected is True),
    }


class Server:
    """gangd's place on a bus, from `serve()` until `close()`."""

    def __init__(self, bus: SdBus, exported: Gangd1) -> None:
        self._bus = bus
        self._object = exported

    def announce(self) -> None:
        """Signal what changed; to be called after every new snapshot."""
        self._object.announce()

    def close(self) -> None:
        """Give up the name and the connection."""
        self._bus.close()


async def serve(service: Service, bus: str | None = None) -> Server:
    """Put `service` on the bus (see gangd.control.wire for the choice).

    Raises NoDaemon when there is no such bus, GangError when the name cannot be had.
    """
    connection = open_bus(bus)
    exported = Gangd1(service)
    try:
        exported.export_to_dbus(PATH, connection)
        await connection.request_name_async(NAME, 0)
    except SdBusRequestNameError:
        connection.close()
        raise GangError(f"another gangd owns {NAME} {where(bus)}")
    except (SdBusBaseError, OSError) as error:
        connection.close()
        raise GangError(f"cannot take the name {NAME} {where(bus)}: {printable(str(error))}")
    log.debug("on D-Bus %s", where(bus))
    return Server(connection, exported)
