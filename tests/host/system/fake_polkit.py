# SPDX-License-Identifier: Apache-2.0
"""A polkit that answers as it is told: fake_polkit.py ADDRESS ANSWER.

ANSWER is yes, no, challenge, ask (yes if it may ask for a password), manage (no to org.gangd.gangd1.manage
alone), or one of what no polkit would say: the keys of NONSENSE, error, silent, late, die. Prints "ready",
then what it was asked: one JSON document a line.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from sdbus import DbusInterfaceCommonAsync, DbusUnprivilegedFlag, dbus_method_async
from sdbus.dbus_exceptions import DbusFailedError

from gangd.control.wire import open_bus

# The fake polkit replies with these, each with its D-Bus type.
NONSENSE: dict[str, tuple[str, tuple[Any, ...] | None]] = {
    "text": ("s", ("yes",)),
    "nothing": ("", None),
    "one": ("b", (True,)),
    "loose": ("bba{ss}", (True, False, {})),
    "numbers": ("(uua{ss})", ((1, 0, {}),)),
    "words": ("(ssa{ss})", (("true", "false", {}),)),
    "twice": ("(bba{ss})(bba{ss})", ((True, False, {}), (True, False, {}))),
    "huge": ("s", ("\x1b" * 1_000_000,)),
}
LATE_SECONDS = 1.6


class PolkitError(DbusFailedError):
    """An error named as polkit names its own."""

    dbus_error_name = "org.freedesktop.PolicyKit1.Error.Failed"


def authority(answer: str) -> DbusInterfaceCommonAsync:
    """The object; what its method returns is decided here, once."""
    signature, reply = NONSENSE.get(answer, ("(bba{ss})", None))

    class Authority(DbusInterfaceCommonAsync, interface_name="org.freedesktop.PolicyKit1.Authority"):
        """org.freedesktop.PolicyKit1.Authority, as far as gangd calls it."""

        @dbus_method_async("(sa{sv})sa{ss}us", signature, DbusUnprivilegedFlag)
        async def check_authorization(
            self, subject: Any, action: str, details: dict[str, str], flags: int, cancellation: str
        ) -> Any:
            """Says what was asked, and answers."""
            print(json.dumps([subject, action, details, flags, cancellation]), flush=True)
            if answer in NONSENSE:
                return reply
            if answer == "error":
                raise PolkitError("secret detail\x1b[31m")
            if answer == "die":
                os._exit(1)
            if answer == "silent":
                await asyncio.sleep(3600)
            if answer == "late":
                await asyncio.sleep(LATE_SECONDS)
            allowed = answer in ("yes", "late") or (answer == "ask" and flags == 1)
            allowed |= answer == "manage" and not action.endswith(".manage")
            return ((allowed, answer == "challenge", {"polkit.retains_authorization_after_challenge": "1"}),)

    return Authority()


async def main(address: str, answer: str) -> None:
    """Serve until killed."""
    bus = open_bus(address)
    served = authority(answer)
    served.export_to_dbus("/org/freedesktop/PolicyKit1/Authority", bus)
    await bus.request_name_async("org.freedesktop.PolicyKit1", 0)
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
