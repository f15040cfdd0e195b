# SPDX-License-Identifier: Apache-2.0
"""The demo's runs, repeats, times and options. It imports nothing that a bare host lacks."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass

# Guests with several loads share the CPUs, with PLE on: so are the hosts that people have.
PLANNED = "1barrier+1spinlock+2linux/on"
_PART = re.compile(r"([1-9])([a-z]+)")


@dataclass(frozen=True)
class Settings:
    """The settings of every phase. disturbed_share: of a vCPU thread's time, see machine.py.

    seconds: the reader of the counters is emulated, too, and disturbs the guests for most of a second.
    """

    repeats: int = 3
    seconds: float = 6.0
    trace_seconds: float = 0.2
    disturbed_share: float = 0.05
    disturbed_limit: int = 6


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that both `python3 -m bench.demo` and the driver understand."""
    defaults = Settings()
    add = parser.add_argument
    add("--repeats", type=int, default=defaults.repeats, help="in each phase (%(default)s)")
    add("--seconds", type=float, default=defaults.seconds, help="of each repeat (%(default)s)")
    add("--runs", type=checked, default=PLANNED, help="guests and PLE of each, with commas (%(default)s)")


def words(options: argparse.Namespace) -> list[str]:
    """Return the options as a command line again."""
    return [
        *("--repeats", str(options.repeats), "--seconds", str(options.seconds)),
        *("--runs", options.runs),
    ]


def checked(runs: str) -> str:
    """Return `runs`; an error before anything is booted if it makes no sense."""
    planned(runs)
    return runs


def planned(runs: str) -> list[tuple[dict[str, int], bool]]:
    """(guests by load, PLE) of every run that was asked for. Raises ValueError."""
    found = []
    for word in runs.split(","):
        guests, _, ple = word.strip().partition("/")
        parts = [_PART.fullmatch(part) for part in guests.split("+")]
        if ple not in ("on", "off") or None in parts:
            raise ValueError(f"a run is like 2barrier+1linux/on, not {word!r}")
        found.append(({part[2]: int(part[1]) for part in parts if part}, ple == "on"))
    return found
