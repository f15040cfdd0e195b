# SPDX-License-Identifier: Apache-2.0
"""The domains as objects of their own, for programs that would rather follow signals than ask again.

/org/gangd/Gangd1 is an ObjectManager; below it is /org/gangd/Gangd1/domain/<UUID, _ for -> for each domain
libvirt knows. The properties are those of a summary (docs/json.md). D-Bus has no null: what a summary does
not know, or a domain does not have, is -1, "" or an empty list here.

A domain's name is a stranger's text: it is made printable, and no part of a path. The UUID tells domains
apart. docs/org.gangd.Gangd1.xml is the interface as introspection shows it.
"""

from __future__ import annotations

import re
from typing import Any

from sdbus import (
    DbusInterfaceCommonAsync,
    DbusPropertyConstFlag,
    DbusPropertyEmitsChangeFlag,
    SdBus,
    dbus_property_async,
)

from gangd.control.names import INTERFACE, PATH
from gangd.control.structs import Summary
from gangd.control.text import shortened

DOMAIN_INTERFACE = f"{INTERFACE}.Domain"
TEXT_MAX = 2000
_NO_ELEMENT = re.compile("[^A-Za-z0-9]")  # what no element of a path may hold

Values = dict[str, tuple[str, Any]]  # by property: D-Bus type and value


class DomainObject(DbusInterfaceCommonAsync, interface_name=DOMAIN_INTERFACE):
    """A domain as it was announced last."""

    def __init__(self, values: Values) -> None:
        super().__init__()
        self.values = values

    def _value(self, name: str) -> Any:
        return self.values[name][1]

    @dbus_property_async("s", DbusPropertyEmitsChangeFlag)
    def name(self) -> str:
        """libvirt's name, or the path of its cgroup, made printable."""
        return str(self._value("Name"))

    @dbus_property_async("s", DbusPropertyConstFlag)
    def uuid(self) -> str:
        """libvirt's UUID, or that of this run of a guest of KVM's."""
        return str(self._value("Uuid"))

    @dbus_property_async("s", DbusPropertyConstFlag)
    def source(self) -> str:
        """The one that tells of it: "libvirt", or "kvm"."""
        return str(self._value("Source"))

    @dbus_property_async("i", DbusPropertyEmitsChangeFlag)
    def id(self) -> int:
        """libvirt's number while it runs, or the PID of a guest of KVM's; else -1."""
        return int(self._value("Id"))

    @dbus_property_async("b", DbusPropertyEmitsChangeFlag)
    def marked(self) -> bool:
        """True if the domain has a mark."""
        return bool(self._value("Marked"))

    @dbus_property_async("s", DbusPropertyEmitsChangeFlag)
    def policy(self) -> str:
        """The policy that its mark names, "" when it names none."""
        return str(self._value("Policy"))

    @dbus_property_async("i", DbusPropertyEmitsChangeFlag)
    def weight(self) -> int:
        """The weight that its mark names, -1 when it names none."""
        return int(self._value("Weight"))

    @dbus_property_async("s", DbusPropertyEmitsChangeFlag)
    def schedule(self) -> str:
        """How it is scheduled now, "" when it is left alone."""
        return str(self._value("Schedule"))

    @dbus_property_async("s", DbusPropertyEmitsChangeFlag)
    def schedule_reason(self) -> str:
        """Why."""
        return str(self._value("ScheduleReason"))

    @dbus_property_async("s", DbusPropertyEmitsChangeFlag)
    def schedule_code(self) -> str:
        """Why it is not scheduled as it is to be, in a word; "" when it is."""
        return str(self._value("ScheduleCode"))

    @dbus_property_async("au", DbusPropertyEmitsChangeFlag)
    def cpus(self) -> list[int]:
        """The host CPUs it is placed on."""
        return list(self._value("Cpus"))

    @dbus_property_async("i", DbusPropertyEmitsChangeFlag)
    def gang_domain(self) -> int:
        """The number of its cache, -1 when it has none."""
        return int(self._value("GangDomain"))


class Objects:
    """The domains' objects on one bus. Raises SdBusBaseError and OSError when the bus is gone."""

    def __init__(self, bus: SdBus) -> None:
        self._bus = bus
        self._manager = bus.add_object_manager(PATH)  # sd-bus answers GetManagedObjects by itself
        self._objects: dict[str, tuple[DomainObject, Any]] = {}

    def show(self, summary: Summary) -> None:
        """Signal that the domain is new, or what is different of it since the last call."""
        path, values = path_of(summary.uuid), properties(summary)
        if path in self._objects:
            self._change(path, values)
        else:
            self._add(path, values)

    def remove(self, uuid: str) -> None:
        """Signal that the domain is gone."""
        path = path_of(uuid)
        _, handle = self._objects.pop(path)
        self._bus.emit_object_removed(path)  # while it is there: sd-bus looks up which interfaces it has
        handle.stop()

    def _add(self, path: str, values: Values) -> None:
        made = DomainObject(values)
        self._objects[path] = (made, made.export_to_dbus(path, self._bus))
        self._bus.emit_object_added(path)

    def _change(self, path: str, values: Values) -> None:
        known, _ = self._objects[path]
        changed = {name: value for name, value in values.items() if value != known.values[name]}
        known.values = values
        if changed:
            known.properties_changed.emit((DOMAIN_INTERFACE, changed, []))


def path_of(uuid: str) -> str:
    """The path of a domain's object."""
    return f"{PATH}/domain/{_NO_ELEMENT.sub('_', uuid)}"


def properties(summary: Summary) -> Values:
    """A summary (gangd.control.documents) as D-Bus properties."""
    return {
        "Name": ("s", _text(summary.name)),
        "Uuid": ("s", _text(summary.uuid)),
        "Source": ("s", _text(summary.source)),
        "Id": ("i", _number(summary.id)),
        "Marked": ("b", summary.marked),
        "Policy": ("s", _text(summary.policy)),
        "Weight": ("i", _number(summary.weight)),
        "Schedule": ("s", _text(summary.schedule)),
        "ScheduleReason": ("s", _text(summary.schedule_reason)),
        "ScheduleCode": ("s", _text(summary.schedule_code)),
        "Cpus": ("au", summary.cpus or []),
        "GangDomain": ("i", _number(summary.gang_domain)),
    }


def _text(value: str | None) -> str:
    return shortened(value or "", TEXT_MAX)


def _number(value: int | None) -> int:
    return -1 if value is None else value
