# SPDX-License-Identifier: Apache-2.0
"""A table, shown as text in a terminal or as Markdown on a page. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice


@dataclass(frozen=True)
class Table:
    """Rows below heads. title: what is said above; notes: what is said below, a line each.

    align: `l` or `r` by column, the last one for all that follow. groups: a title over so many columns each;
    the terminal separates groups by `between`. Markdown has neither alignment nor groups.
    """

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    align: str = "lr"
    groups: Sequence[tuple[str, int]] = ()
    between: str = "  "
    notes: Sequence[str] = ()

    def text(self) -> Iterator[str]:
        """Yield the lines of a terminal: title, heads, rows, notes."""
        yield from [self.title] * bool(self.title)
        rows = [*[self.heads] * bool(self.heads), *self.rows]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        counts = [count for _, count in self.groups] or [1] * len(widths)
        lines = [self._line(row, widths, counts) for row in rows]
        if self.groups:
            above, left = [], iter(widths)
            for title, count in self.groups:
                above.append(title.center(sum(islice(left, count)) + count - 1))
            head = self.between.join(above).rstrip()
            lines[:1] = [head, lines[0], "-" * max(map(len, [head, *lines]))]
        yield from [*lines, *self.notes]

    def _line(self, row: Sequence[str], widths: Sequence[int], counts: Sequence[int]) -> str:
        sides = self.align.ljust(len(widths), self.align[-1])
        pad = {"l": str.ljust, "r": str.rjust}
        cells = iter([pad[side](cell, width) for cell, width, side in zip(row, widths, sides, strict=True)])
        return self.between.join(" ".join(islice(cells, count)) for count in counts).rstrip()

    def markdown(self) -> Iterator[str]:
        """Yield the lines of a page; the last one is empty."""
        yield from [self.title, ""] * bool(self.title)
        yield f"| {' | '.join(self.heads)} |"
        yield "|" + "---|" * len(self.heads)
        for row in self.rows:
            yield f"| {' | '.join(row)} |"
        yield ""
        for note in self.notes:
            yield from (note, "")
