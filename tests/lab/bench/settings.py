# SPDX-License-Identifier: Apache-2.0
"""What is measured, how long and how often, and the options for it. Imports nothing a bare host lacks."""

from __future__ import annotations

import argparse

LOADS = "barrier,spinlock,ipi,sleepwake,spin"
VARIANTS = "default,pinned,balance,buddy,boost,relaxed,strict"
QUICK = {"loads": "barrier,spin", "guests": "2,4", "ple": "off", "rounds": 2, "seconds": 1.0}
ADAPTIVE = {"loads": LOADS, "guests": "4", "ple": "on,off", "rounds": 6, "seconds": 5.0}
LOG = "gangd.log"  # in the shared folder: what gangd said
FULL = {"loads": LOADS, "guests": "1,2,4,8", "ple": "off,on", "rounds": 5, "seconds": 1.2}


def add_options(parser: argparse.ArgumentParser) -> None:
    """What both `bench.py` and the driver understand."""
    add = parser.add_argument
    add("--quick", action="store_true", help="few cells, few rounds: shows that it works, and no more")
    add("--loads", help=f"payload loads, with commas ({LOADS})")
    add("--guests", help=f"how many run at once ({FULL['guests']})")
    add("--variants", default=VARIANTS, help="what is compared (%(default)s)")
    add("--ple", help=f"PAUSE-loop exiting ({FULL['ple']})")
    add("--rounds", type=int, help=f"undisturbed ones, of every variant in every cell ({FULL['rounds']})")
    add("--seconds", type=float, help=f"of each round ({FULL['seconds']})")
    add("--settle", type=float, default=0.25, help="seconds between a switch and its round (%(default)s)")
    add("--slot-ms", type=float, default=30.0, help="length of a slot (%(default)s, gangd's default)")
    add("--disturbed", type=float, default=0.05, help="share of a CPU that may go elsewhere (%(default)s)")
    add("--patience", type=int, default=40, help="rounds a cell may throw away (%(default)s)")
    add("--again", action="store_true", help="measure also what the last result has already")


def complete(options: argparse.Namespace) -> argparse.Namespace:
    """The same options with what was left out filled in."""
    chosen = ADAPTIVE if getattr(options, "adaptive", False) else QUICK if options.quick else FULL
    for name, value in chosen.items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    return options


def words(options: argparse.Namespace) -> list[str]:
    """The same options as a command line again, without --again: whoever asks has dealt with it."""
    names = ("loads", "guests", "variants", "ple", "rounds", "seconds", "settle", "slot-ms", "disturbed",
             "patience")  # fmt: skip
    return [word for name in names for word in (f"--{name}", str(getattr(options, name.replace("-", "_"))))]
