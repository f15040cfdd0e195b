# SPDX-License-Identifier: Apache-2.0
"""balance: the vCPUs of a guest never wait for one and the same CPU; nothing else is asked of the host.

Balance scheduling (Sukwong and Kim, "Is co-scheduling too expensive for SMP VMs?", EuroSys 2011). Placement
alone: each vCPU is pinned to a CPU of its own, no scheduler is loaded for it.
"""

from __future__ import annotations

from gang_policies.quote import measured
from gangd.model.domain import Domain, Mode
from gangd.model.evidence import Evidence
from gangd.model.policy import Decision


class Balance:
    """The policy `balance`."""

    name = "balance"

    def decide(self, domain: Domain, evidence: Evidence) -> Decision:
        """Always balanced, except where one vCPU has nobody to be kept apart from."""
        if len(domain.vcpus) < 2:
            return Decision(Mode.OFF, "a guest with one vCPU has no siblings to be kept apart from")
        return Decision(Mode.BALANCE, f"marked balance; {measured(evidence)}")


POLICY = Balance()
