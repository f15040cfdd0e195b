# SPDX-License-Identifier: Apache-2.0
"""Serve what gangd asks of org.freedesktop.systemd1: one scope, on the system bus of the environment.

Prints "ready" and then, for each property that is set, its name and value; ends with stdin. On the line "end"
the scope ends.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from sdbus import (
    DbusFailedError,
    DbusInterfaceCommonAsync,
    dbus_method_async,
    dbus_property_async,
    request_default_bus_name_async,
    sd_bus_open_system,
    set_default_bus,
)

UNIT = "machine-qemu\\x2d1\\x2dvm.scope"
PATH = "/org/freedesktop/systemd1"
SIGNATURES = {"AllowedCPUs": "ay", "CPUWeight": "t"}


class NoSuchUnit(DbusFailedError):
    """An error named as systemd names it."""

    dbus_error_name = "org.freedesktop.systemd1.NoSuchUnit"


class Scope(DbusInterfaceCommonAsync, interface_name="org.freedesktop.systemd1.Scope"):
    """A scope that may use CPUs 1 and 2."""

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[str, Any] = {"AllowedCPUs": b"\x06", "CPUWeight": 2**64 - 1}

    @dbus_property_async("ay", property_name="AllowedCPUs")
    def allowed_cpus(self) -> bytes:
        return bytes(self.values["AllowedCPUs"])

    @dbus_property_async("t", property_name="CPUWeight")
    def cpu_weight(self) -> int:
        return int(self.values["CPUWeight"])


class Manager(DbusInterfaceCommonAsync, interface_name="org.freedesktop.systemd1.Manager"):
    """Knows one unit, for as long as it lives."""

    def __init__(self) -> None:
        super().__init__()
        self.units = {UNIT: Scope()}

    @dbus_method_async("s", "o")
    async def get_unit(self, name: str) -> str:
        if name not in self.units:
            raise NoSuchUnit(f"Unit {name} not loaded.")
        return f"{PATH}/unit/vm"

    @dbus_method_async("sba(sv)", "")
    async def set_unit_properties(self, name: str, runtime: bool, properties: list[Any]) -> None:
        await self.get_unit(name)
        for key, (signature, value) in properties:
            if not runtime or SIGNATURES[key] != signature or value == 10001:
                raise DbusFailedError("Value out of range")
            self.units[name].values[key] = value
            print(key, value, flush=True)


async def main() -> None:
    """Serve until stdin ends."""
    set_default_bus(sd_bus_open_system())
    manager = Manager()
    manager.export_to_dbus(PATH)
    manager.units[UNIT].export_to_dbus(f"{PATH}/unit/vm")
    await request_default_bus_name_async("org.freedesktop.systemd1")
    print("ready", flush=True)
    loop = asyncio.get_running_loop()
    while (line := await loop.run_in_executor(None, sys.stdin.readline)).strip():
        if line.strip() == "end":
            manager.units.clear()
        print("done", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
