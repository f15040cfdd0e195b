# SPDX-License-Identifier: Apache-2.0
"""The daemon as seen by a program: typed calls, documents back, GangErrors raised.

Synchronous, and without sdbus, because its users are short-lived: gangctl would pay more for an event
loop than for the call. How the bus is spoken is imported when a connection is made, not before.
"""

from __future__ import annotations

import json
import sys

from gangd.control import names
from gangd.control.schema import Document
from gangd.errors import AccessDenied, GangError, InvalidArgument, NoDaemon, by_code
from gangd.model.affect import Affect

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    # (method, input signature, arguments) -> the reply's contents
    Transport = Callable[[str, str, tuple[Any, ...]], Any]
    Variant = tuple[str, Any]  # its D-Bus type, its value

TIMEOUT_SECONDS = 120  # a mark waits for libvirt, and libvirt for a busy host

_BUS_ERROR = "org.freedesktop.DBus.Error."
_ABSENT = ("ServiceUnknown", "NameHasNoOwner", "FileNotFound", "NoServer")
_NOT_STARTED = (f"{_BUS_ERROR}Spawn.", "org.freedesktop.systemd1.")  # by the bus, or by systemd for it
_SILENT = ("NoReply", "Timeout", "TimedOut", "Disconnected", "LimitsExceeded")
_DENIED = ("AccessDenied", "InteractiveAuthorizationRequired", "AuthFailed")
_OTHER_VERSION = ("UnknownMethod", "UnknownInterface", "UnknownObject")


class Client:
    """A client has a method for each method of org.gangd.Gangd1; documents as in docs/json.md.

    interactive: polkit may ask a person for a password.
    """

    def __init__(self, call: Transport, interactive: bool = False) -> None:
        self._call = call
        self._interactive = interactive

    def mark(
        self,
        domain: str,
        policy: str | None = None,
        weight: int | None = None,
        affect: Affect | None = None,
    ) -> Document:
        """Mark a domain; None leaves the choice to the daemon."""
        return self._change("Mark", domain, **_mark(policy, weight), **_affect(affect))

    def set(
        self,
        domain: str,
        policy: str | None = None,
        weight: int | None = None,
        affect: Affect | None = None,
    ) -> Document:
        """Change a domain's mark; what is None stays as it is."""
        return self._change("Set", domain, **_mark(policy, weight), **_affect(affect))

    def unmark(self, domain: str, affect: Affect | None = None) -> Document:
        """Take a domain's mark away."""
        return self._change("Unmark", domain, **_affect(affect))

    def undo(self, domain: str | None) -> Document:
        """Put back what was changed of one domain, None = of everything, and leave it alone."""
        return self._change("Undo", domain)

    def resume(self, domain: str | None) -> Document:
        """Schedule again a domain, None = all, that was left alone since undo()."""
        return self._change("Resume", domain)

    def domains(self, all: bool = False) -> Document:
        """Running domains, or all of them."""
        return self._document("List", "b", all)

    def dominfo(self, domain: str) -> Document:
        """Return one domain in full."""
        return self._document("DomainInfo", "s", domain)

    def vcpuinfo(self, domain: str) -> Document:
        """The vCPUs of one domain."""
        return self._document("VcpuInfo", "s", domain)

    def topology(self) -> Document:
        """The host's CPUs and who is placed where."""
        return self._document("Topology", "")

    def plan(self, domain: str | None = None) -> Document:
        """The plan, and the changes that it would make."""
        return self._document("Plan", "s", domain or "")

    def stats(self, domain: str | None = None) -> Document:
        """Counters of one domain, or of all running ones."""
        return self._document("Stats", "s", domain or "")

    def since(self, domain: str) -> Document:
        """Compare a domain before its mark with since then."""
        return self._document("Since", "s", domain)

    def advise(self, domain: str | None = None) -> Document:
        """Say whether a running domain, or each, would gain from a mark."""
        return self._document("Advise", "s", domain or "")

    def status(self) -> Document:
        """Which parts of gangd work."""
        return self._document("Status", "")

    def policies(self) -> Document:
        """The installed policies."""
        return self._document("Policies", "")

    def profiles(self) -> Document:
        """Profiles and selectors, as they are in force."""
        return self._document("Profiles", "")

    def smt(self) -> Document:
        """Simultaneous multithreading of the host."""
        return self._document("Smt", "")

    def set_smt(self, wanted: str) -> Document:
        """Switch it "on" or "off"."""
        return self._change("SetSmt", wanted)

    def metrics(self, openmetrics: bool = False) -> tuple[str, str]:
        """Content type and text of /metrics."""
        match self._call("Metrics", "b", (openmetrics,)):
            case (str() as content_type, str() as text):
                return content_type, text
        raise GangError("gangd answered Metrics with something that is not a page")

    def overview(self) -> str:
        """The page of the host and its guests, as HTML."""
        page = self._call("Overview", "", ())
        if isinstance(page, str):
            return page
        raise GangError("gangd answered Overview with something that is not a page")

    def refresh(self) -> None:
        """Make the daemon read libvirt and the kernel now."""
        self._call("Refresh", "", ())

    def _change(self, method: str, domain: str | None, **options: Variant) -> Document:
        """A method that changes something of a domain (or of what else is named), None = of all."""
        if domain is None:
            options["all"] = ("b", True)
        if self._interactive:
            options["interactive"] = ("b", True)
        return self._document(method, "sa{sv}", domain or "", options)

    def _document(self, method: str, signature: str, *args: Any) -> Document:
        reply = self._call(method, signature, args)
        try:
            document = json.loads(reply)
        except (TypeError, ValueError):
            document = None
        if not isinstance(document, dict):
            raise GangError(f"gangd answered {method} with something that is not a document")
        return document


