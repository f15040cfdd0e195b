# SPDX-License-Identifier: Apache-2.0
"""The names that gangd has on D-Bus, and the choice of the bus.

The bus is `system`, `session` or a D-Bus address (`unix:path=...`); from the
option `--bus`, else the environment's GANGD_BUS, else `system`.
"""

from __future__ import annotations

import os

from gangd.control.text import printable
from gangd.errors import InvalidArgument

NAME = "org.gangd.Gangd1"
INTERFACE = "org.gangd.Gangd1"
PATH = "/org/gangd/Gangd1"
ERROR_PREFIX = f"{NAME}.Error."


def chosen(choice: str | None) -> str:
    """The bus that is meant. Raises InvalidArgument for what cannot be one."""
    choice = _choice(choice)
    if choice not in ("system", "session") and (":" not in choice or "\0" in choice):
        raise InvalidArgument(f"bus '{printable(choice)}' is not system, session or a D-Bus address")
    return choice


def where(choice: str | None) -> str:
    """The chosen bus as part of a sentence."""
    choice = _choice(choice)
    return f"on the {choice} bus" if choice in ("system", "session") else f"at {printable(choice)}"


def _choice(choice: str | None) -> str:
    return choice or os.environ.get("GANGD_BUS") or "system"
