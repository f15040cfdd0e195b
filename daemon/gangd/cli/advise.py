# SPDX-License-Identifier: Apache-2.0
"""gangctl advise: what each running domain loses, and whether it would gain from a mark.

gangd judges, from its last two readings: a guest or a gangd that has just started has none yet, and this
command waits for them.
"""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, Namespace

from gangd.cli.command import DOMAIN_OPTION, Command, interval
from gangd.cli.table import UNKNOWN, count, seconds, share, table
from gangd.control.client import Client
from gangd.control.schema import GANG, WOULD_GAIN, Document
from gangd.control.text import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

GAINERS = 3  # the exit status while a domain that nothing chose would gain
AGAIN_SECONDS = 1.0  # from one question to the next while gangd measures
HEADERS = ("Domain", "Verdict", "Co-stop", "Run delay/s", "PAUSE/s", "LHP/s", "Because")


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--wait",
        metavar="S",
        type=interval,
        default=60.0,
        help="seconds to wait for what is not measured yet (default: 60)",
    )
    parser.add_argument(
        "--domain", dest="named", metavar="DOMAIN", action="append", default=[], help=DOMAIN_OPTION
    )
    parser.add_argument(
        "domains", metavar="DOMAIN", nargs="*", help="id, name or UUID (default: all that run)"
    )


def _fetch(client: Client, args: Namespace) -> Document:
    """Ask until gangd has measured each domain, or the time is up."""
    due = time.monotonic() + args.wait
    document = _asked(client, args)
    told = args.json or args.quiet
    while (missing := sum(map(_unmeasured, document["domains"]))) and time.monotonic() < due:
        if not told:
            domains = "1 domain" if missing == 1 else f"{missing} domains"
            print(f"gangd has not measured {domains} yet: waiting", file=sys.stderr, flush=True)
            told = True
        time.sleep(AGAIN_SECONDS)
        document = _asked(client, args)
    return document


def _asked(client: Client, args: Namespace) -> Document:
    """Return the document about the domains that were named, each once, in their order; else about all."""
    refs = [*args.domains, *args.named]
    if not refs:
        return client.advise()
    documents = [client.advise(ref) for ref in refs]
    found = {d["uuid"]: d for document in documents for d in document["domains"]}
    return documents[-1] | {"domains": [*found.values()]}


def _unmeasured(d: Document) -> bool:
    return d["verdict"] is None and d["interval_seconds"] is None


def _show(document: Document, args: Namespace) -> str:
    rows = [_row(d) for d in document["domains"]]
    if not rows:
        return "" if args.quiet else " no domain is running"
    return table(HEADERS, rows, not args.quiet)


def _row(d: Document) -> tuple[Any, ...]:
    return (
        d["name"],
        d["verdict"],
        share(d["costop_ratio"]),
        seconds(d["run_delay_seconds"]),
        count(d["pause_exits"]),
        count(d["lhp_exits"]),
        _because(d),
    )


def _because(d: Document) -> str:
    """The reason; of a gang its co-run before it, of others the counters that are not known after it."""
    reason = d["reason"] or UNKNOWN
    if d["verdict"] == GANG:
        return f"co-run {share(d['corun_ratio'])}; {reason}"
    keys = {"costop_ratio": "co-stop", "pause_exits": "PAUSE exits", "lhp_exits": "LHP exits"}
    unknown = [name for key, name in keys.items() if d[key] is None]
    if d["interval_seconds"] is None or not unknown:
        return reason
    return f"{reason}; unknown: {', '.join(unknown)}"


class Advise(Command):
    """The command, with an exit status that scripts can read."""

    def status(self, document: Document, args: Namespace) -> int:
        """3 if a domain that neither a mark nor a selector chose would gain, else 0."""
        found = [d for d in document["domains"] if d["verdict"] == WOULD_GAIN and d["chosen"] is None]
        return GAINERS if found else 0


def _failure(args: Namespace) -> str:
    names = ", ".join(f"'{printable(ref)}'" for ref in (*args.domains, *args.named))
    about = f" on domain{'s'[: ',' in names]} {names}" if names else ""
    return f"failed to advise{about}"


COMMANDS = (
    Advise(
        "advise",
        "show what running domains lose, and which would gain from a mark",
        _failure,
        _fetch,
        _show,
        _arguments,
    ),
)
