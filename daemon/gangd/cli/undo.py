# SPDX-License-Identifier: Apache-2.0
"""The command undo: put back what was changed, and leave alone what it was changed for."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from gangd.cli.command import Command, optional_domain
from gangd.control.client import Client
from gangd.control.schema import Document
from gangd.control.text import printable
from gangd.errors import GangError, InvalidArgument


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="every domain, and what was changed of the host")
    parser.add_argument(
        "--resume", action="store_true", help="put nothing back: schedule again what was left alone"
    )
    optional_domain(parser)


def _fetch(client: Client, args: Namespace) -> Document:
    """Raises GangError also when something could not be put back."""
    if args.all == (args.domain is not None):
        raise InvalidArgument("specify either a domain or --all (see 'gangctl undo --help')")
    if args.resume:
        return client.resume(args.domain)
    document = client.undo(args.domain)
    if document["failures"]:
        raise GangError(f"{_put_back(document)}, but: {'; '.join(document['failures'])}")
    return document


def _show(document: Document, args: Namespace) -> str:
    names = [f"'{printable(d['name'])}'" for d in document["domains"]]
    about = f"Domain {names[0]}" if len(names) == 1 else f"{len(names)} domains"
    return f"{about} resumed" if args.resume else f"{about} undone, {_put_back(document)}"


def _put_back(document: Document) -> str:
    count = document["undone"]
    return f"{count} setting{'s'[: count != 1]} put back"


def _failure(args: Namespace) -> str:
    verb = "resume" if args.resume else "undo"
    about = "all domains" if args.domain is None else f"domain '{printable(args.domain)}'"
    return f"failed to {verb} {about}"


COMMANDS = (
    Command(
        "undo",
        "put back what was changed for a domain, and leave it alone from then on",
        _failure,
        _fetch,
        _show,
        _arguments,
    ),
)
