# SPDX-License-Identifier: Apache-2.0
"""The daemon on D-Bus: object /org/gangd/Gangd1, interface and name org.gangd.Gangd1; below it an
object for each domain (gangd.control.objects).

Replies that are documents are JSON text, not nested variants: a{sv} inside
aa{sv} helps nobody (no binding makes it typed, every reader must unwrap it), and
one schema, docs/json.md, then serves the bus, `gangctl --json` and tests alike.

Who may call what is decided here, with polkit's help (gangd.control.authority), and
not by the bus: its policy (systemd/org.gangd.Gangd1.conf) lets through what is known
to be decided here. sd-bus's own check, that a caller is root or of our user, would
come before it; DbusUnprivilegedFlag on every method takes it away. Properties, and
what sd-bus answers by itself, are everybody's.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
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
    get_current_message,
)
from sdbus.sd_bus_internals import SdBusBaseError, SdBusRequestNameError

from gangd.control import documents, structs
from gangd.control.authority import MANAGE, MONITOR, PASSWORD_SECONDS, Authority
from gangd.control.changes import changes
from gangd.control.names import INTERFACE, NAME, PATH, where
from gangd.control.objects import Objects
from gangd.control.options import Variants
from gangd.control.requests import NEUTRAL, Requests
from gangd.control.service import Service
from gangd.control.text import printable
from gangd.control.wire import open_bus, to_wire
from gangd.errors import GangError
from gangd.model.snapshot import Snapshot

log = logging.getLogger(__name__)

DOCUMENT = ("document",)
T = TypeVar("T")


class Gangd1(DbusInterfaceCommonAsync, interface_name=INTERFACE):
    """The object on the bus. Holds no logic: see gangd.control.requests."""

    def __init__(self, service: Service, authority: Authority, domains: Objects) -> None:
        super().__init__()
        self._requests = Requests(service)
        self._authority = authority
        self._domains = domains
        self._seen = service.snapshot()
        self._described: dict[str, object] = {}  # by UUID, what a domain's properties were made of

    async def _look(self, answer: Callable[[], Awaitable[T]]) -> T:
        return await self._answer(MONITOR, answer, False)

    async def _manage(self, answer: Callable[[], Awaitable[T]], options: Variants) -> T:
        """Answer, then announce changes: listeners need not wait for the daemon's next look at itself."""

        async def announced() -> T:
            try:
                return await answer()
            finally:
                self.announce()

        return await self._answer(MANAGE, announced, options.get("interactive") == ("b", True))

    async def _answer(self, action: str, answer: Callable[[], Awaitable[T]], interactive: bool) -> T:
        try:
            await self._authority.check(action, get_current_message().sender, interactive)
            return await answer()
        except GangError as error:
            raise to_wire(error) from None
        except Exception:
            log.exception("cannot answer a call on D-Bus")
            raise to_wire(GangError(NEUTRAL)) from None

    @dbus_method_async("sa{sv}", "s", DbusUnprivilegedFlag, DOCUMENT, ("domain", "options"))
    async def mark(self, domain: str, options: dict[str, tuple[str, Any]]) -> str:
        """Mark a domain; options: policy (s), weight (u), config (b), live (b)."""
        return await self._manage(lambda: self._requests.mark(domain, options), options)

    @dbus_method_async("sa{sv}", "s", DbusUnprivilegedFlag, DOCUMENT, ("domain", "options"))
    async def set(self, domain: str, options: dict[str, tuple[str, Any]]) -> str:
        """Change what is given of a mark; options as for Mark."""
        return await self._manage(lambda: self._requests.set(domain, options), options)

    @dbus_method_async("sa{sv}", "s", DbusUnprivilegedFlag, DOCUMENT, ("domain", "options"))
    async def unmark(self, domain: str, options: dict[str, tuple[str, Any]]) -> str:
        """Take a domain's mark away; options: config (b), live (b)."""
        return await self._manage(lambda: self._requests.unmark(domain, options), options)

    @dbus_method_async("sa{sv}", "s", DbusUnprivilegedFlag, DOCUMENT, ("domain_or_empty", "options"))
    async def undo(self, domain_or_empty: str, options: dict[str, tuple[str, Any]]) -> str:
        """Put back what was changed of a domain and leave it alone; option: all (b)."""
        return await self._manage(lambda: self._requests.undo(domain_or_empty, options), options)

    @dbus_method_async("sa{sv}", "s", DbusUnprivilegedFlag, DOCUMENT, ("domain_or_empty", "options"))
    async def resume(self, domain_or_empty: str, options: dict[str, tuple[str, Any]]) -> str:
        """Schedule again what undo left alone; option: all (b)."""
        return await self._manage(lambda: self._requests.resume(domain_or_empty, options), options)

    @dbus_method_async("b", "s", DbusUnprivilegedFlag, DOCUMENT, ("all",))
    async def list(self, all: bool) -> str:
        """Running domains, or all of them."""
        return await self._look(lambda: self._requests.list(all))

    @dbus_method_async("s", "s", DbusUnprivilegedFlag, DOCUMENT, ("domain",))
    async def domain_info(self, domain: str) -> str:
        """Return one domain in full."""
        return await self._look(lambda: self._requests.domain_info(domain))

    @dbus_method_async("s", "s", DbusUnprivilegedFlag, DOCUMENT, ("domain",))
    async def vcpu_info(self, domain: str) -> str:
        """The vCPUs of one domain."""
        return await self._look(lambda: self._requests.vcpu_info(domain))

    @dbus_method_async("", "s", DbusUnprivilegedFlag, DOCUMENT)
    async def topology(self) -> str:
        """The host's CPUs and who is placed where."""
        return await self._look(lambda: self._requests.topology())

    @dbus_method_async("s", "s", DbusUnprivilegedFlag, DOCUMENT, ("domain_or_empty",))
    async def plan(self, domain_or_empty: str) -> str:
        """Return the plan and the changes that it would make; make none of them."""
        return await self._look(lambda: self._requests.plan(domain_or_empty))

    @dbus_method_async("s", "s", DbusUnprivilegedFlag, DOCUMENT, ("domain_or_empty",))
    async def stats(self, domain_or_empty: str) -> str:
        """Counters of one domain, or of all running ones."""
        return await self._look(lambda: self._requests.stats(domain_or_empty))

    @dbus_method_async("s", "s", DbusUnprivilegedFlag, DOCUMENT, ("domain",))
    async def since(self, domain: str) -> str:
        """Compare a domain before its mark with since then."""
        return await self._look(lambda: self._requests.since(domain))

    @dbus_method_async("s", "s", DbusUnprivilegedFlag, DOCUMENT, ("domain_or_empty",))
    async def advise(self, domain_or_empty: str) -> str:
        """Say whether a running domain, or each, would gain from a mark; make none."""
        return await self._look(lambda: self._requests.advise(domain_or_empty))

    @dbus_method_async("", "s", DbusUnprivilegedFlag, DOCUMENT)
    async def status(self) -> str:
        """Which parts of gangd work."""
        return await self._look(lambda: self._requests.status())

    @dbus_method_async("", "s", DbusUnprivilegedFlag, DOCUMENT)
    async def policies(self) -> str:
        """The installed policies."""
        return await self._look(lambda: self._requests.policies())

    @dbus_method_async("", "s", DbusUnprivilegedFlag, DOCUMENT)
    async def profiles(self) -> str:
        """Profiles and selectors, as they are in force."""
        return await self._look(lambda: self._requests.profiles())

    @dbus_method_async("", "s", DbusUnprivilegedFlag, DOCUMENT)
    async def smt(self) -> str:
        """Simultaneous multithreading of the host."""
        return await self._look(lambda: self._requests.smt())

    @dbus_method_async("sa{sv}", "s", DbusUnprivilegedFlag, DOCUMENT, ("wanted", "options"))
    async def set_smt(self, wanted: str, options: dict[str, tuple[str, Any]]) -> str:
        """Switch it "on" or "off"."""
        return await self._manage(lambda: self._requests.set_smt(wanted, options), options)

    @dbus_method_async("b", "ss", DbusUnprivilegedFlag, ("content_type", "text"), ("openmetrics",))
    async def metrics(self, openmetrics: bool) -> tuple[str, str]:
        """Content type and text of /metrics, for gangd-exporter."""
        return await self._look(lambda: self._requests.metrics(openmetrics))

    @dbus_method_async("", "s", DbusUnprivilegedFlag, ("html",))
    async def overview(self) -> str:
        """The page of the host and its guests, for gangd-exporter."""
        return await self._look(lambda: self._requests.overview())

    @dbus_method_async("", "", DbusUnprivilegedFlag)
    async def refresh(self) -> None:
        """Read libvirt and the kernel now."""
        await self._manage(lambda: self._requests.refresh(), {})

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
        """True if libvirt answers."""
        return bool(_properties(self._requests.service.snapshot())["Connected"][1])

    @dbus_signal_async("s", DOCUMENT)
    def event(self) -> str:
        """Something happened: gangd.control.changes, one signal each."""
        raise NotImplementedError  # what sdbus wants of a signal

    def announce(self) -> None:
        """Signal what changed since the last call, domains that came and went too.

        A bus that is gone is no reason to stop scheduling: that is logged, not raised.
        """
        before, self._seen = self._seen, self._requests.service.snapshot()
        then, now = _properties(before), _properties(self._seen)
        changed = {key: value for key, value in now.items() if value != then[key]}
        try:
            if changed:
                self.properties_changed.emit((INTERFACE, changed, []))
            self._announce_domains()
            for event in changes(before, self._seen):
                self.event.emit(structs.text(event))
        except (SdBusBaseError, OSError) as error:
            log.warning("cannot signal a change on D-Bus: %s", error)

    def _announce_domains(self) -> None:
        seen, known = self._seen, self._described
        for uuid in known.keys() - seen.state.domains.keys():
            del known[uuid]  # first: a bus that fails amid the removal leaves no object to remove again
            self._domains.remove(uuid)
        for uuid, domain in seen.state.domains.items():
            made_of = documents.made_of(seen, domain)
            if known.get(uuid) != made_of:
                self._domains.show(documents.summary(seen, domain))
                known[uuid] = made_of


