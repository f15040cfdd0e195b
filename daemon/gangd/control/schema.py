# SPDX-License-Identifier: Apache-2.0
"""What all documents have in common (docs/json.md). Apart from what makes them: who reads them, as gangctl
does, need not import the values they are made of."""

from __future__ import annotations

import math

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing itself is not imported for a name in annotations
    from typing import Any

    Document = dict[str, Any]
else:
    Document = dict

SCHEMA = 1


def finite(value: float | None) -> float | None:
    """JSON has no NaN and no infinity; neither is knowledge."""
    return value if value is not None and math.isfinite(value) else None


def ratio(part: float | None, whole: float | None) -> float | None:
    """part/whole, None when either is unknown or nothing was measured yet."""
    return None if part is None or not whole else finite(part / whole)
