# SPDX-License-Identifier: Apache-2.0
"""The complaints of a kernel, found in its log and in kmemleak's report."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

# Headlines. Lockdep's, RCU's and the watchdogs' begin with WARNING, BUG or INFO; "suspicious RCU usage"
# and the like come after "WARNING: ", but some kernels print the headline without it. sched_ext says of every
# scheduler that it was disabled, and why: all but one of the reasons are its own or the kernel's doing.
# The machine underneath may be the cause of real-time throttling: spinners.py judges that.
_COMPLAINT = re.compile(
    r"\b(WARNING|BUG|UBSAN|ODEBUG): |\bKASAN: |\bOops: |general protection fault|kernel BUG at"
    r"|DEBUG_LOCKS_WARN_ON|possible (recursive locking|circular locking|irq lock inversion)"
    r"|inconsistent lock state|invalid wait context|suspicious RCU usage|bad unlock balance"
    r"|\bINFO: task .* blocked for|rcu: INFO: |scheduling while atomic|sleeping function called from"
    r"|list_(add|del) corruption|refcount_t: |kmemleak: [1-9]\d* new suspected"
    r"|sched_ext: .* disabled \((?!unregistered from user space\))|sched_ext: .*runtime error"
    r"|soft lockup|hard LOCKUP|detected stalls? on|self-detected stall"
    r"|Kernel panic|segfault at|Out of memory|oom-kill"
)
# Every row's kernel says this at boot of the emulated CPU.
_HARMLESS = re.compile(r"Speculative Return Stack Overflow: WARNING: See https")
SHOWN_LINES = 60


@dataclass(frozen=True)
class Provoked:
    """Headlines that a check means to cause: a pattern, and how many at least and at most."""

    pattern: str
    least: int = 1
    most: int = 1


def _ejected(reason: str, least: int = 1, most: int = 1) -> tuple[Provoked, ...]:
    return (Provoked(rf"sched_ext: BPF scheduler .* disabled \({reason}\)", least, most),)


# By script and check. Whatever else a kernel complains of fails the boot.
PROVOKED: dict[tuple[str, str], tuple[Provoked, ...]] = {
    ("kernel", "able_ejected_by_the_kernel"): _ejected("disabled by sysrq-S"),
    ("daemon", "check_sysrq_ejects_and_gangd_comes_back"): _ejected("disabled by sysrq-S"),
    # The check itself wants the ejection, where the kernel has no deadline server for sched_ext.
    ("hostile", "check_stalled_task_ejects"): _ejected("runnable task stall", least=0),
    ("siege", "check_a_stall_ejects_and_the_guests_live"): _ejected("runnable task stall"),
    ("hostile", "check_cpu_goes_and_comes"): _ejected("unregistered from the main kernel"),
    ("storm", "check_nobody_is_lost_in_a_storm"): _ejected(
        "unregistered from the main kernel", least=0, most=1000
    ),
    # The scheduler refuses a task that has a cookie.
    ("cookies", "check_a_cookie_keeps_the_scheduler_out"): _ejected("runtime error"),
    # Once as the CPU goes; and as it comes, if the scheduler is loaded again by then.
    ("daemon", "long_cpu_hotplug"): _ejected("unregistered from the main kernel", most=2),
}


def headlines(log: str) -> list[str]:
    """Every line of a kernel log that reports something wrong."""
    return [line for line in log.splitlines() if _COMPLAINT.search(line) and not _HARMLESS.search(line)]


def unexpected(log: str, made: Iterable[tuple[str, str]]) -> list[str]:
    """Return the log's complaints no check provoked, and a line where provoked ones are too few or many."""
    left, wrong = headlines(log), []
    allowed: dict[str, list[int]] = {}
    for check in made:
        for one in PROVOKED.get(check, ()):
            limits = allowed.setdefault(one.pattern, [0, 0])
            limits[0] += one.least
            limits[1] += one.most
    for pattern, (least, most) in allowed.items():
        found = [line for line in left if re.search(pattern, line)]
        left = [line for line in left if line not in found]
        if not least <= len(found) <= most:
            wrong += [f"{len(found)} lines instead of {least} to {most} have {pattern!r}", *found]
    return [*wrong, *left]


def excerpts(log: str) -> list[str]:
    """The first complaint with what follows it; nothing if there is none."""
    lines, found = log.splitlines(), headlines(log)
    first = lines.index(found[0]) if found else len(lines)
    return lines[max(first - 2, 0) : first + SHOWN_LINES] if found else []


def leaks(report: str) -> list[str]:
    """Every object in kmemleak's report, with its backtrace."""
    parts = re.split(r"^(?=unreferenced object )", report, flags=re.MULTILINE)
    return [part.rstrip() for part in parts if part.startswith("unreferenced object ")]
