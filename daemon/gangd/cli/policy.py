# SPDX-License-Identifier: Apache-2.0
"""Commands about policies: what can be asked for with a mark."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from gangd.cli.command import Command
from gangd.cli.table import UNKNOWN, fields, table
from gangd.control.client import Client
from gangd.control.schema import Document
from gangd.control.text import printable
from gangd.errors import InvalidArgument


def _show_list(document: Document, args: Namespace) -> str:
    rows = [(p["policy"], p["domains"], p["summary"]) for p in document["policies"]]
    if not rows:
        return "" if args.quiet else " no policy is installed"
    return table(("Policy", "Domains", "Summary"), rows, not args.quiet)


def _one(client: Client, args: Namespace) -> Document:
    """The list with the one that was asked for. Raises InvalidArgument naming those there are."""
    document = client.policies()
    found = [p for p in document["policies"] if p["policy"] == args.policy]
    if not found:
        known = ", ".join(p["policy"] for p in document["policies"]) or "none"
        raise InvalidArgument(f"no policy is called '{args.policy}' (installed: {known})")
    return {**document, "policies": found}


def _show_one(document: Document, args: Namespace) -> str:
    (policy,) = document["policies"]
    about = fields(
        [("Policy", policy["policy"]), ("Domains", policy["domains"]), ("From", policy["package"] or UNKNOWN)]
    )
    return about + "\n\n" + "\n".join(printable(line) for line in policy["text"].splitlines())


def _policy_argument(parser: ArgumentParser) -> None:
    parser.add_argument("policy", metavar="POLICY", help="its name, as policy-list shows it")


COMMANDS = (
    Command(
        "policy-list",
        "list the installed policies",
        lambda a: "failed to list the policies",
        lambda client, a: client.policies(),
        _show_list,
    ),
    Command(
        "policy-show",
        "show what a policy does",
        lambda a: f"failed to show policy '{a.policy}'",
        _one,
        _show_one,
        _policy_argument,
    ),
)
