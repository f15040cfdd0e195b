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
    """One way to schedule the domain."""

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


class Failure(Part):
    """The reason why a command failed."""

    code: str
    action: str | None
    message: str


class Error(Part):
    """A command that failed"""

    error: Failure
