# SPDX-License-Identifier: Apache-2.0
"""A planted fault: the kernel panics under a check."""

from __future__ import annotations

from pathlib import Path

from vm.checks.inside.check import run


def check_that_holds() -> None:
    """A check is made before the panic."""


def check_that_panics() -> None:
    """The VM goes down with it."""
    Path("/proc/sysrq-trigger").write_text("c")


if __name__ == "__main__":
    run(__file__, dict(globals()))
