# SPDX-License-Identifier: Apache-2.0
"""The tile's own defaults of the benchmark's options."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from bench.tile.parties import GUESTS

# loads: the initrds that are packed. Seconds are the VM's own.
TILE: dict[str, Any] = {
    "loads": ",".join(dict.fromkeys(party.initrd for party in GUESTS if party.initrd)),
    "guests": str(len(GUESTS)),
    "ple": "off,on",
    "rounds": 7,
    "seconds": 12.0,  # a guest compiles a file in some seconds
    "settle": 2.0,
}


def settled(options: Namespace) -> Namespace:
    """Return the options with the tile's defaults where nothing was chosen."""
    chosen = {name: value for name, value in TILE.items() if getattr(options, name) is None}
    return Namespace(**{**vars(options), **chosen})
