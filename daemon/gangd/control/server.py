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
)
from sdbus.sd_bus_internals import SdBusBaseError, SdBusRequestNameError

from gangd.control.requests import Requests
from gangd.control.service import Service
from gangd.control.text import printable
from gangd.control.wire import INTERFACE, NAME, PATH, open_bus, to_wire, where
from gangd.errors import GangError

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
        self._announced = self._properties()

    @dbus_method_async("sa{sv}", "s", 0, DOCUMENT, ("domain", "options"))
    async def mark(self, domain: str, options: dict[str, tuple[str, Any]]) -> str:
        """Mark a domain; options: policy (s), weight (u)."""
        return await _send(self._requests.mark(domain, options))

    @dbus_method_async("s", "s", 0, DOCUMENT, ("domain",))
    async def unmark(self, domain: str) -> str:
        """Take a domain's mark away."""
        return await _send(self._requests.unmark(domain))

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
        await _send(self._requests.refresh())

    @dbus_property_async("s", DbusPropertyConstFlag)
    def version(self) -> str:
        """The daemon's version."""
        return str(self._properties()["Version"][1])

    @dbus_property_async("s", DbusPropertyEmitsChangeFlag)
    def backend(self) -> str:
        """The backend in use, "" when there is none."""
        return str(self._properties()["Backend"][1])

    @dbus_property_async("b", DbusPropertyEmitsChangeFlag)
    def connected(self) -> bool:
        """Whether libvirt answers."""
        return bool(self._properties()["Connected"][1])

    def announce(self) -> None:
        """Signal the properties that changed since the last call."""
        now = self._properties()
        changed = {key: value for key, value in now.items() if value != self._announced[key]}
        self._announced = now
        if changed:
            self.properties_changed.emit((INTERFACE, changed, []))

    def _properties(self) -> dict[str, tuple[str, Any]]:
        snapshot = self._requests.service.snapshot()
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
        """Signal properties that changed; to be called after every new snapshot.

        A bus that is gone is no reason to stop scheduling: that is logged, not raised.
        """
        try:
            self._object.announce()
        except (SdBusBaseError, OSError) as error:
            log.warning("cannot signal a change on D-Bus: %s", error)

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
