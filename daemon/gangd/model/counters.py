# SPDX-License-Identifier: Apache-2.0
"""The counters of gang_abi.h, and what each of them counts. Pure.

Written by `make counters`: change the comments of the header, not this file.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GangStats:
    """The counters of one gang (struct gang_stats); a time of the kernel in ns is one in seconds here."""

    turns: int
    whole: int
    ended_early: int
    seats_wanted: int
    seats_had: int
    run_seconds: float
    apart_seconds: float
    borrowed_seconds: float
    throttled_seconds: float
    forced_idle_seconds: float
    yields: int
    yields_hit: int
    skew_seconds: float
    skew_max_seconds: float


# A gang's counters (struct gang_stats): what is counted.
GANG = {
    "turns": "turns opened for the gang; gang.ko counts its slots here",
    "whole": "turns in which all runnable members were on CPUs at once",
    "ended_early": "turns in which no member was runnable any more",
    "seats_wanted": "members that waited when a turn was opened",
    "seats_had": "members among these that came on CPU within the turn",
    "run_seconds": "CPU time of the members, added up",
    "apart_seconds": "part of that CPU time outside the gang's turns; it needs none where nobody waits",
    "borrowed_seconds": "part of that CPU time on CPUs that turns took from tasks that were owed them",
    "throttled_seconds": "time in which cpu.max throttled members, added up",
    "forced_idle_seconds": "CPU time of idle halves of cores that a strict gang kept from other tasks",
    "yields": "directed yields of members (PLE)",
    "yields_hit": "directed yields of members whose sibling ran next",
    "skew_seconds": "time from the start of a turn to its last member on CPU, added up over whole turns",
    "skew_max_seconds": "the longest time from the start of a turn to its last member on CPU",
}
# The scheduler's own account, but for the costs that it samples (struct gang_sched_stats): what is counted.
SCHEDULER = {
    "turns": "turns opened for gangs",
    "seats": "siblings moved to a CPU for a turn",
    "lent": "CPUs that turns took from tasks that were owed them",
    "preempts": "woken tasks that took a CPU",
    "hands": "woken tasks to which their waker handed its CPU over",
    "yields": "directed yields of a spinning member to a sibling (PLE)",
    "yields_hit": "directed yields whose sibling ran next",
    "moves": "gangs that moved to another cache",
    "rescued": "tasks that waited too long, and that the scheduler brought forward",
    "rewoken": "CPUs that the scheduler woke, since they idled beside a waiting task",
    "overtaken": "CPUs whose chosen task another CPU took first, and that chose again",
    "core_waits": "CPUs kept idle until their core was free of foreign guests (strict)",
    "core_shared": "times that a guest started on a core beside a strict gang's member nevertheless",
    "cookies_refused": "times that a process asked for core scheduling, and the scheduler refused it",
    "enqueues": "tasks queued",
    "dispatches": "tasks dispatched",
    "stops": "tasks taken off their CPU",
}
# The account of gang.ko (struct gang_ioc_counters): what is counted.
MODULE = {
    "slots": "slots that gang.ko opened for gangs",
    "other_slots": "slots that gang.ko opened for everything that is not a gang",
    "gaps": "part of these that gang.ko opened so that real-time throttling has no cause",
    "kicks": "CPUs that gang.ko interrupted because they were out of place",
    "boosts": "threads that gang.ko raised",
    "unboosts": "threads that gang.ko put back",
    "exits": "members that ended",
    "ways": "times that a member which gang.ko boosts gave way to a bound thread of the kernel",
    "gangs": "gangs that are set up now",
    "members": "members of all gangs, now",
}
