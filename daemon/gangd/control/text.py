# SPDX-License-Identifier: Apache-2.0
"""Text that a stranger chose, made safe to show.

A domain name, its metadata and anything a D-Bus caller sends are attacker
controlled: they may hold terminal escapes, line breaks or text that runs
backwards. What cannot be shown as it is becomes `\\xNN` per byte, as virsh does
it (tools/vsh-table.c, vshTableSafeEncode).
"""

from __future__ import annotations


def printable(text: str) -> str:
    """`text` on one line, with nothing in it that a terminal would act on.

    Doing it twice changes nothing, so that every border may do it; the price is
    that a literal `\\x` looks like an escape (JSON output tells them apart).
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escaped(char) for char in text)


def shortened(text: str, limit: int) -> str:
    """`printable(text)`, cut to `limit` characters with a mark where it was cut."""
    safe = printable(text[: limit + 1])
    return safe if len(text) <= limit and len(safe) <= limit else safe[: limit - 3] + "..."


def _escaped(char: str) -> str:
    # U+DC80..U+DCFF stand for single bytes that were not UTF-8 (PEP 383).
    handler = "surrogateescape" if "\udc80" <= char <= "\udcff" else "surrogatepass"
    return "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", handler))
