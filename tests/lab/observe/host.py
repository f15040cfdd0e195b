# SPDX-License-Identifier: Apache-2.0
"""A real host on which something is to be measured. It imports nothing that a bare host lacks."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

KVM = "/dev/kvm (hardware virtualization)"


def missing(paths: Mapping[str, str], programs: Sequence[str]) -> str | None:
    """Return the first of these paths (each with its words), programs, and libvirt that is not here."""
    for path, text in paths.items():
        if not Path(path).exists():
            return text
    for name in programs:
        if not shutil.which(name):
            return name
    return None if importlib.util.find_spec("libvirt") else "libvirt for Python (python3-libvirt)"
