# SPDX-License-Identifier: Apache-2.0
"""gangctl config-check: reads a configuration file as gangd would. Needs no daemon."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from gangd.cli.command import Task, print_document
from gangd.control.text import printable
from gangd.errors import InvalidConfig


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "file", metavar="FILE", nargs="?", help="the file (default: the one that gangd reads)"
    )


def _check(args: Namespace) -> int:
    """Also what gangd finds out only at its start: whether every policy that is named is installed."""
    from importlib.metadata import entry_points  # neither for every command: they take long to import

    from gangd import config
    from gangd.cli.structs import ConfigCheck
    from gangd.model.profile import check_rules

    file = Path(args.file) if args.file else None
    settings = config.load(file)
    shown, there = file or config.DEFAULT_PATH, (file or config.DEFAULT_PATH).exists()
    try:
        check_rules(settings.rules, entry_points(group="gangd.policies").names)
    except InvalidConfig as error:  # of a profile or selector the place has the file already
        raise InvalidConfig(error.cause if error.cause.startswith(f"{shown}:") else f"{shown}: {error.cause}")
    if args.json:
        print_document(ConfigCheck(file=str(shown), exists=there, valid=True))
    elif not there:
        print(f"{printable(str(shown))}: not there, every default holds")
    else:
        print(f"{printable(str(shown))}: valid")
    return 0


def _failure(args: Namespace) -> str:
    return f"failed to check {printable(args.file) if args.file else 'the configuration'}"


COMMANDS = (
    Task(
        "config-check",
        "check a configuration file; needs no daemon",
        _failure,
        _check,
        _arguments,
    ),
)
