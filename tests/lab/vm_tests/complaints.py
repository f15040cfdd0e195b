# SPDX-License-Identifier: Apache-2.0
"""What a kernel says when something is wrong, found in its log and in kmemleak's report."""

from __future__ import annotations

import re

# Headlines. Lockdep's, RCU's and the watchdogs' begin with WARNING, BUG or INFO; "suspicious RCU usage"
# and the like come after "WARNING: ", but some kernels print the headline without it.
_COMPLAINT = re.compile(
    r"\b(WARNING|BUG|UBSAN|ODEBUG): |\bKASAN: |\bOops: |general protection fault|kernel BUG at"
    r"|DEBUG_LOCKS_WARN_ON|possible (recursive locking|circular locking|irq lock inversion)"
    r"|inconsistent lock state|invalid wait context|suspicious RCU usage|bad unlock balance"
    r"|\bINFO: task .* blocked for|rcu: INFO: |scheduling while atomic|sleeping function called from"
    r"|list_(add|del) corruption|refcount_t: |kmemleak: [1-9]\d* new suspected"
)


def headlines(log: str) -> list[str]:
    """Every line of a kernel log that reports something wrong."""
    return [line for line in log.splitlines() if _COMPLAINT.search(line)]


def leaks(report: str) -> list[str]:
    """Every object in kmemleak's report, with its backtrace."""
    parts = re.split(r"^(?=unreferenced object )", report, flags=re.MULTILINE)
    return [part.rstrip() for part in parts if part.startswith("unreferenced object ")]
