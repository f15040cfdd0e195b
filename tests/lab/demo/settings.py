# SPDX-License-Identifier: Apache-2.0
"""How long and how often is measured, and the options for it. Imports nothing that a bare host lacks."""

from __future__ import annotations

import argparse
from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """Of every phase. disturbed_share: of a vCPU thread's time, see machine.py.

    deadline: (monotonic) after which no repeat begins.
    """

    repeats: int = 3
    seconds: float = 8.0
    guests: int = 4
    disturbed_share: float = 0.05
    disturbed_limit: int = 6
    failure_limit: int = 8
    deadline: float = float("inf")


def add_options(parser: argparse.ArgumentParser) -> None:
    """What both `demo.py` and the driver understand."""
    defaults = Settings()
    add = parser.add_argument
    add("--repeats", type=int, default=defaults.repeats, help="in each phase (%(default)s)")
    add("--seconds", type=float, default=defaults.seconds, help="of each repeat (%(default)s)")
    add("--quiet-seconds", type=float, default=60.0, help="over which gangd's cost is taken (%(default)s)")
    add("--loads", default="barrier,spinlock", help="payload loads, with commas (%(default)s)")


def words(options: argparse.Namespace) -> list[str]:
    """The same options as a command line again."""
    return [
        *("--repeats", str(options.repeats), "--seconds", str(options.seconds)),
        *("--quiet-seconds", str(options.quiet_seconds), "--loads", options.loads),
    ]
