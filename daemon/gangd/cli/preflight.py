# SPDX-License-Identifier: Apache-2.0
"""gangctl preflight: can gangs be scheduled on this host? Needs no daemon and no bus."""

from __future__ import annotations

import sys
from argparse import Namespace

from gangd.cli.command import Task, print_document
from gangd.cli.table import UNKNOWN, width
from gangd.control.text import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gangd.checks import Check, Verdict
    from gangd.cli import structs

BACKENDS = {"sched_ext": "sched_ext", "module": "gang.ko"}


def _preflight(args: Namespace) -> int:
    """0 when gangs can be scheduled here. All that is wrong is an answer, not an error: it goes to stdout."""
    from gangd import checks  # not for every command: it takes long to import

    # The verifier takes a second or two, of an emulated host twenty: say so where somebody waits.
    if sys.stderr.isatty() and not args.json:
        print("asking the kernel's verifier ...", end="\r", file=sys.stderr, flush=True)
    found = checks.of_this_host()
    if args.json:
        print_document(_document(found))
    else:
        print(shown(found, args.quiet))
    return 0 if found.schedulable else 1


def _document(found: Verdict) -> structs.Preflight:
    from gangd.cli import structs

    rows = [
        structs.Check(
            about=check.about,
            check=check.text,
            result=check.result,
            detail=check.detail or None,
            hint=check.hint or None,
        )
        for check in found.checks
    ]
    backend = found.backend if found.schedulable else None
    return structs.Preflight(schedulable=found.schedulable, backend=backend, checks=rows)


def shown(found: Verdict, quiet: bool = False) -> str:
    """Return a line for each check, as virt-host-validate has it, and the verdict; quiet: no verdict."""
    about = max(width(check.about) for check in found.checks) + 1
    text = max(width(check.text) for check in found.checks)
    lines = [
        f"  {check.about + ':':<{about}} {check.text:<{text}} : {_said(check)}" for check in found.checks
    ]
    if quiet:
        return "\n".join(lines)
    if found.schedulable and found.backend:
        return "\n".join([*lines, "", f"Gangs can be scheduled on this host, by {BACKENDS[found.backend]}."])
    return "\n".join([*lines, "", "Gangs cannot be scheduled on this host: see what has failed."])


def _said(check: Check) -> str:
    word = UNKNOWN if check.result is None else check.result.upper()
    about = printable("; ".join(part for part in (check.detail, check.hint) if part))
    return f"{word} ({about})" if about else word


COMMANDS = (
    Task(
        "preflight",
        "check whether gangs can be scheduled on this host; needs no daemon",
        lambda a: "failed to check this host",
        _preflight,
    ),
)
