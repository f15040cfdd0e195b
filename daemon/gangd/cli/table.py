# SPDX-License-Identifier: Apache-2.0
"""Tables the way virsh prints them, and the words for values.

A leading space, columns padded to their width plus three, one dashed rule under
the header (tools/vsh-table.c). Width is counted in terminal cells.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence

from gangd.control.text import printable

UNKNOWN = "-"
GAP = 3
_ASCII = str.maketrans("█▉▊▋▌▍▎▏░·", "#####   .-")  # for terminals that have no blocks


def width(text: str) -> int:
    """Terminal cells that `text` takes: East Asian wide ones two, combining ones none."""
    return sum(_cells(char) for char in text)


def _cells(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def table(headers: Sequence[str], rows: Iterable[Sequence[object]], header: bool = True) -> str:
    """A virsh table. Cells may hold anything; None is shown as `-`."""
    cells = [[_cell(value) for value in row] for row in rows]
    lines = [list(headers), *cells] if header else cells
    widths = [max(map(width, column), default=0) for column in zip(*lines, strict=True)]
    text = [_row(line, widths) for line in lines]
    if header:
        text.insert(1, "-" * sum(w + GAP for w in widths))
    return "\n".join(text)


def fields(pairs: Iterable[tuple[str, object]]) -> str:
    """`Name:   value` lines with the values aligned, as virsh dominfo prints them."""
    known = [(f"{name}:", _cell(value)) for name, value in pairs]
    column = max((width(name) for name, _ in known), default=0) + GAP
    return "\n".join(name + " " * (column - width(name)) + value for name, value in known)


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (c + " " * (w - width(c) + GAP) for c, w in zip(cells, widths, strict=True))
    return (" " + "".join(padded)).rstrip()


def _cell(value: object) -> str:
    return UNKNOWN if value is None or value == "" else printable(str(value))


def seconds(value: float | None) -> str:
    """A time, three digits that matter: 12.3 s, 4.56 ms."""
    if value is None:
        return UNKNOWN
    if value == 0:
        return "0 s"
    for factor, unit in ((1, "s"), (1e3, "ms")):
        if abs(value) * factor >= 1:
            return f"{value * factor:,.{2 if abs(value) * factor < 10 else 1}f} {unit}"
    return f"{value * 1e6:.1f} us"


def bar(value: float | None, cells: int = 10) -> str:
    """A ratio of at most 1 as a bar in front of its per cent."""
    if value is None:
        return UNKNOWN
    eighths = round(min(max(value, 0.0), 1.0) * cells * 8)
    whole, rest = divmod(eighths, 8)
    drawn = "█" * whole + (" ▏▎▍▌▋▊▉"[rest] if rest else "")
    return f"{drawn:<{cells}} {share(value)}"


def typed(text: str, encoding: str | None) -> str:
    """`text` with blocks as letters, where a terminal has no blocks."""
    try:
        text.encode(encoding or "ascii")
    except UnicodeEncodeError:
        return text.translate(_ASCII)
    return text


def units(value: float) -> tuple[int, int, int, int]:
    """Days, hours, minutes and seconds of a time in seconds."""
    minutes, secs = divmod(int(value), 60)
    hours, minutes = divmod(minutes, 60)
    return *divmod(hours, 24), minutes, secs


def share(value: float | None) -> str:
    """A ratio as per cent."""
    return UNKNOWN if value is None else f"{value * 100:.1f} %"


def count(value: float | None) -> str:
    """A counter, or a rate with one digit after the point."""
    if value is None:
        return UNKNOWN
    return f"{value:,d}" if isinstance(value, int) else f"{value:,.1f}"


def size(value: int | None) -> str:
    """Bytes in the unit virsh uses."""
    return UNKNOWN if value is None else f"{value // 1024:,d} KiB"
