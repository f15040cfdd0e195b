# SPDX-License-Identifier: Apache-2.0
"""The command smt: show and switch the host's simultaneous multithreading."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from gangd.cli.command import Command
from gangd.cli.domain import cpulist
from gangd.cli.table import UNKNOWN, fields, table
from gangd.control.client import Client
from gangd.control.schema import Document
from gangd.control.text import printable


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "action", nargs="?", choices=("show", "on", "off"), default="show", help="default: show"
    )


def _fetch(client: Client, args: Namespace) -> Document:
    return client.smt() if args.action == "show" else client.set_smt(args.action)


def _show(document: Document, args: Namespace) -> str:
    offline = cpulist(document["offline"] or None)
    control = printable(document["control"] or UNKNOWN)
    if args.action != "show":
        return f"SMT is {control}" + (f", CPUs {offline} are offline" if offline else "")
    active = document["active"]
    about = fields(
        [
            ("Control", control),
            ("Active", None if active is None else "yes" if active else "no"),
            ("Undo to", document["prior"]),
            ("Offline", offline),
        ]
    )
    rows = [
        (core["core"], cpulist(core["cpus"]), "on" if len(core["cpus"]) > 1 else "off")
        for core in document["cores"]
    ]
    return about + "\n\n" + table(("Core", "CPUs", "SMT"), rows, not args.quiet)


def _failure(args: Namespace) -> str:
    return "failed to show SMT" if args.action == "show" else f"failed to switch SMT {args.action}"


COMMANDS = (
    Command(
        "smt",
        "show or switch the host's simultaneous multithreading",
        _failure,
        _fetch,
        _show,
        _arguments,
        starts=lambda a: a.action != "show",
    ),
)
