# SPDX-License-Identifier: Apache-2.0
"""The classes of gangctl's commands: one fetches a document and shows it, the other is a task of its own.

This module and those that a command imports use no dataclasses and no typing: importing them takes longer
than the command itself (tests/contract/test_startup.py).
"""

from __future__ import annotations

import json
import sys
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable

from gangd.control import client as control
from gangd.control.client import Client
from gangd.control.schema import Document
from gangd.control.text import printable
from gangd.errors import GangError, InvalidArgument, NoLibvirt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from msgspec import Struct

DOMAIN_OPTION = "DOMAIN in virsh's other spelling"


def no_arguments(parser: ArgumentParser) -> None:
    """For commands that take none of their own."""


class Task:
    """A command that is not one document of the daemon: it goes on for a while, or needs no daemon.
    failure: the first line of its errors, from the arguments.
    run: prints what it has to say; the exit status. Raises GangError."""

    def __init__(
        self,
        name: str,
        summary: str,
        failure: Callable[[Namespace], str],
        run: Callable[[Namespace], int],
        arguments: Callable[[ArgumentParser], None] = no_arguments,
    ) -> None:
        self.name = name
        self.summary = summary
        self.failure = failure
        self.run = run
        self.arguments = arguments


class Command(Task):
    """fetch: asks the daemon. show: the document as text; both `--json` and tests skip it.
    starts: whether, with these arguments, the bus may start a gangd that does not run: what changes something
    needs one, and whoever only looks does not undo an administrator's `systemctl stop`."""

    def __init__(
        self,
        name: str,
        summary: str,
        failure: Callable[[Namespace], str],
        fetch: Callable[[Client, Namespace], Document],
        show: Callable[[Document, Namespace], str],
        arguments: Callable[[ArgumentParser], None] = no_arguments,
        starts: Callable[[Namespace], bool] = lambda args: False,
    ) -> None:
        super().__init__(name, summary, failure, self._run, arguments)
        self.fetch = fetch
        self.show = show
        self.starts = starts

    def _run(self, args: Namespace) -> int:
        """Fetch and print; the exit status. Raises GangError."""
        document = self.fetch(connected(args, self.starts(args)), args)
        text = json.dumps(document, indent=2) if args.json else self.show(document, args)
        if text:
            print(text)
        return self.status(document, args)

    def status(self, document: Document, args: Namespace) -> int:
        """The exit status of what was answered."""
        return 0


def connected(args: Namespace, start: bool = False) -> Client:
    """The daemon, provided that it works for the libvirt of `--connect`.

    LIBVIRT_DEFAULT_URI is no such claim: it is in the environment for every virsh, and gangd has one libvirt.
    start: the bus may start it. Raises NoDaemon, InvalidArgument, NoLibvirt.
    """
    terminal = sys.stderr is not None and sys.stderr.isatty()  # a script's stderr has errors alone
    told = terminal and not (args.quiet or args.json)
    client = control.connect(args.bus, start=start, waits=_say_wait if told else None)
    if args.connect:
        libvirt = client.status()["libvirt"]
        if libvirt["uri"] is None:
            raise NoLibvirt(f"gangd is not connected to libvirt ({libvirt['reason'] or 'not tried yet'})")
        if libvirt["uri"] != args.connect:
            raise InvalidArgument(
                f"this gangd works for {libvirt['uri']}, not for '{args.connect}' (daemon.libvirt_uri; "
                "each host has a gangd of its own)"
            )
    return client


def _say_wait() -> None:
    print("waiting for gangd, which may be loading the scheduler", file=sys.stderr, flush=True)


def print_document(document: Struct) -> None:
    """Print a document that gangctl made itself."""
    from gangd.control.structs import plain  # not for every command: msgspec takes long to import

    print(json.dumps(plain(document), indent=2))


def complain(error: GangError, as_json: bool) -> None:
    """Print an error the way its reader wants it."""
    if as_json:
        from gangd.cli.structs import Error, Failure

        told = Failure(code=error.code, action=error.action, message=error.cause)
        print_document(Error(error=told))
        return
    sys.stdout.flush()
    for line in error.lines():
        print(f"error: {printable(line)}", file=sys.stderr)


def domain_argument(parser: ArgumentParser) -> None:
    """The domain a command is about."""
    _spellings(parser, required=True)


def optional_domain(parser: ArgumentParser) -> None:
    """The domain a command may be limited to."""
    _spellings(parser, required=False)


def _spellings(parser: ArgumentParser, required: bool) -> None:
    """The command takes DOMAIN or `--domain DOMAIN`; argparse refuses both at once.

    To be called last: argparse shows the two as alternatives where one stands beside the other.
    """
    either = parser.add_mutually_exclusive_group(required=required)
    # SUPPRESS: when it is not given it must not reset what --domain said.
    either.add_argument("--domain", metavar="DOMAIN", help=DOMAIN_OPTION)
    either.add_argument("domain", metavar="DOMAIN", nargs="?", default=SUPPRESS, help="id, name or UUID")


def exclusive(args: Namespace, one: str, other: str) -> None:
    """Refuse two options together, in virsh's words. Raises InvalidArgument."""
    if getattr(args, one) and getattr(args, other):
        raise InvalidArgument(f"Options --{one} and --{other} are mutually exclusive")


def interval(text: str) -> float:
    """An option's value in seconds. Raises ArgumentTypeError."""
    return number(text, 0.1, 86400, "seconds")


def number(text: str, least: float, most: float, unit: str) -> float:
    """An option's value between two that are above 0. Raises ArgumentTypeError."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not least <= value <= most:
        raise ArgumentTypeError(f"'{printable(text)}' is not a number of {unit} from {least:g} to {most:g}")
    return value