def _mark(policy: str | None, weight: int | None) -> dict[str, Variant]:
    options: dict[str, Variant] = {} if policy is None else {"policy": ("s", policy)}
    return options if weight is None else {**options, "weight": ("u", weight)}


def _affect(affect: Affect | None) -> dict[str, Variant]:
    return {} if affect is None else {"config": ("b", affect.config), "live": ("b", affect.live)}


def connect(
    bus: str | None = None,
    timeout: float = TIMEOUT_SECONDS,
    start: bool = True,
    waits: Callable[[], None] | None = None,
) -> Client:
    """A client on the chosen bus that waits `timeout` seconds for an answer.

    start: the bus may start a gangd that does not run. waits: called once if an answer takes seconds.
    Raises NoDaemon, InvalidArgument.
    """
    from gangd.control.sd_bus import Bus, CallFailed

    connection = Bus(bus, start, waits)
    target = (names.NAME, names.PATH, names.INTERFACE)

    def send(method: str, signature: str, args: tuple[Any, ...]) -> Any:
        try:
            return connection.call(target, method, signature, args, timeout)
        except CallFailed as error:
            raise from_wire(error.name, error.text, names.where(bus)) from None
        except OSError as error:
            raise from_wire("", str(error), names.where(bus)) from None

    return Client(send, interactive=sys.stdin is not None and sys.stdin.isatty())


def from_wire(name: str, text: str, where: str = "on the system bus") -> GangError:
    """The GangError behind a D-Bus error; `text` is "action\\ncause" or a sentence."""
    ours, _, code = name.partition("org.gangd.Gangd1.Error.")
    if code and not ours:
        action, separator, cause = text.partition("\n")
        kind = by_code(code)
        return kind(cause, action) if separator else kind(action)
    short = name.removeprefix(_BUS_ERROR)
    if short in _ABSENT or name.startswith(_NOT_STARTED):
        return NoDaemon(f"gangd is not running {where} (systemctl start gangd)")
    if short in _SILENT or not name:
        return NoDaemon(f"gangd {where} did not answer: {text or short}")
    if short in _DENIED:
        return AccessDenied("permission denied, this needs root")
    if short == "InvalidArgs":
        return InvalidArgument(text)
    if short in _OTHER_VERSION:
        return GangError(f"the gangd {where} is of another version than this program: {text}")
    return GangError(text or name)
