# SPDX-License-Identifier: Apache-2.0
"""What can go wrong in the lab. None of these is a failing test: they mean there is no verdict."""


class LabError(Exception):
    """The lab cannot do what was asked. The message names the object, the action and the cause."""


class LostVM(LabError):
    """A VM ended, or was ended, before it gave a verdict."""

    def __init__(self, reason: str, console: list[str]) -> None:
        super().__init__(reason)
        self.reason = reason
        self.console = console

    def __str__(self) -> str:
        return "\n".join([self.reason, *(f"  | {line}" for line in self.console)])
