# SPDX-License-Identifier: Apache-2.0
"""relaxed: co-start in turns, halted vCPUs exempt, their CPUs for others.

The mode ESX calls relaxed co-scheduling. The guest is a gang for as long as it
is marked.
"""

from gang_policies.marked import Marked
from gangd.model.domain import Mode

POLICY = Marked("relaxed", Mode.RELAXED, to="run with")
