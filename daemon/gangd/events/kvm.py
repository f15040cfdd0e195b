# SPDX-License-Identifier: Apache-2.0
"""KVM as a source of guests, beside libvirt or alone.

    uevent "a machine came or went" ──▶ list ─▶ read what is new ──▶ emit(DomainSeen, DomainGone)
    every `interval` ────────────────▶ list ─▶ read everything ───┘   alone: emit(Resynced)

A new machine has no vCPU that ran yet, and whoever starts it may mark it a little later: until it is an
interval old it is read again, after pauses that double. Of guests that nobody chose one in ROUNDS is read at
an interval, of the others the mark alone. Whoever may open /dev/kvm can make machines and end them all day:
looks that events ask for take SHARE of the time at most.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path

from gangd.errors import GangError, InvalidArgument, InvalidMark, NoSuchDomain, NotMarked
from gangd.events import uevent
from gangd.events.calls import on_thread
from gangd.events.cpus import Cpus
from gangd.events.kvm_reader import (
    SHARED,
    Machine,
    Reading,
    Unpinned,
    folder_of,
    machines,
    named,
    read_guests,
    stamp,
)
from gangd.events.proc import MARK
from gangd.model.affect import Affect
from gangd.model.domain import Domain, Mark
from gangd.model.event import Connected, DomainGone, DomainSeen, Event, Resynced
from gangd.model.mark import format_mark
from gangd.trouble import Trouble

FIRST_SECONDS = 0.05  # from an event to the look at it
SHARE = 0.05
ROUNDS = 8


class KvmSource:
    """Follows the virtual machines of this host that are none of libvirt's.

    alone: libvirt is not asked, so that this source reads the CPUs and emits Resynced itself. unpinned: what
    a thread of a guest could run on before gangd pinned it. chosen: whether a guest is to be scheduled.
    known: by UUID, as emitted last.
    """

    def __init__(
        self,
        root: Path,
        interval: float,
        unpinned: Unpinned,
        chosen: Callable[[Domain], bool] = lambda _guest: True,
        alone: bool = False,
    ) -> None:
        self._root, self._interval, self._alone = root, interval, alone
        self._unpinned, self._chosen = unpinned, chosen
        self.known: dict[str, Domain] = {}
        self._emit: Callable[[Event], None] = lambda _event: None
        self._last: dict[Machine, Reading] = {}
        self._since: dict[Machine, float] = {}  # when each was seen first, on the event loop's clock
        self._rounds = 0  # full reads
        self._cpus = Cpus(root)
        self._reading, self._asked = asyncio.Lock(), asyncio.Event()
        self._due = 0.0  # when to read everything again
        self._told = asyncio.Event()  # something came or went
        self._trouble = Trouble("see guests without libvirt")

    @property
    def troubles(self) -> tuple[str, ...]:
        """Return a sentence for each thing that cannot be read."""
        return tuple(trouble.reason for trouble in (self._cpus.trouble, self._trouble) if trouble.reason)

    async def asked(self) -> None:
        """Returns when the machines were read once, or could not be."""
        await self._asked.wait()

    def set_interval(self, seconds: float) -> None:
        """From now on read everything that often; the next time is no later than that from now."""
        self._interval = seconds
        self._due = min(self._due, asyncio.get_running_loop().time() + seconds)
        self._told.set()

    async def run(self, emit: Callable[[Event], None]) -> None:
        """Follow them until cancelled. `emit` is called on this event loop."""
        self._emit = emit
        if self._alone:
            emit(Connected(""))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(uevent.follow(self._told.set, uevent.is_of_machine, "virtual machines"))
            tasks.create_task(self._look_on_time())

    async def resync(self) -> None:
        """Read everything now; emit Resynced where this source is alone, else what is different."""
        await self._read(everything=True)
        if self._alone:
            await self._cpus.read()
            self._emit(Resynced(tuple(self.known.values()), self._cpus.topology))

    async def look(self) -> None:
        """Read everything that answers, as resync() does."""
        await self.resync()

    async def find(self, ref: str) -> Domain:
        """The guest called `ref`, read now (and emitted): a PID, a UUID or a name. Raises NoSuchDomain."""
        guest = self._called(ref)
        uuid = guest.uuid if guest else ref
        await self._read(anew=uuid)
        found = self._called(uuid)
        if found is None:
            raise NoSuchDomain(f"Domain not found: no domain with matching name '{ref}'")
        return found

    async def set_mark(self, uuid: str, mark: Mark | None, affect: Affect | None = None) -> Domain:
        """Store `mark` with the guest's cgroup, None removes it; returns the guest, also emitted.

        Raises NoSuchDomain, InvalidArgument where no mark of that cgroup counts, InvalidMark, GangError.
        """
        guest = await self.find(uuid)
        _write_mark(_markable(guest, affect, self._root), mark)
        return await self.find(uuid)

    async def change_mark(
        self, uuid: str, change: Callable[[Mark], Mark], affect: Affect | None = None
    ) -> Domain:
        """Replace the mark there is by what `change` makes of it. Raises NotMarked, and as set_mark()."""
        guest = await self.find(uuid)
        folder = _markable(guest, affect, self._root)
        if guest.mark_error:
            raise InvalidMark(guest.mark_error)
        if guest.mark is None:
            raise NotMarked("domain is not marked (gangctl mark)")
        _write_mark(folder, change(guest.mark))
        return await self.find(uuid)

    def _called(self, ref: str) -> Domain | None:
        return next((one for one in self.known.values() if ref in (str(one.pid), one.uuid, one.name)), None)

    async def _look_on_time(self) -> None:
        clock, pause = asyncio.get_running_loop().time, FIRST_SECONDS
        while True:
            began, rest = clock(), 0.0
            if began >= self._due:
                self._due = began + self._interval
                await self.resync()
            else:
                await self._read()
                rest = (clock() - began) / SHARE
            young = any(began - since <= self._interval for since in self._since.values())
            left, pause = self._due - clock(), 2 * pause
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._told.wait(), max(min(pause, left), rest) if young else left)
            if self._told.is_set():
                self._told.clear()
                pause = FIRST_SECONDS
                await asyncio.sleep(max(FIRST_SECONDS, began + rest - clock()))

    async def _read(self, everything: bool = False, anew: str = "") -> None:
        """Read all machines, or those that are young and the guest `anew` (UUID); emit what is different. A
        failure is a trouble."""
        async with self._reading:
            now = asyncio.get_running_loop().time()
            self._rounds += everything
            kept = {
                one: last
                for one, last in self._last.items()
                if now - self._since[one] > self._interval
                and last.guest.uuid != anew
                and not (everything and self._is_due(one, last.guest))
            }
            try:
                self._last = await on_thread(lambda: self._looked(kept, everything))
                self._trouble.note(None)
            except GangError as error:  # what was known holds, as while libvirt is away
                self._trouble.note(error)
            self._since = {one: self._since.get(one, now) for one in self._last}
            self._tell({guest.uuid: guest for guest in named([last.guest for last in self._last.values()])})
            self._asked.set()

    def _is_due(self, one: Machine, guest: Domain) -> bool:
        return self._chosen(guest) or (hash(one) + self._rounds) % ROUNDS == 0

    def _looked(self, kept: dict[Machine, Reading], by_stamp: bool) -> dict[Machine, Reading]:
        """Every machine that there is now; those that are `kept` are not read, by_stamp: while they have the
        stamp that they had. On a thread."""
        there = machines(self._root)
        if by_stamp:
            kept = {
                one: last
                for one, last in kept.items()
                if stamp(one, last.guest.cgroup, self._root) == last.stamp
            }
        read = read_guests((one for one in there if one not in kept), there, self._unpinned, self._root)
        return {one: kept.get(one) or read[one] for one in there if one in kept or one in read}

    def _tell(self, guests: dict[str, Domain]) -> None:
        before, self.known = self.known, guests
        for uuid in before.keys() - guests.keys():
            self._emit(DomainGone(uuid))
        for uuid, guest in guests.items():
            if guest != before.get(uuid):
                self._emit(DomainSeen(guest))


def _markable(guest: Domain, affect: Affect | None, root: Path) -> Path:
    """The cgroup's directory, which has the guest's mark. Raises InvalidArgument where it can have none."""
    if affect and affect.config:
        raise InvalidArgument("a guest without libvirt has no configuration: choose it by a [[select]] table")
    folder = folder_of(guest.cgroup, root)
    if folder is None:
        raise InvalidArgument("it is in no cgroup of its own: start it in one (systemd-run --scope)")
    if guest.name != guest.cgroup:
        raise InvalidArgument(SHARED)
    if owner := folder.stat().st_uid:
        raise InvalidArgument(f"its cgroup belongs to user {owner}, whose marks do not count: use [[select]]")
    return folder


def _write_mark(folder: Path, mark: Mark | None) -> None:
    """Raises GangError with the kernel's cause."""
    try:
        if mark is not None:
            os.setxattr(folder, MARK, format_mark(mark).encode())
        else:
            os.removexattr(folder, MARK)
    except OSError as error:
        if mark is not None or error.errno != errno.ENODATA:
            raise GangError(f"cannot write {MARK} of {folder}: {error.strerror}")
