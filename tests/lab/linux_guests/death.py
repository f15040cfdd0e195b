# SPDX-License-Identifier: Apache-2.0
"""All that can be found out about a guest that died."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

TAIL = 12_000  # characters of each text
PATIENCE_SECONDS = 30  # the monitor of a guest whose CPU never leaves it does not answer


def evidence(domain: Any, log: Path) -> dict[str, Any]:
    """Return the evidence of one guest: registers, state, and the last output of guest, emulator and host."""
    name = domain.name()
    return {
        "registers": said("virsh", "qemu-monitor-command", "--hmp", name, "info registers -a"),
        "state": said("virsh", "domstate", "--reason", name).strip(),
        "vcpus": said("virsh", "vcpuinfo", name),
        "emulator": tail(Path(f"/var/log/libvirt/qemu/{name}.log")),
        "console": tail(log),
        "host": said("dmesg")[-TAIL:],
    }


def tail(file: Path) -> str:
    """The end of a text file, or why there is none."""
    try:
        return file.read_text(errors="replace")[-TAIL:]
    except OSError as error:
        return str(error)


def said(*words: str) -> str:
    """Return a command's output, complaints included."""
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, check=False, errors="replace", timeout=PATIENCE_SECONDS
        )
    except subprocess.TimeoutExpired:
        return f"no answer to `{' '.join(words)}` within {PATIENCE_SECONDS} s"
    return done.stdout + done.stderr
