# SPDX-License-Identifier: Apache-2.0
"""The two backends by name, driven as the actuator drives them, but without a daemon in between.

What the kernel does not have is said in a sentence: `Missing`.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from gangd.actuate import gang_ko, sched_ext
from gangd.actuate.backend import Backend, Loaded
from gangd.errors import GangError

MODULE = Path("/share/gang.ko")  # built for the row's kernel, out there
DEVICE = Path("/dev/gang")


class Missing(Exception):
    """A variant cannot be measured here; the message is the reason."""


def load(name: str) -> Loaded:
    """Load a backend. Raises Missing with the reason why it is not available."""
    try:
        backend = _backend(name)
        reason = backend.probe()
        if reason:
            raise Missing(reason)
        return backend.load()
    except GangError as error:
        raise Missing(error.cause)


def _backend(name: str) -> Backend:
    if name == "sched_ext":
        return sched_ext.backend()
    if MODULE.exists() and not DEVICE.exists():
        done = subprocess.run(["insmod", str(MODULE)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise Missing(f"cannot load {MODULE}: {done.stderr.strip()}")
    return gang_ko.backend()
