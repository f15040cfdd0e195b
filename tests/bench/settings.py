# SPDX-License-Identifier: Apache-2.0
"""The benchmark's loads, variants, times, rounds and options. It imports nothing that a bare host lacks."""

from __future__ import annotations

import argparse
from typing import Any

LOADS = "barrier,spinlock,ipi,sleepwake,spin"
VARIANTS = "default,pinned,balance,boost,relaxed,strict"
ROUNDS = 5  # no interval has fewer (plan.toml); seven made all that is published take a third longer
# Seconds are the VM's own; what one costs in real time is said in docs/benchmarks.md.
FULL = {"loads": LOADS, "guests": "2,4,8", "ple": "off,on", "rounds": ROUNDS, "seconds": 1.2}
QUICK = {"loads": "barrier,spin", "guests": "4", "ple": "off,on", "rounds": 3, "seconds": 1.0}
ADAPTIVE = {"loads": LOADS, "guests": "4", "ple": "on,off", "rounds": 6, "seconds": 5.0}
CPUS = {"shares": 4}  # of the VM; else 2
SHARES = {"rounds": 5, "seconds": 3.0, "settle": 0.5}
SEEDS: dict[str, Any] = {
    "loads": "ebizzy,barrier,hackbench,dbench,compile,pgbench",
    "guests": "2,4",
    "ple": "off,on",
    "rounds": ROUNDS,
    "seconds": 2.0,
}
OVERHEAD_ROUNDS = 6
NOISE_ROUNDS, NOISE_SECONDS = 12, 1.0
LATENCY = {**SEEDS, "loads": "fio,ping", "guests": "4"}
PARTS = {"adaptive": ADAPTIVE, "seeds": SEEDS, "latency": LATENCY}
LOG = "gangd.log"  # in the shared folder: what gangd said


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that both `python3 -m bench` and the driver understand."""
    add = parser.add_argument
    add("--quick", action="store_true", help="few cells, few rounds: shows that it works, and no more")
    add("--smp", type=int, help="CPUs of the VM (2, of the fourth part 4; 8, 16)")
    add("--vcpus", type=int, default=2, help="of each guest (%(default)s)")
    add("--loads", help=f"payload loads, with commas ({LOADS})")
    add("--guests", help=f"how many run at once ({FULL['guests']})")
    add("--variants", help=f"what is compared ({VARIANTS})")
    add("--ple", help=f"PAUSE-loop exiting ({FULL['ple']})")
    add("--features", help="of Linux guests: paravirtual locks (nopvspin,pv)")
    add("--rounds", type=int, help=f"of every variant in every cell ({FULL['rounds']})")
    add("--seconds", type=float, help=f"of each round ({FULL['seconds']})")
    add("--settle", type=float, help="seconds between a switch and its round (0.25)")
    add(
        "--slot-ms",
        type=float,
        default=30.0,
        help="length of a slot, at most of a turn (%(default)s, gangd's default)",
    )
    add("--again", action="store_true", help="measure also what the last result has already")


def complete(options: argparse.Namespace, part: str = "matrix") -> argparse.Namespace:
    """Return the options with what was left out filled in."""
    chosen: dict[str, Any] = {"features": "nopvspin,pv", "smp": CPUS.get(part, 2), "settle": 0.25}
    chosen |= PARTS.get(part) or (QUICK if options.quick else FULL)
    chosen |= SHARES if part == "shares" else {}
    chosen["variants"] = "default,pinned,balance,relaxed" if options.quick else VARIANTS
    if part == "overhead":
        chosen["rounds"] = OVERHEAD_ROUNDS
    found = argparse.Namespace(**vars(options))
    for name, value in chosen.items():
        if getattr(found, name) is None:
            setattr(found, name, value)
    return found


def words(options: argparse.Namespace) -> list[str]:
    """Return the options as a command line, without --again, which the caller has dealt with."""
    which = ("smp", "vcpus", "loads", "guests", "variants", "ple", "features")
    names = (*which, "rounds", "seconds", "settle", "slot-ms")
    return [word for name in names for word in (f"--{name}", str(getattr(options, name.replace("-", "_"))))]


def of_origin(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options that figures depend on: a result with others is not continued.

    More rounds or more cells are accepted.
    """
    return {name: getattr(options, name) for name in ("smp", "vcpus", "seconds", "settle", "slot_ms")}
