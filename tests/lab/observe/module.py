# SPDX-License-Identifier: Apache-2.0
"""gang.ko in a VM beside gangd's service, as gangd-dkms has it: what schedules without sched_ext."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

FILE, UNIT = "gang.ko", "gangd-module.conf"  # in the share
DROP_IN = Path("/etc/systemd/system/gangd.service.d")


def load(share: Path) -> None:
    """Load the module, and let gangd use it. (depmod, for modprobe, takes minutes here.)"""
    subprocess.run(["insmod", share / FILE], check=True)
    allow(share)


def allow(share: Path) -> None:
    """Give gangd's unit the rights that it needs beside the module."""
    DROP_IN.mkdir(parents=True, exist_ok=True)
    shutil.copy(share / UNIT, DROP_IN / "module.conf")
    subprocess.run(["systemctl", "daemon-reload"], check=True)
