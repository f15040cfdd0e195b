# SPDX-License-Identifier: Apache-2.0
"""Errors that carry what was done, to what, and why it failed.

Every error a user can see is a `GangError`. Its two sentences are printed the
way virsh prints them, outer then inner:

    error: failed to mark domain 'vm'
    error: Domain not found: no domain with matching name 'vm'

`code` is stable text for machines (JSON output, the D-Bus error name
`org.gangd.Gangd1.Error.<code>`); messages may change, codes do not.
"""

from __future__ import annotations


class GangError(Exception):
    """A failure with a cause a user can act on.

    cause: one sentence, no trailing period needed.
    action: what was being done, e.g. "failed to mark domain 'vm'"; may be
        added by an outer layer with `during()`.
    """

    code = "Failed"

    def __init__(self, cause: str, action: str | None = None) -> None:
        super().__init__(cause)
        self.cause = cause
        self.action = action

    def during(self, action: str) -> GangError:
        """Name the action this error broke, unless an inner layer already did."""
        if self.action is None:
            self.action = action
        return self

    def lines(self) -> list[str]:
        """The error as one or two lines, outer first."""
        return [line for line in (self.action, self.cause) if line]


class NoSuchDomain(GangError):
    """No domain has the id, name or UUID that was given."""

    code = "NoSuchDomain"


class NotRunning(GangError):
    """The action needs a running domain."""

    code = "NotRunning"


class InvalidArgument(GangError):
    """A value that a caller gave cannot be used."""

    code = "InvalidArgument"


class InvalidMark(GangError):
    """The gangd metadata of a domain cannot be understood."""

    code = "InvalidMark"


class NotMarked(GangError):
    """The action needs a marked domain."""

    code = "NotMarked"


class InvalidConfig(GangError):
    """The configuration file cannot be used; the cause names file, line and key."""

    code = "InvalidConfig"


class NoLibvirt(GangError):
    """libvirt is not reachable now."""

    code = "NoLibvirt"


class NoBackend(GangError):
    """This kernel offers nothing that can schedule a gang; the cause says what is missing."""

    code = "NoBackend"


class NotSupported(GangError):
    """The kernel, or what schedules gangs in it, cannot do what is asked of it for one guest."""

    code = "NotSupported"


class NoDaemon(GangError):
    """gangctl cannot reach the gangd daemon."""

    code = "NoDaemon"


class TimedOut(GangError):
    """An awaited answer or event did not come in the time that was given."""

    code = "TimedOut"


class AccessDenied(GangError):
    """The caller or the daemon lacks the right to do this."""

    code = "AccessDenied"


class VerifyFailed(GangError):
    """A setting was written but reads back different."""

    code = "VerifyFailed"


# Failures of an operation on the host. ValueError: gangd does not understand the kernel's answer.
FAILURES = (GangError, OSError, ValueError)


def by_code(code: str) -> type[GangError]:
    """The error class with this `code`; `GangError` itself for an unknown one."""
    return next((c for c in GangError.__subclasses__() if c.code == code), GangError)
