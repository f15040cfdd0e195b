# SPDX-License-Identifier: Apache-2.0
"""gangctl stats --since mark: one domain before its mark and since, as a table."""

from __future__ import annotations

from gangd.cli.table import UNKNOWN, count, share, table, units
from gangd.control.schema import Document
from gangd.control.text import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

HEADERS = ("Measure", "Before", "Since the mark")


def _exact(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.2f}"


MEASURES: tuple[tuple[str, str, Callable[[float | None], str]], ...] = (
    ("Co-run", "corun_ratio", share),
    ("Co-stop", "costop_ratio", share),
    ("Run delay", "run_delay_ratio", share),
    ("LHP/CPU s", "lhp_per_cpu_second", count),
    ("PAUSE/CPU s", "pause_per_cpu_second", count),
    ("Switches/CPU s", "switches_per_cpu_second", count),
    ("CPUs", "cpus", _exact),
    ("Apart", "apart_ratio", share),
)


def show(document: Document, header: bool) -> str:
    """Return the measures; above them with `header` which times they are of."""
    before, since = document["before"], document["since"]
    rows = [(name, text(before[key]), text(since[key])) for name, key, text in MEASURES]
    told = f" {_times(document)}\n\n" if header else ""
    return told + table(HEADERS, rows, header)


def _times(document: Document) -> str:
    policy, old = printable(document["policy"]), document["policy_before"]
    ago = f"{duration(document['since']['seconds'])} ago"
    done = f"marked {ago}, policy {policy}"
    if old is not None:
        done = f"policy changed {ago} from {printable(old)} to {policy}"
    life = duration(document["before"]["seconds"])
    return f"'{printable(document['name'])}': {done}; before: {life} of its life"


def duration(value: float | None) -> str:
    """A time in the two largest units that matter: 45 s, 12 min, 3 h 5 min, 2 d 4 h."""
    if value is None:
        return UNKNOWN
    found = list(zip(units(value), ("d", "h", "min", "s"), strict=True))
    first = next((i for i, (number, _) in enumerate(found) if number), 3)
    told = found[first : first + 2] if first < 2 else found[first : first + 1]
    return " ".join(f"{number} {unit}" for number, unit in told if number or len(told) == 1)
