# SPDX-License-Identifier: Apache-2.0
"""A setting that is the live pin of some threads of a guest, through libvirt; values as in pin_value.py.

The domain's configuration is never touched. libvirt sets both the cpuset of the threads' cgroup and
their own affinity, and remembers the pin itself, so a restart of libvirtd does not undo it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import libvirt

from gangd import virt
from gangd.actuate.cpuset import inherit, prepare
from gangd.actuate.pin_value import INHERITED, cpu_map, inherited, no_cpuset, plain
from gangd.actuate.recall import Recall
from gangd.errors import GangError, InvalidArgument, NotRunning
from gangd.model.cpulist import format_cpulist
from gangd.model.domain import Domain
from gangd.model.plan import GangPlan

LIVE = libvirt.VIR_DOMAIN_AFFECT_LIVE
CPUSET = "cpuset.cpus"


@dataclass(frozen=True)
class Threads:
    """Which ones. group: the name of their cgroup ("vcpu0", "emulator", "iothread1"); number: libvirt's,
    of the vCPU or I/O thread; words: as people call them, which may be one or `many`."""

    uuid: str
    group: str
    number: int
    words: str
    many: bool = False


class ThreadsPin(ABC):
    """connection: gives the current virConnect or raises NoLibvirt.

    cpuset: finds the cpuset.cpus file of a group of threads by domain name, UUID and the group's name, None
    where there is none. roams: True of a gang whose scheduler chooses its members' CPUs.
    """

    name: str

    def __init__(
        self,
        connection: Callable[[], Any],
        cpuset: Callable[[str, str, str], Path | None] = no_cpuset,
        roams: Callable[[GangPlan], bool] = lambda gang: False,
    ) -> None:
        self._roams = roams
        self._connection = connection
        self._cpuset = cpuset
        self._recall = Recall()
        self._passing = False
        self._domains: dict[str, Any] = {}  # in a pass: virDomains by UUID
        self._folders: dict[str, Path | None] = {}  # likewise: of the cgroups of a guest's threads
        self._asked: dict[str, Any] = {}  # likewise: what libvirt said of a guest, until it is written to

    @abstractmethod
    def _threads(self, key: str) -> Threads:
        """Raises InvalidArgument for a key that names none of this kind."""

    @abstractmethod
    def _cpus(self, threads: Threads) -> frozenset[int] | None:
        """Where they may run now, None: they are gone. Raises libvirtError."""

    @abstractmethod
    def _pin(self, dom: Any, threads: Threads, cpus: tuple[bool, ...]) -> None:
        """Raises libvirtError."""

    def begin(self, known: Mapping[str, Domain]) -> None:
        """From now on libvirt is not asked for what is `known`, unless it was written since."""
        self._passing = True
        self._recall.begin(known)

    def end(self) -> None:
        """From now on it is asked at every read."""
        self._passing = False
        self._domains, self._folders, self._asked = {}, {}, {}
        self._recall.end()

    def read(self, key: str) -> str | None:
        """The CPUs the threads may run on now; None when they are gone or the domain does not run."""
        threads = self._threads(key)
        try:
            cpus = self._cpus(threads)
            own = self._file(threads) if cpus is not None else None
        except libvirt.libvirtError as error:
            if virt.is_gone(error):
                return None
            raise virt.translate(error).during(f"failed to read {self.describe(key)}")
        if cpus is None:
            return None
        if own and not own.read_text().strip():
            return inherited(cpus, self._connection())
        return format_cpulist(cpus)

    def write(self, key: str, value: str) -> None:
        """Pin the threads to the CPU list `value`.

        Raises NoSuchDomain or NotRunning when they are gone, InvalidArgument for a value that is no CPU
        list, GangError with libvirt's cause otherwise.
        """
        threads = self._threads(key)
        self._asked.pop(threads.uuid, None)
        action = f"failed to pin {self._object(threads)} to {value}"
        try:
            cpus = plain(value)
        except ValueError:
            raise InvalidArgument(f"'{value}' is not a list of CPUs", action)
        with self._recall.writing(threads.uuid):
            try:
                own = self._prepared(threads, cpus, action)
                self._pin(self._domain(threads.uuid), threads, cpu_map(self._connection(), cpus))
            except libvirt.libvirtError as error:
                raise virt.translate(error).during(action)
            if own and value.endswith(INHERITED):
                inherit(own)

    def _prepared(self, threads: Threads, cpus: frozenset[int], action: str) -> Path | None:
        """The threads' cpuset.cpus, where they have one; libvirt may pin them now."""
        if not self._domain(threads.uuid).isActive():
            raise NotRunning("domain is not running", action)
        own = self._file(threads)
        if own:
            prepare(own, cpus, action)
        return own

    def describe(self, key: str) -> str:
        """The setting in words."""
        return f"the pin of {self._object(self._threads(key))}"

    def changed(self, key: str, value: str) -> str:
        """The sentence that says somebody else set `key` to `value`."""
        threads = self._threads(key)
        return f"{self._object(threads)} {'were' if threads.many else 'was'} pinned by hand to {value}"

    def show(self, value: str) -> str:
        """A CPU list is readable as it is."""
        return f"CPU {value}"

    def _object(self, threads: Threads) -> str:
        """ "vCPU 1 of 'vm'"; the UUID stands in for a name that cannot be had."""
        try:
            name = self._name(threads.uuid)
        except (GangError, libvirt.libvirtError):
            name = threads.uuid
        return f"{threads.words} of '{name}'"

    def _name(self, uuid: str) -> str:
        guest = self._recall.guest(uuid)
        return guest.name if guest else str(self._domain(uuid).name())

    def _domain(self, uuid: str) -> Any:
        if uuid in self._domains:
            return self._domains[uuid]
        dom = self._connection().lookupByUUIDString(uuid)
        if self._passing:
            self._domains[uuid] = dom
        return dom

    def _file(self, threads: Threads) -> Path | None:
        """The threads' cpuset.cpus; looked for once a pass and guest."""
        uuid = threads.uuid
        if uuid in self._folders:
            folder = self._folders[uuid]
            return folder / threads.group / CPUSET if folder else None
        own = self._cpuset(self._name(uuid), uuid, threads.group)
        if self._passing:
            self._folders[uuid] = own.parent.parent if own else None
        return own
