# SPDX-License-Identifier: Apache-2.0
"""The parts that all documents share (docs/json.md). They are apart from the code that makes documents, so
that a reader such as gangctl need not import the values that documents are made of."""

from __future__ import annotations

import math

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing itself is not imported for a name in annotations
    from typing import Any

    Document = dict[str, Any]
else:
    Document = dict

SCHEMA = 1
UNASKED = "not asked yet"  # the reason of a part until gangd has looked (loops.py)
# The ratios of a gang's counters: name, part, whole.
SHARES = (
    ("whole_ratio", "whole", "turns"),
    ("seats_ratio", "seats_had", "seats_wanted"),
    ("apart_ratio", "apart_seconds", "run_seconds"),
    ("borrowed_ratio", "borrowed_seconds", "run_seconds"),
    ("skew_mean_seconds", "skew_seconds", "whole"),
)

# gangctl advise gives a domain one of these verdicts, and sorts its table by them.
WOULD_GAIN, CANNOT, WOULD_NOT, GANG = "would gain", "cannot", "would not", "is a gang"
VERDICTS = (WOULD_GAIN, CANNOT, WOULD_NOT, GANG)

# All kinds of events, in the order of gangctl.md.
EVENTS = (
    "marked",
    "unmarked",
    "scheduled",
    "waiting",
    "refused",
    "undone",
    "invalid-mark",
    "released",
    "backend-loaded",
    "backend-unloaded",
    "backend-ejected",
    "libvirt-found",
    "libvirt-lost",
)


def finite(value: float | None) -> float | None:
    """JSON has no NaN and no infinity; neither is knowledge."""
    return value if value is not None and math.isfinite(value) else None


def ratio(part: float | None, whole: float | None) -> float | None:
    """part/whole, None when either is unknown or nothing was measured yet."""
    return None if part is None or not whole else finite(part / whole)


def shares(gang: Document) -> Document:
    """SHARES of a gang's counters, or of their growth."""
    return {name: ratio(gang[part], gang[whole]) for name, part, whole in SHARES}
