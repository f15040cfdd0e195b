# SPDX-License-Identifier: Apache-2.0
"""Writes daemon/gangd/model/counters.py, and rows of docs/metrics.md, from gang_abi.h; test_abi.py compares.

A counter is declared in the header, with a comment that says what it counts: it is the help of its metric.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEADER = ROOT / "kernel-helper/include/gang_abi.h"
MODULE = ROOT / "daemon/gangd/model/counters.py"
PAGE = ROOT / "docs/metrics.md"
FIELD = re.compile(r"/\*((?:[^*]|\*(?!/))*)\*/\s*__u64 (\w+);")
HEAD = '''\
# SPDX-License-Identifier: Apache-2.0
"""The counters of gang_abi.h, and what each of them counts. Pure.

Written by `make counters`: change the comments of the header, not this file.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GangStats:
    """The counters of one gang (struct gang_stats); a time of the kernel in ns is one in seconds here."""

'''
TABLES = {
    "GANG": ("gang_stats", "A gang's counters"),
    "SCHEDULER": ("gang_sched_stats", "The scheduler's own account, but for the costs that it samples"),
    "MODULE": ("gang_ioc_counters", "The account of gang.ko"),
}


def fields(struct: str) -> dict[str, str]:
    """Return what each counter of a struct counts, by its name in Python: of a time that in seconds."""
    text = HEADER.read_text()
    body = text.partition(f"struct {struct} {{")[2].partition("\n};")[0]
    found = {name: " ".join(comment.replace("*", " ").split()) for comment, name in FIELD.findall(body)}
    costs = {name.removesuffix("_samples") + "_ns" for name in re.findall(r"\w+_samples", body)}
    return {re.sub("_ns$", "_seconds", name): said for name, said in found.items() if name not in costs}


def module() -> str:
    """Return the text of the Python module."""
    gang = fields("gang_stats")
    lines = [HEAD + "\n".join(f"    {name}: {_type(name)}" for name in gang), "", ""]
    for table, (struct, head) in TABLES.items():
        lines += [f"# {head} (struct {struct}): what is counted.", f"{table} = {{"]
        lines += [f'    "{name}": "{said}",' for name, said in fields(struct).items()]
        lines += ["}"]
    return "\n".join(lines) + "\n"


def _type(name: str) -> str:
    return "float" if name.endswith("_seconds") else "int"


def page(text: str) -> str:
    """Return docs/metrics.md with the meanings of the counters as the header has them."""
    from gangd.export.collector import GANG, SCHEDULER

    said = {f"gangd_scheduler_{name}_total": text for name, text in SCHEDULER.items()}
    said |= {f"gangd_gang_{name}_total": text for name, (_, text) in GANG.items()}

    def row(found: re.Match[str]) -> str:
        return f"{found[1]} {said[found[2]]} |" if found[2] in said else found[0]

    return re.sub(r"^(\| `(\w+)` \| [^|]* \| counter \|) .* \|$", row, text, flags=re.MULTILINE)


if __name__ == "__main__":
    MODULE.write_text(module())
    PAGE.write_text(page(PAGE.read_text()))
