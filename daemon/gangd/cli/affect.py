# SPDX-License-Identifier: Apache-2.0
"""The options --config, --live and --current, with virsh's meaning."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from gangd.cli.command import exclusive
from gangd.model.affect import Affect


def affect_arguments(parser: ArgumentParser) -> None:
    """Add the options that name the state of a domain to change."""
    parser.add_argument("--config", action="store_true", help="affect its next start")
    parser.add_argument("--live", action="store_true", help="affect it while it runs")
    parser.add_argument("--current", action="store_true", help="as --live if it runs, else as --config")


def affect(args: Namespace) -> Affect | None:
    """Return the states that the options name, None if they name none. Raises InvalidArgument."""
    for other in ("live", "config"):
        exclusive(args, "current", other)
    return Affect(args.config, args.live) if args.current or args.config or args.live else None


def later(args: Namespace) -> bool:
    """A running domain is not concerned before its next start."""
    return bool(args.config and not args.live)
