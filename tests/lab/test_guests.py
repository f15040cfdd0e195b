# SPDX-License-Identifier: Apache-2.0
"""gangd and libvirt guests on a whole system: bad input, gangs and what is measured of them, guests that come
and go, a real-time task beside them, a thousand marks, weights, `balance`, and the daemon's own life. Never
skipped.

The checks are in the scripts of vm_tests named here and run inside the VM, in their order. All of them on
6.18; on the other kernels that have sched_ext, and where tasks are pushed, those that depend on the kernel.

The boots run in virtual time: other users of the machine do not matter. Two of them are in the default run,
so that they can go side by side.
"""

from pathlib import Path

import pytest
from labkit.qemu import Clock
from vm_tests import outside

pytestmark = pytest.mark.lab

DEFAULT = ("6.18", "6.18 daemon")  # the other boots are `make test-long`
SOME = ("gang", "lifecycle")
SCRIPTS = {
    "6.18": SOME,
    "6.18 daemon": ("badinput", "weights", "balance", "daemon"),  # the last one configures gangd
    "6.18 siege": ("lifecycle", "siege", "marks"),
    "7.2": SOME,
    "7.2-bpo": SOME,
}
TIMEOUT = 3600


def marks(boot: str) -> list[pytest.MarkDecorator]:
    """Return the marks of a boot's tests."""
    return [outside.together("guests", boot), *([] if boot in DEFAULT else [pytest.mark.long])]


CASES = [
    pytest.param(row, script, name, id=f"{row}-{script}-{name}", marks=marks(row))
    for row, scripts in SCRIPTS.items()
    for script in scripts
    for name in outside.checks(script, ("check_",) if row in DEFAULT else ("check_", "long_"))
]
BOOTS = [pytest.param(row, id=row, marks=marks(row)) for row in SCRIPTS]


@pytest.fixture
def booted(request: pytest.FixtureRequest, boots: outside.Boots) -> outside.Boot:
    """The results of a boot: a row's, or one more of the same row."""
    name: str = request.param
    row = name.split()[0]

    def boot(share: Path) -> outside.Boot:
        told = {} if name in DEFAULT else {"GANGD_LONG": "1"}
        return outside.boot(row, SCRIPTS[name], share, timeout=TIMEOUT, environment=told, clock=Clock.VIRTUAL)

    return boots("guests", name, boot)


@pytest.mark.parametrize(("booted", "script", "name"), CASES, indirect=["booted"])
def test_guests(booted: outside.Boot, script: str, name: str) -> None:
    """The sentence is the docstring of the check."""
    booted.require(script, name)


@pytest.mark.parametrize("booted", BOOTS, indirect=True)
def test_the_kernel_was_quiet(booted: outside.Boot) -> None:
    """Nothing is in its log that no check provoked, and every script came to its end."""
    booted.require_quiet()
