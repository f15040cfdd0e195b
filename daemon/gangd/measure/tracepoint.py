# SPDX-License-Identifier: Apache-2.0
"""Where the fields of a classic tracepoint's record stand, by the kernel's own description in tracefs.

Not by the BTF of the module that has the tracepoint: modules' BTF takes CAP_SYS_ADMIN to get at.
Documentation/trace/events.rst, "Event formats".
"""

from __future__ import annotations

import re
from pathlib import Path

_FIELD = re.compile(r"^\tfield:[^;]*?(\w+);\s*offset:(\d+);\s*size:(\d+);", re.MULTILINE)
U32 = "4"  # bytes


def u32_offsets(root: Path, event: str, *names: str) -> dict[str, int] | None:
    """Bytes from the start of `event`'s record ("kvm/kvm_exit") to each of these fields.

    None where there is no such tracepoint, or one of them is not a field of 32 bits.
    """
    try:
        text = (root / "sys/kernel/tracing/events" / event / "format").read_text()
    except OSError:
        return None
    found = {name: int(offset) for name, offset, size in _FIELD.findall(text) if size == U32}
    return {name: found[name] for name in names} if set(names) <= set(found) else None
