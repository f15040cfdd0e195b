# SPDX-License-Identifier: Apache-2.0
"""Access control: root and gangd's own user may call everything, other users what polkit allows.

Two actions, split as libvirt splits its own (systemd/org.gangd.Gangd1.policy): MONITOR for methods that only
read, MANAGE for those that change something. Without polkit everybody may read, and those two may change.

polkit may be missing, not start, hang, die during a request, or answer nonsense. Anything but a clear yes is
a no. A caller is identified by its unique name on the bus, which the bus itself puts into every message and
never gives away again. polkit's own interface: its D-Bus API reference, CheckAuthorization.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Any

from sdbus import SdBus
from sdbus.sd_bus_internals import SdBusBaseError

from gangd.control.text import shortened
from gangd.control.wire import name_and_text
from gangd.errors import AccessDenied

log = logging.getLogger(__name__)

MONITOR, MANAGE = "org.gangd.gangd1.monitor", "org.gangd.gangd1.manage"
ANSWER_SECONDS = 10.0
PASSWORD_SECONDS = 100.0  # somebody may have to type one; shorter than a client waits
NEEDS_ROOT = "permission denied, this needs root"

_ALLOW_INTERACTION = 1
_ABSENT = {
    f"org.freedesktop.DBus.Error.{name}"
    for name in ("ServiceUnknown", "NameHasNoOwner", "Spawn.ServiceNotFound")
}


class Authority:
    """Asks the bus for a caller's user, and polkit whether that user may do an action."""

    def __init__(self, bus: SdBus) -> None:
        self._bus = bus

    async def check(self, action: str, sender: str | None, interactive: bool = False) -> None:
        """Raise unless `sender` may do `action`. interactive: polkit may ask its user for a password.

        Raises AccessDenied.
        """
        if sender is None or await self._user(sender) not in (0, os.geteuid()):
            await self._ask(action, sender or "", interactive)

    async def _user(self, sender: str) -> int | None:
        """The user id of a caller, None when the bus does not know (the caller may have left)."""
        try:
            reply = await self._call("org.freedesktop.DBus", "", "GetConnectionUnixUser", "s", sender)
        except (SdBusBaseError, OSError, TimeoutError):
            return None
        match reply:
            case (int() as user,):
                return user
        return None

    async def _ask(self, action: str, sender: str, interactive: bool) -> None:
        subject = ("system-bus-name", {"name": ("s", sender)})
        flags = _ALLOW_INTERACTION if interactive else 0
        try:
            reply = await self._call(
                "org.freedesktop.PolicyKit1", "Authority", "CheckAuthorization",
                "(sa{sv})sa{ss}us", subject, action, {}, flags, "",
                seconds=PASSWORD_SECONDS if interactive else ANSWER_SECONDS,
            )  # fmt: skip
        except TimeoutError:
            raise AccessDenied("permission denied: polkit does not answer")
        except (SdBusBaseError, OSError) as error:
            name, text = name_and_text(error)
            if name not in _ABSENT:
                log.warning("cannot ask polkit: %s", shortened(f"{name}: {text}", 200))
                raise AccessDenied("permission denied: polkit cannot be asked")
            if action != MONITOR:
                raise AccessDenied(NEEDS_ROOT)
            return
        match reply:
            case ((bool() as allowed, bool() as challenge, dict()),):
                if allowed:
                    return
                why = ": polkit asks for a password" if challenge else " by polkit"
                raise AccessDenied(f"permission denied{why} ({action})")
        log.warning("cannot use the answer of polkit: %s", shortened(repr(reply), 200))
        raise AccessDenied("permission denied: polkit cannot be asked")

    async def _call(
        self, name: str, leaf: str, method: str, signature: str, *args: Any, seconds: float = ANSWER_SECONDS
    ) -> tuple[Any, ...]:
        """The reply of a method; path and interface are called as the bus name is, and `leaf`."""
        interface = f"{name}.{leaf}" if leaf else name
        path = "/" + interface.replace(".", "/")
        message = self._bus.new_method_call_message(name, path, interface, method)
        message.append_data(signature, *args)
        async with asyncio.timeout(seconds):
            reply = await self._bus.call_async(message)
        return tuple(reply.parse_to_tuple())
