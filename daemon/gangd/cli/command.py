# SPDX-License-Identifier: Apache-2.0
"""What a gangctl command is: one document fetched, and one way to show it."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass

from gangd.control.client import Client
from gangd.control.documents import Document


def no_arguments(parser: ArgumentParser) -> None:
    """For commands that take none of their own."""


@dataclass(frozen=True)
class Command:
    """failure: the first line of its errors, from the arguments.
    fetch: asks the daemon. show: the document as text; both `--json` and tests skip it."""

    name: str
    summary: str
    failure: Callable[[Namespace], str]
    fetch: Callable[[Client, Namespace], Document]
    show: Callable[[Document, Namespace], str]
    arguments: Callable[[ArgumentParser], None] = no_arguments


def domain_argument(parser: ArgumentParser) -> None:
    """The domain a command is about."""
    parser.add_argument("domain", metavar="DOMAIN", help="id, name or UUID")


def optional_domain(parser: ArgumentParser) -> None:
    """The domain a command may be limited to."""
    parser.add_argument("domain", metavar="DOMAIN", nargs="?", help="id, name or UUID")
