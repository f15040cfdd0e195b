# SPDX-License-Identifier: Apache-2.0
"""D-Bus as sdbus has it, for those who stay on the bus: how it is opened, and errors. A client that asks
once and leaves has `gangd.control.sd_bus`."""

from __future__ import annotations

import os
import threading
from functools import cache
from typing import cast

from sdbus import SdBus, sd_bus_open_system, sd_bus_open_user
from sdbus.dbus_exceptions import DbusErrorMeta, DbusFailedError
from sdbus.sd_bus_internals import EXCEPTION_TO_DBUS_ERROR, SdBusBaseError, SdBusUnmappedMessageError

from gangd.control.names import ERROR_PREFIX, chosen, where
from gangd.control.text import printable
from gangd.errors import GangError, NoDaemon

BUS = ("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus")  # name, path, interface
ERROR_TEXT_MAX = 2000

_environ = threading.Lock()


def open_bus(choice: str | None = None) -> SdBus:
    """A connection to the chosen bus. Raises InvalidArgument, NoDaemon."""
    choice = chosen(choice)
    try:
        if choice == "system":
            return sd_bus_open_system()
        if choice == "session":
            return sd_bus_open_user()
        return _open_address(choice)
    except (SdBusBaseError, OSError, ValueError) as error:
        raise NoDaemon(f"no D-Bus {where(choice)}: {printable(str(error))}")


def _open_address(address: str) -> SdBus:
    """sdbus cannot open an address, but sd-bus takes the system bus's from the
    environment (sd_bus_open_system(3)); it is put back before anyone can see it."""
    with _environ:
        before = os.environ.get("DBUS_SYSTEM_BUS_ADDRESS")
        os.environ["DBUS_SYSTEM_BUS_ADDRESS"] = address
        try:
            return sd_bus_open_system()
        finally:
            if before is None:
                del os.environ["DBUS_SYSTEM_BUS_ADDRESS"]
            else:
                os.environ["DBUS_SYSTEM_BUS_ADDRESS"] = before


def to_wire(error: GangError) -> Exception:
    """`error` as an exception that sdbus sends as org.gangd.Gangd1.Error.<code>."""
    text = "\n".join(printable(line) for line in error.lines())
    return _wire_error(error.code)(text[:ERROR_TEXT_MAX])


@cache
def _wire_error(code: str) -> type[Exception]:
    # Made once per code: sdbus keeps a table of error names and refuses doubles.
    fields = {"dbus_error_name": ERROR_PREFIX + code}
    return cast(type[Exception], DbusErrorMeta(f"Wire{code}", (DbusFailedError,), fields))


def name_and_text(error: Exception) -> tuple[str, str]:
    """The D-Bus error name and text behind what sdbus raised for a failed call."""
    if isinstance(error, SdBusUnmappedMessageError) and len(error.args) == 2:
        return str(error.args[0]), str(error.args[1])
    return EXCEPTION_TO_DBUS_ERROR.get(type(error), ""), str(error.args[0]) if error.args else ""
