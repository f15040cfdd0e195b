# SPDX-License-Identifier: Apache-2.0
"""A change of a domain's mark, as a caller asks for it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from gangd.model.affect import Affect
from gangd.model.domain import Mark


@dataclass(frozen=True)
class MarkChange:
    """The policy and the weight (1 to 10000) that a mark is to have; None: as it is, or the default.

    affect: the states of the domain whose mark is meant, None: all there are.
    """

    policy: str | None = None
    weight: int | None = None
    affect: Affect | None = None

    @property
    def empty(self) -> bool:
        """True if nothing of a mark would change."""
        return self.policy is None and self.weight is None

    def applied(self, mark: Mark) -> Mark:
        """Return the mark that `mark` becomes."""
        return Mark(self.policy or mark.policy, mark.weight if self.weight is None else self.weight, mark.tag)
