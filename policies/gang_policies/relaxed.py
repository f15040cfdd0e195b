# SPDX-License-Identifier: Apache-2.0
"""relaxed: co-start in the slot, halted vCPUs exempt, fillers allowed.

The mode ESX calls relaxed co-scheduling. The guest is a gang for as long as it
is marked; what the probes measured is quoted in the reason, not acted on.
"""

from __future__ import annotations

from gang_policies.quote import measured
from gangd.model.domain import Domain, Mode
from gangd.model.evidence import Evidence
from gangd.model.policy import Decision


class Relaxed:
    """The policy `relaxed`."""

    name = "relaxed"

    def decide(self, domain: Domain, evidence: Evidence) -> Decision:
        """Always a relaxed gang, except where one vCPU makes a gang of nothing."""
        if len(domain.vcpus) < 2:
            return Decision(Mode.OFF, "a guest with one vCPU has no siblings to run with")
        return Decision(Mode.RELAXED, f"marked relaxed; {measured(evidence)}")


POLICY = Relaxed()
