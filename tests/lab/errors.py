# SPDX-License-Identifier: Apache-2.0
"""The errors of the lab. None of these is a failing test: they mean there is no verdict."""

import enum


class LabError(Exception):
    """The lab cannot do what was asked. The message names the object, the action and the cause."""


class Cause(enum.Enum):
    """The cause why a VM gave no verdict, as far as it can be told from outside."""

    EMULATOR_DIED = "the emulator ended by itself"
    NOT_STARTED = "the command was never started"
    PANICKED = "the kernel panicked"
    HUNG = "the command did not end"
    WENT_DOWN = "the VM went down"

    @property
    def is_the_labs(self) -> bool:
        """True if nothing that ran in the VM can be to blame: only then another boot means anything."""
        return self in (Cause.EMULATOR_DIED, Cause.NOT_STARTED)


class LostVM(LabError):
    """A VM ended, or was ended, before it gave a verdict."""

    def __init__(self, cause: Cause, reason: str, console: list[str]) -> None:
        super().__init__(reason)
        self.cause = cause
        self.reason = reason
        self.console = console

    def __str__(self) -> str:
        return "\n".join([self.reason, *(f"  | {line}" for line in self.console)])