def _properties(snapshot: Snapshot) -> dict[str, tuple[str, Any]]:
    return {
        "Version": ("s", printable(snapshot.version)),
        "Backend": ("s", printable(snapshot.backend.name) if snapshot.backend.active else ""),
        "Connected": ("b", snapshot.state.connected is True),
    }


_CLOSED: list[Server] = []


class Server:
    """gangd's place on a bus, from `serve()` until `close()`."""

    def __init__(self, bus: SdBus, exported: Gangd1) -> None:
        self._bus = bus
        self._object = exported

    def announce(self) -> None:
        """Signal what changed; to be called after every new snapshot."""
        self._object.announce()

    def close(self) -> None:
        """Give up the name and the connection; the objects stay (gangd.__main__.program)."""
        self._bus.close()
        _CLOSED.append(self)


async def serve(service: Service, bus: str | None = None) -> Server:
    """Put `service` on the bus (see gangd.control.wire for the choice).

    Raises NoDaemon when there is no such bus, GangError when the name cannot be had.
    """
    connection = open_bus(bus)
    connection.method_call_timeout_usec = int(PASSWORD_SECONDS * 2_000_000)  # ours are shorter
    exported = Gangd1(service, Authority(connection), Objects(connection))
    try:
        exported.export_to_dbus(PATH, connection)
        exported.announce()
        await connection.request_name_async(NAME, 0)
    except SdBusRequestNameError:
        connection.close()
        raise GangError(f"another gangd owns {NAME} {where(bus)}")
    except (SdBusBaseError, OSError) as error:
        connection.close()
        raise GangError(f"cannot take the name {NAME} {where(bus)}: {printable(str(error))}")
    log.debug("on D-Bus %s", where(bus))
    return Server(connection, exported)
