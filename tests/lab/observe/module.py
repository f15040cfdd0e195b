# SPDX-License-Identifier: Apache-2.0
"""gang.ko in a VM, as the package gangd-dkms installs it: what schedules without sched_ext."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

FILE, UNIT = "gang.ko", "gangd-module.conf"  # in the share
DROP_IN = Path("/etc/systemd/system/gangd.service.d")


def install(share: Path) -> None:
    """Put the module where modprobe finds it, and give gangd's unit the rights that it needs beside it."""
    updates = Path("/lib/modules", os.uname().release, "updates")
    updates.mkdir(exist_ok=True)
    shutil.copy(share / FILE, updates)
    subprocess.run(["depmod", "-a"], check=True)
    DROP_IN.mkdir(parents=True, exist_ok=True)
    shutil.copy(share / UNIT, DROP_IN / "module.conf")
    subprocess.run(["systemctl", "daemon-reload"], check=True)
