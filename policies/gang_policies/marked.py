# SPDX-License-Identifier: Apache-2.0
"""A policy that does as the mark says, whatever was measured."""

from __future__ import annotations

from dataclasses import dataclass

from gangd.model.domain import Domain, Mode
from gangd.model.evidence import Evidence
from gangd.model.policy import Decision


@dataclass
class Marked:
    """The policy `name`: always `mode`, except where one vCPU has no siblings `to` do something with."""

    name: str
    mode: Mode
    to: str

    def decide(self, domain: Domain, evidence: Evidence, memory: object = None) -> Decision:
        """The mode, or off for a guest with one vCPU."""
        if len(domain.vcpus) < 2:
            return Decision(Mode.OFF, f"a guest with one vCPU has no siblings to {self.to}")
        return Decision(self.mode, f"policy {self.name}")
