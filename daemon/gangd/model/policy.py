# SPDX-License-Identifier: Apache-2.0
"""The interface of a policy. Implementations live in gang_policies or with third parties."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from gangd.model.domain import Domain, Mode
from gangd.model.evidence import Evidence


@dataclass(frozen=True)
class Decision:
    """How one guest is to be scheduled, and why in one sentence without a period.

    memory: given back at the next decision about this guest. again: seconds after which a new reading
    is wanted, None = the daemon's own rhythm. `OFF` refuses the guest; with `again` it leaves it alone until
    then.
    """

    mode: Mode
    reason: str
    memory: object = None
    again: float | None = None


@dataclass(frozen=True)
class PolicyText:
    """The description of an installed policy, from its module's docstring.

    summary: in a line. text: in full. package: the Python distribution it came with, and its version.
    """

    name: str
    summary: str
    text: str
    package: str


class Policy(Protocol):
    """Decides the mode of one running guest that was marked or selected. Pure: no clock, no kernel, no state
    of its own. docs/policies.md

    It may have an attribute `remembers`, the dataclass of which its decisions' memory is: with it the memory
    outlives a restart of gangd.
    """

    name: str

    def decide(self, domain: Domain, evidence: Evidence, memory: object = None) -> Decision:
        """The mode for `domain`, given what was measured of it, and what the last decision remembered."""
