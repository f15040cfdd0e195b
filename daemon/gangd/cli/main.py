# SPDX-License-Identifier: Apache-2.0
"""gangctl: the command line of gangd, shaped like virsh.

Errors go to stderr in two lines, what failed and why; with --json they are a
document on stdout. The exit status is 0 or 1, also for a command that cannot
be parsed, because that is what scripts around virsh expect.
"""

from __future__ import annotations

import json
import os
import sys
from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Sequence
from typing import NoReturn

from gangd import __version__
from gangd.cli import domain, host, policy
from gangd.cli.command import Command
from gangd.control import client as control
from gangd.control.text import printable
from gangd.errors import GangError, InvalidArgument

COMMANDS: tuple[Command, ...] = domain.COMMANDS + policy.COMMANDS + host.COMMANDS


class _Parser(ArgumentParser):
    """Raises instead of exiting 2, so that a usage error is an error like any other."""

    def error(self, message: str) -> NoReturn:
        cause = f"{printable(message)} (see '{self.prog} --help')"
        raise InvalidArgument(cause, "failed to parse the command")


def parser() -> ArgumentParser:
    """The parser of gangctl; also what documents and completion are made of."""
    shared = _shared_options()
    top = _Parser(
        prog="gangctl",
        description="Schedule the vCPUs of libvirt KVM guests together.",
        parents=[shared],
        allow_abbrev=False,
    )
    top.add_argument("-v", "--version", action="version", version=f"gangctl {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for command in COMMANDS:
        sub = commands.add_parser(
            command.name,
            help=command.summary,
            description=command.summary[0].upper() + command.summary[1:] + ".",
            parents=[shared],
            allow_abbrev=False,
        )
        command.arguments(sub)
    helper = commands.add_parser("help", help="show help, of one command or in general", parents=[shared])
    helper.add_argument("topic", metavar="COMMAND", nargs="?", choices=[c.name for c in COMMANDS])
    return top


def _shared_options() -> _Parser:
    # SUPPRESS: the command's parser must not reset what was given before the command.
    shared = _Parser(add_help=False, argument_default=SUPPRESS)
    shared.add_argument("--json", action="store_true", help="print a JSON document (docs/json.md)")
    shared.add_argument("-q", "--quiet", action="store_true", help="print no headers")
    bus = "system, session or a D-Bus address (default: $GANGD_BUS, else system)"
    shared.add_argument("--bus", metavar="BUS", help=bus)
    return shared


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    _never_fail_to_print()
    try:
        code = _run(words)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has seen enough; Python must not complain at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 1
    return code


def _run(words: list[str]) -> int:
    as_json = "--json" in words
    try:
        args = parser().parse_args(words, Namespace(json=False, quiet=False, bus=None))
        as_json = args.json
        if args.command in (None, "help"):
            return _help(args)
        command = next(c for c in COMMANDS if c.name == args.command)
        _execute(command, args)
    except SystemExit as done:  # argparse printed --help or --version
        return 1 if done.code else 0
    except GangError as error:
        _complain(error, as_json)
        return 1
    return 0


def _execute(command: Command, args: Namespace) -> None:
    try:
        document = command.fetch(control.connect(args.bus), args)
    except GangError as error:
        raise error.during(command.failure(args))
    text = json.dumps(document, indent=2) if args.json else command.show(document, args)
    if text:
        print(text)


def _help(args: Namespace) -> int:
    topic = getattr(args, "topic", None)
    if topic:
        parser().parse_args([topic, "--help"])  # prints and raises SystemExit
    parser().print_help()
    return 0 if args.command == "help" else 1


def _complain(error: GangError, as_json: bool) -> None:
    if as_json:
        told = {"code": error.code, "action": error.action, "message": error.cause}
        print(json.dumps({"error": told}, indent=2))
        return
    sys.stdout.flush()
    for line in error.lines():
        print(f"error: {printable(line)}", file=sys.stderr)


def _never_fail_to_print() -> None:
    """A terminal that cannot show a letter gets it escaped rather than no output at all."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
