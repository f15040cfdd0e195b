# SPDX-License-Identifier: Apache-2.0
"""The signals of the daemon as seen by a program that waits for them.

asyncio and sdbus are imported with this module: import it when there is something to wait for.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any

from sdbus import SdBus
from sdbus.sd_bus_internals import SdBusBaseError

from gangd.control import names, wire
from gangd.control.client import from_wire
from gangd.control.names import where
from gangd.control.schema import Document
from gangd.errors import GangError, NoDaemon

# An absent daemon sends no signal: it is looked for this often.
LOOK_SECONDS = 5.0


def listen(bus: str | None = None, timeout: float | None = None) -> Iterator[Document]:
    """Events (docs/json.md) as they come, until `timeout` seconds have passed.

    Raises NoDaemon when there is no daemon, also later; InvalidArgument for a bus that is none.
    """
    ending = None if timeout is None else time.monotonic() + timeout
    with asyncio.Runner() as runner:
        try:
            ears = runner.run(_subscribe(bus))
            while (text := runner.run(ears.next(ending))) is not None:
                yield _document(text)
        except SdBusBaseError as error:
            name, told = wire.name_and_text(error)
            raise from_wire(name, told, where(bus)) from None
        except OSError as error:
            raise from_wire("", str(error), where(bus)) from None


class _Ears:
    """A subscription. owner: the unique name of the daemon; nobody else is listened to."""

    def __init__(self, connection: SdBus, owner: str, where: str) -> None:
        self._connection = connection
        self._owner = owner
        self._where = where
        self._heard: asyncio.Queue[str] = asyncio.Queue()

    async def start(self) -> None:
        match = self._connection.match_signal_async
        self._slot = await match(names.NAME, names.PATH, names.INTERFACE, "Event", self._hear)

    def _hear(self, message: Any) -> None:
        if message.sender == self._owner:
            self._heard.put_nowait(message.get_contents())

    async def next(self, ending: float | None) -> str | None:
        """The next signal's text; None when `ending` comes first."""
        while True:
            left = LOOK_SECONDS if ending is None else ending - time.monotonic()
            try:
                return await asyncio.wait_for(self._heard.get(), max(0.0, min(left, LOOK_SECONDS)))
            except TimeoutError:
                if left <= LOOK_SECONDS and ending is not None:
                    return None
            if await _owner(self._connection) != self._owner:
                raise NoDaemon(f"gangd {self._where} was restarted")


async def _subscribe(bus: str | None) -> _Ears:
    connection = wire.open_bus(bus)
    ears = _Ears(connection, await _owner(connection), where(bus))
    await ears.start()
    return ears


async def _owner(connection: SdBus) -> str:
    """The unique name behind ours. Raises what sdbus raises, when there is none."""
    message = connection.new_method_call_message(*wire.BUS, "GetNameOwner")
    message.append_data("s", names.NAME)
    return str((await connection.call_async(message)).get_contents())


def _document(text: object) -> Document:
    try:
        document = json.loads(text) if isinstance(text, str) else None
    except ValueError:
        document = None
    if not isinstance(document, dict) or "event" not in document:
        raise GangError("gangd sent an event that is not a document")
    return document
