# SPDX-License-Identifier: Apache-2.0
"""balance: the vCPUs of a guest never wait for one and the same CPU; nothing else is asked of the host.

Balance scheduling (Sukwong and Kim, "Is co-scheduling too expensive for SMP VMs?", EuroSys 2011). Placement
alone: each vCPU is pinned to a CPU of its own, no scheduler is loaded for it.
"""

from gang_policies.marked import Marked
from gangd.model.domain import Mode

POLICY = Marked("balance", Mode.BALANCE, to="be kept apart from")
