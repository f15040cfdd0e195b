# SPDX-License-Identifier: Apache-2.0
"""The documents that gangctl makes itself, as types (see gangd.control.structs)."""

from __future__ import annotations

from gangd.control.structs import Kind, Part, Whole


class Difference(Part):
    """A measure of an arm, and its difference to `off`."""

    n: int
    mean: float | None
    difference: float | None
    low: float | None
    high: float | None


class Arm(Part):
    """A way to schedule the domain."""

    arm: str
    pause_per_cpu_second: Difference
    wait_per_cpu_second: Difference


class Check(Part):
    """A check of the host."""

    about: str
    check: str
    result: str | None
    detail: str | None
    hint: str | None


class Compare(Whole):
    """`gangctl compare`"""

    domain: str
    uuid: str
    arms: list[Arm]


class Events(Whole):
    """`gangctl event --list`"""

    events: list[Kind]


class Preflight(Whole):
    """`gangctl preflight`"""

    schedulable: bool
    backend: str | None
    checks: list[Check]


class ConfigCheck(Whole):
    """`gangctl config-check`"""

    file: str
    exists: bool
    valid: bool


class Traced(Part):
    """A domain in a trace: seconds of its vCPUs, and counts."""

    uuid: str
    name: str
    run_seconds: float
    wait_seconds: float
    corun_ratio: float | None
    turns: int
    pause_exits: int
    lhp_exits: int
    yields: int


class TracedRun(Part):
    """A vCPU without a break on a CPU; times are microseconds since the trace began."""

    cpu: int
    begin: float
    end: float
    guest: int
    vcpu: int


class TracedSpan(Part):
    """A vCPU that waits for a CPU, or a turn, which is of no vCPU."""

    begin: float
    end: float
    guest: int
    vcpu: int | None


class TracedMoment(Part):
    """A PAUSE exit or a directed yield."""

    time: float
    cpu: int
    guest: int
    vcpu: int
    lhp: bool


class Trace(Whole):
    """`gangctl trace`"""

    seconds: float
    lost: int
    missing: list[str]
    domains: list[Traced]
    runs: list[TracedRun]
    waits: list[TracedSpan]
    turns: list[TracedSpan]
    pauses: list[TracedMoment]
    yields: list[TracedMoment]


class Failure(Part):
    """The reason why a command failed."""

    code: str
    action: str | None
    message: str


class Error(Part):
    """A command that failed"""

    error: Failure
