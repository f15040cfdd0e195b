# SPDX-License-Identifier: Apache-2.0
"""The program gangd: runs the daemon, or undoes what a dead one left (`gangd --undo`).

Each of the two imports what it needs when it is asked for: systemd runs the second after every stop.
"""

from __future__ import annotations

import argparse
import faulthandler
import logging
import os
import signal
import sys
from pathlib import Path

from gangd import __version__, config, logs
from gangd.errors import GangError


def program() -> None:
    """Run gangd and end the process as it is, without taking the interpreter apart.

    That would free the objects on D-Bus in any order, and libsystemd reads the vtable of one that is freed
    already; threads may be amid a call to libvirt. All that was changed has been put back by then.
    """
    status = main()
    logging.shutdown()
    for stream in filter(None, (sys.stdout, sys.stderr)):
        stream.flush()
    os._exit(status)


def main(argv: list[str] | None = None) -> int:
    """0 after a clean stop, 1 when gangd cannot start or the undo left something."""
    args = parser().parse_args(argv)
    logs.setup("gangd", args.verbose)
    # A daemon that seems to hang: kill -USR1 writes where each of its threads is.
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    try:
        if args.undo:
            from gangd import undo_command

            return undo_command.run(args.config)
        settings = config.load(args.config)
        from gangd import service

        return service.run(settings, args.config)
    except GangError as error:
        for line in error.lines():
            print(f"error: {line}", file=sys.stderr)
        return 1


def parser() -> argparse.ArgumentParser:
    """The options of gangd; also what its man page is made of."""
    parser = argparse.ArgumentParser(prog="gangd", description="Gang scheduling for libvirt KVM guests.")
    parser.add_argument(
        "--config", metavar="FILE", type=Path, help=f"configuration file (default {config.DEFAULT_PATH})"
    )
    parser.add_argument("--undo", action="store_true", help="put back what a gangd that died had changed")
    parser.add_argument("--verbose", action="store_true", help="log more, also why a program was refused")
    parser.add_argument("--version", action="version", version=f"gangd {__version__}")
    return parser


if __name__ == "__main__":
    program()
