# SPDX-License-Identifier: Apache-2.0
"""`make bench-kernel`: the matrix of variants, loads, guests and PLE, then what ordinary work pays.
`make bench-adaptive`: what the policy adaptive makes of each load.
`make bench-noise`: whether other users of the machine matter.

The work is beside this file: boot.py boots, driver.py, overhead.py, adaptive.py and shares.py measure,
result.py judges. docs/benchmarks.md explains all.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

from bench import boot, noise, publish, result, settings, store, table
from bench.seeds import host
from lab.cli import NO_VERDICT
from lab.errors import LabError
from lab.qemu import Clock


def main(kernel: str) -> int:
    """The exit status: 1 when something could not be measured, 69 if the lab gave no verdict."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kernel", default=store.KERNEL, help="row of kernels.toml (%(default)s)")
    parser.add_argument("--overhead", action="store_true", help="only ordinary work")
    parser.add_argument("--no-overhead", action="store_true", help="only the matrix")
    parser.add_argument("--adaptive", action="store_true", help="only adaptive, under the daemon")
    parser.add_argument("--shares", action="store_true", help="only the shares: who is beside a gang")
    parser.add_argument("--seeds", action="store_true", help="only the seeds' tables, with Linux guests")
    parser.add_argument(
        "--latency", action="store_true", help="only disk and network of a guest beside busy ones"
    )
    parser.add_argument("--tile", action="store_true", help="only the tile: guests with different loads")
    parser.add_argument("--host", action="store_true", help="with --seeds: on this machine, not in the lab")
    parser.add_argument("--noise", action="store_true", help="one cell, quiet and beside two busy loops")
    parser.add_argument("--table", action="store_true", help="measure nothing: print the last results")
    parser.add_argument(
        "--publish", action="store_true", help="all that docs/results has and that is missing or old"
    )
    parser.add_argument("--lanes", type=int, default=len(os.sched_getaffinity(0)), metavar="N",
                        help="VMs that publish runs at once (one for each CPU: %(default)s)")  # fmt: skip
    parser.add_argument("--only", metavar="NAMES", help="of publish: shares-6.18,tile-6.18")
    parser.add_argument("--dry-run", action="store_true", help="of publish: only say what it would measure")
    parser.add_argument("--piece", help="the part of a part that this is: its result is one of its own")
    parser.add_argument("--clock", choices=[c.value for c in Clock], default=Clock.VIRTUAL.value,
                        help="a second of the VM is counted in instructions, or is one of the machine's "
                        "(%(default)s)")  # fmt: skip
    settings.add_options(parser)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, _terminated)
    status = 0
    try:
        if options.publish:
            return publish.everything(parser.parse_args, options)
        if options.host:
            status = host.measure(options, Path(kernel))
        elif not options.table:
            status = measure(options)
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        status = NO_VERDICT
    for part in parts(options) if not options.piece else ():
        found = store.document(
            host.RESULT if options.host else store.HOME / f"{store.name_of(part, options)}.json"
        )
        for line in table.lines(result.finish(found)) if found else ():
            print(line)
    return status


def _terminated(*_: object) -> None:
    """End the VM and keep what it has saved: the signal becomes an exception, once."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(128 + signal.SIGTERM)


def parts(options: argparse.Namespace) -> list[str]:
    """Return the parts that the options ask for."""
    for part in ("noise", "shares", "adaptive", "seeds", "latency", "tile", "overhead"):
        if getattr(options, part):
            return [part]
    return ["matrix"] if options.no_overhead or options.quick else ["matrix", "overhead"]


def measure(options: argparse.Namespace) -> int:
    """Every part that was asked for, each in a VM of its own."""
    status = 0
    for part in parts(options):
        status |= measure_part(part, options)
    return status


def measure_part(part: str, options: argparse.Namespace) -> int:
    """Measure a part in a VM of its own, or in two."""
    if part == "noise":
        return noise.measure(options)
    piece = f"{store.name_of(part, options)}.{options.piece}.json"
    return boot.measure(part, options, store.HOME / piece if options.piece else None)
