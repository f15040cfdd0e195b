# SPDX-License-Identifier: Apache-2.0
"""The command profile-list: what a mark may name beside policies, and the operator's selectors."""

from __future__ import annotations

from argparse import Namespace

from gangd.cli.command import Command
from gangd.cli.table import table
from gangd.control.schema import Document


def _show(document: Document, args: Namespace) -> str:
    header = not args.quiet
    profiles = [
        (p["profile"], p["policy"], p["weight"], p["domains"], p["source"]) for p in document["profiles"]
    ]
    parts = [table(("Profile", "Policy", "Weight", "Domains", "From"), profiles, header)]
    selectors = [(s["text"], s["chooses"], s["domains"], s["source"]) for s in document["selectors"]]
    if selectors:
        parts.append(table(("Selects", "Chooses", "Domains", "From"), selectors, header))
    return "\n\n".join(parts)


COMMANDS = (
    Command(
        "profile-list",
        "list the profiles, and which guests are selected without a mark",
        lambda a: "failed to list the profiles",
        lambda client, a: client.profiles(),
        _show,
    ),
)
