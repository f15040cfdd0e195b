# SPDX-License-Identifier: Apache-2.0
"""Properties of systemd's units, over the system bus: read, and set until the unit or the host ends.

org.freedesktop.systemd1(5). Blocking; a connection belongs to the thread that uses it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sdbus import SdBus, sd_bus_open_system
from sdbus.sd_bus_internals import EXCEPTION_TO_DBUS_ERROR, SdBusBaseError, SdBusUnmappedMessageError

from gangd.errors import GangError, TimedOut

SERVICE = "org.freedesktop.systemd1"
PATH = "/org/freedesktop/systemd1"
MANAGER = f"{SERVICE}.Manager"
SCOPE = f"{SERVICE}.Scope"
PROPERTIES = "org.freedesktop.DBus.Properties"
TIMEOUT_SECONDS = 10
# A unit that ended, before or after its object was looked up.
_GONE = (f"{SERVICE}.NoSuchUnit", "org.freedesktop.DBus.Error.UnknownObject")


def booted(root: Path = Path("/")) -> bool:
    """True if systemd runs this host: sd_booted(3)."""
    return (root / "run/systemd/system").is_dir()


class Systemd:
    """The service manager. Connects when it is first asked, and again after a failure."""

    def __init__(self) -> None:
        self._bus: SdBus | None = None

    def scope(self, unit: str, name: str) -> Any:
        """A property of the scope `unit`, None when there is no such scope (any more). Raises GangError, of
        which TimedOut if systemd does not answer."""
        try:
            path = self._call(PATH, MANAGER, "GetUnit", "s", unit)
            return self._call(path, PROPERTIES, "Get", "ss", SCOPE, name)[1]
        except _Refused as error:
            if error.name in _GONE:
                return None
            raise error.told(f"failed to read {name}= of {unit}")

    def restarts_us(self) -> bool:
        """True if this process's own unit is about to be started again (`systemctl restart`). Raises as
        scope() does."""
        try:
            unit = self._call(PATH, MANAGER, "GetUnitByPID", "u", 0)
            number, job = self._call(unit, PROPERTIES, "Get", "ss", f"{SERVICE}.Unit", "Job")[1]
            if not number:
                return False
            return bool(self._call(job, PROPERTIES, "Get", "ss", f"{SERVICE}.Job", "JobType")[1] == "restart")
        except _Refused as error:
            raise error.told("failed to ask for the job of our unit")

    def set(self, unit: str, name: str, signature: str, value: object) -> None:
        """Set a property at run time: `systemctl set-property --runtime`. Raises as scope() does."""
        try:
            properties = [(name, (signature, value))]
            self._call(PATH, MANAGER, "SetUnitProperties", "sba(sv)", unit, True, properties)
        except _Refused as error:
            raise error.told(f"failed to set {name}= of {unit}")

    def _call(self, path: str, interface: str, method: str, signature: str, *args: object) -> Any:
        try:
            if self._bus is None:
                self._bus = sd_bus_open_system()
                self._bus.method_call_timeout_usec = TIMEOUT_SECONDS * 1_000_000
            message = self._bus.new_method_call_message(SERVICE, path, interface, method)
            message.append_data(signature, *args)
            return self._bus.call(message).get_contents()
        except (SdBusBaseError, OSError) as error:
            self._bus = None
            raise _Refused(*_name_and_text(error))


class _Refused(Exception):
    """A call that failed; `name` is the D-Bus error's, "" where there was no answer."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(name, text)
        self.name = name
        self.cause = f"systemd: {text or name or 'no answer'}"

    def told(self, action: str) -> GangError:
        """Return the error that a user sees."""
        return GangError(self.cause, action) if self.name else TimedOut(self.cause, action)


def _name_and_text(error: Exception) -> tuple[str, str]:
    if isinstance(error, SdBusUnmappedMessageError) and len(error.args) == 2:
        return str(error.args[0]), str(error.args[1])
    return EXCEPTION_TO_DBUS_ERROR.get(type(error), ""), str(error.args[0]) if error.args else ""
