# SPDX-License-Identifier: Apache-2.0
"""The list of `make bench-harm`: all groups of rows, and how each of their entries is measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from gangsim import finding_rows, harm_rows, host_rows, random_rows
from gangsim.found import Found, Runner, measured

Measure = Callable[[Runner], list[Found]]


@dataclass(frozen=True)
class Group:
    """Entries under one heading: the name of each, and what measures it. chance: hosts made by chance."""

    name: str
    title: str
    entries: Sequence[tuple[str, Measure]]
    chance: bool = False

    def only(self, word: str) -> Group:
        """The group with those entries that have the word in their name; all, if it has it in its own."""
        chosen = [one for one in self.entries if word in one[0] or word == self.name]
        return Group(self.name, self.title, chosen, self.chance)


def groups(random: Sequence[int], masked: Sequence[int], first: int = 1) -> list[Group]:
    """All rows; random, masked: the seeds of hosts made by chance; first: of each other row's seeds."""
    known = (
        ("rows", "who is worse off beside gangs", harm_rows),
        ("findings", "hosts that broke earlier schedulers", finding_rows),
        ("hosts", "hosts of ordinary life", host_rows),
    )
    found = []
    for name, title, module in known:
        entries = [(row.name, partial(of_row, row, first)) for row in module.standard()]
        found.append(Group(name, title, entries))
    for name, seeds in (("random", random), ("masked", masked)):
        made = [
            (f"{name} host {seed}", partial(random_rows.of_host, seed, name == "masked")) for seed in seeds
        ]
        title = "hosts made by chance" + (", some may not have all CPUs" if name == "masked" else "")
        found.append(Group(name, title, made, chance=True))
    return found


def of_row(row: harm_rows.Row, first: int, run: Runner) -> list[Found]:
    """A row that is one line of the list."""
    return [measured(row, run, first)]
