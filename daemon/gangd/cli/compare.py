# SPDX-License-Identifier: Apache-2.0
"""gangctl compare: a domain off, apart and as a gang, in turn, and what each costs.

Every round has each arm once, in an order drawn by lot, so that what changes slowly on the host does the same
to all of them, and what changes with the round's order does to none in particular. Differences are taken
within a round. The mark is changed of the running domain alone: its configuration keeps what it has,
whatever becomes of this program.
"""

from __future__ import annotations

import math
import signal
import sys
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Sequence

from gangd.cli.command import Task, connected, domain_argument, interval, print_document
from gangd.cli.rates import rates
from gangd.cli.table import table
from gangd.control.client import Client
from gangd.control.schema import Document
from gangd.control.text import printable
from gangd.errors import GangError, InvalidArgument, NotRunning
from gangd.model.affect import Affect

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gangd.cli.structs import Compare, Difference

ARMS = ("off", "balance", "relaxed")
LIVE = Affect(live=True)
SETTLE_SECONDS = 1.0  # after a change: what was queued before it has run
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
MEASURES = {"pause_per_cpu_second": "PAUSE/CPU s", "wait_per_cpu_second": "Wait/CPU s"}
# Quantile 0.975 of Student's distribution, by degrees of freedom from 1; from 31 on by its expansion.
T975 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145),
    *(2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048),
    *(2.045, 2.042),
)


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--seconds",
        metavar="N",
        type=interval,
        default=10.0,
        help="of one reading (default: 10)",
    )
    parser.add_argument(
        "--rounds", metavar="N", type=_rounds, default=5, help="of all arms (default: 5, at least 2)"
    )
    domain_argument(parser)


def _rounds(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 2 <= int(text) <= 1000):
        raise ArgumentTypeError(f"'{printable(text)}' is not a number from 2 to 1000")
    return int(text)


class Marked:
    """The mark of a running domain, changed for a while: at the end of this context it is what it was.

    Raises NotRunning, and InvalidArgument for a domain whose mark could not be put back as it was.
    """

    def __init__(self, client: Client, ref: str) -> None:
        self._client = client
        found = client.dominfo(ref)["domain"]
        self.uuid: str = found["uuid"]
        self._marked: bool = found["marked"]
        self._policy: str | None = found["policy"]
        if found["id"] is None:
            raise NotRunning("domain is not running")
        if found["schedule"] in ("undone", "invalid mark"):
            raise InvalidArgument(f"gangd leaves it alone: {found['schedule_reason']}")
        if self._marked and self._policy is None:
            raise InvalidArgument(
                "its mark names no policy, so that it could not be restored (gangctl set --policy)"
            )

    def __enter__(self) -> Marked:
        """From now on every signal that ends a program ends this like Ctrl-C."""
        self._handlers = {number: signal.signal(number, signal.default_int_handler) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        """Another Ctrl-C does not leave it half done. A change that Ctrl-C ended may not be made yet: the
        connection waits for its answer before it sends what is asked here."""
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        try:
            if self._marked:
                self._client.set(self.uuid, self._policy, affect=LIVE)
            elif self._client.dominfo(self.uuid)["domain"]["marked"]:
                self._client.unmark(self.uuid, LIVE)
        finally:
            for number, handler in self._handlers.items():
                signal.signal(number, handler)

    def arm(self, name: str) -> None:
        """Have it scheduled so. Raises GangError where that cannot be."""
        change = self._client.set if self._marked else self._client.mark
        found = change(self.uuid, name, affect=LIVE)["domain"]
        if found["schedule"] != name:
            raise GangError(f"{name} cannot be compared: it is {found['schedule']}")


def _compare(args: Namespace) -> int:
    from random import shuffle

    client = connected(args, start=True)
    say = _silent if args.json or args.quiet else _said
    readings: dict[str, list[Document]] = {arm: [] for arm in ARMS}
    with Marked(client, args.domain) as marked:
        for number in range(args.rounds):
            arms = list(ARMS)
            shuffle(arms)
            for arm in arms:
                say(f"round {number + 1} of {args.rounds}: {arm}, {args.seconds:g} s")
                marked.arm(arm)
                time.sleep(SETTLE_SECONDS)
                readings[arm].append(_reading(client, marked.uuid, args.seconds))
    document = compared(args.domain, marked.uuid, readings)
    if args.json:
        print_document(document)
    else:
        print(shown(document, not args.quiet))
    return 0


def _said(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _silent(line: str) -> None:
    """Print no progress: the caller asked for the result alone."""


def _reading(client: Client, uuid: str, seconds: float) -> Document:
    """Measure a domain for so many seconds: the value of each measure, None = unknown."""
    before = client.stats(uuid)
    time.sleep(seconds)
    (domain,) = rates(before, client.stats(uuid))["domains"]
    cpu, pause, delay = (
        _sum([vcpu[key] for vcpu in domain["vcpus"]])
        for key in ("cpu_seconds", "pause_exits", "run_delay_seconds")
    )
    return {"pause_per_cpu_second": _per(pause, cpu), "wait_per_cpu_second": _per(delay, cpu)}


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def _per(part: float | None, cpu: float | None) -> float | None:
    return None if part is None or not cpu else part / cpu


def compared(name: str, uuid: str, readings: dict[str, list[Document]]) -> Compare:
    """Return each arm's mean by measure, and the mean difference to `off` with its 95 % interval. Pure."""
    from gangd.cli.structs import Arm, Compare  # not for every command: msgspec takes long to import

    arms = [
        Arm(arm=arm, **{measure: _measure(readings, arm, measure) for measure in MEASURES})
        for arm in readings
    ]
    return Compare(domain=name, uuid=uuid, arms=arms)


def _measure(readings: dict[str, list[Document]], arm: str, measure: str) -> Difference:
    from gangd.cli.structs import Difference

    values = [found[measure] for found in readings[arm]]
    known = [value for value in values if value is not None]
    against = [found[measure] for found in readings["off"]]
    pairs = zip(values, against, strict=True)
    differences = [a - b for a, b in pairs if a is not None and b is not None] if arm != "off" else []
    mean, half = interval95(differences)
    low, high = (None, None) if mean is None or half is None else (mean - half, mean + half)
    average = sum(known) / len(known) if known else None
    return Difference(n=len(known), mean=average, difference=mean, low=low, high=high)


def interval95(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Mean, and half the width of its 95 % interval by Student's distribution; None = of too few values."""
    n = len(values)
    if not n:
        return None, None
    mean = sum(values) / n
    if n == 1:
        return mean, None
    variance = sum((value - mean) ** 2 for value in values) / (n - 1)
    t = T975[n - 2] if n - 2 < len(T975) else 1.96 + 2.4 / (n - 1)
    return mean, t * math.sqrt(variance / n)


def shown(document: Compare, header: bool = True) -> str:
    """A table for each measure."""
    parts = []
    for measure, title in MEASURES.items():
        rows = [(arm.arm, *_cells(getattr(arm, measure))) for arm in document.arms]
        parts.append(table(("Arm", "N", title, "To off", "95 % interval"), rows, header))
    return "\n\n".join(parts)


def _cells(found: Difference) -> tuple[object, ...]:
    mean, difference, low, high = (
        None if value is None else f"{value:.4g}"
        for value in (found.mean, found.difference, found.low, found.high)
    )
    return found.n, mean, difference, None if low is None else f"{low} to {high}"


COMMANDS = (
    Task(
        "compare",
        "measure a domain off, apart and as a gang, in turn",
        lambda a: f"failed to compare the ways to schedule domain '{printable(a.domain)}'",
        _compare,
        _arguments,
    ),
)
